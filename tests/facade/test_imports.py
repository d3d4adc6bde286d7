"""Importing Sluice is light: no event loop, no database, nothing that is not in the standard library."""

import subprocess
import sys

HEAVY = {"asyncio", "sqlite3", "concurrent.futures", "multiprocessing", "ssl", "http.client", "email"}

REPORT = """
import sys
before = set(sys.modules)
{what}
loaded = set(sys.modules) - before
top = {{name.partition(".")[0] for name in loaded}}
print(*sorted(top - set(sys.stdlib_module_names) - {{"sluice"}}), sep=",")
print(*sorted(loaded & {heavy}), sep=",")
print(len(loaded))
"""


def loads(what: str) -> tuple[str, str, int]:
    """Third-party modules, heavy modules, and how many in all, in an interpreter of its own."""
    # -S: what site-packages' .pth files import is none of ours; the path is handed over instead.
    code = f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\n" + REPORT.format(
        what=what, heavy=HEAVY
    )
    ran = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    foreign, heavy, count = ran.stdout.splitlines()
    return foreign, heavy, int(count)


def test_importing_sluice_imports_no_event_loop_no_database_and_nothing_foreign() -> None:
    foreign, heavy, count = loads("import sluice")
    assert (foreign, heavy) == ("", "")
    assert count < 150


def test_a_client_of_the_blocking_facade_needs_no_event_loop() -> None:
    foreign, heavy, _ = loads(
        "import sluice\n"
        "client = sluice.Sluice('memory://')\n"
        "client.set_limits('openai', [sluice.Limit('concurrent', '2 slots ttl 60s')])\n"
        "with client.acquire('openai'): pass\n"
        "client.close()"
    )
    assert (foreign, heavy) == ("", "")


def test_making_a_client_of_a_file_imports_no_event_loop() -> None:
    foreign, heavy, _ = loads("import sluice\nclient = sluice.Sluice('sqlite:///never-opened.db')")
    assert foreign == ""
    assert heavy in {"", "sqlite3"}


def test_the_asyncio_facade_comes_when_it_is_asked_for() -> None:
    foreign, heavy, _ = loads("import sluice\nsluice.AsyncSluice('memory://')")
    assert foreign == ""
    assert "asyncio" in heavy.split(",")
