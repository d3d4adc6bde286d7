"""The `sluice` command: thin calls on the blocking facade, and a demo.

Exit status 0 if all went well, 1 if Sluice refused, the store was unavailable or the demo saw a promise broken, 2 for
bad input, 130 when interrupted. Errors are a sentence on stderr; ``--json`` prints one JSON value on stdout.
"""

import io
import os
import sys
from collections.abc import Sequence

from sluice.cli.arguments import make_parser
from sluice.core.errors import ConfigError, SluiceError

REFUSED = 1
BAD_INPUT = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Raises `SystemExit` for a command line that can't be read."""
    asked = make_parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name may have letters that this terminal has not
    try:
        status: int = asked.run(asked)
        if sys.stdout is not None:  # None if it was closed before we started
            sys.stdout.flush()
    except ConfigError as error:
        return _complain(error, BAD_INPUT)
    except SluiceError as error:
        return _complain(error, REFUSED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone; what is still buffered must not complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    return status


def _complain(error: SluiceError, status: int) -> int:
    print(f"sluice: {error}", file=sys.stderr)
    return status
