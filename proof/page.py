"""What commands write into docs/reliability.md: blocks between two marks, each replaced as a whole."""

from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "docs" / "reliability.md"


class NoPlace(Exception):
    """The page lacks the marks between which a block belongs."""


def with_block(page: str, name: str, text: str) -> str:
    """The page, with this text as its block of that name."""
    begins, ends = f"<!-- {name}: written by a command -->", f"<!-- end of {name} -->"
    before, found_begin, rest = page.partition(begins)
    _, found_end, after = rest.partition(ends)
    if not found_begin or not found_end:
        raise NoPlace(f"{PAGE.name} has no place for the block {name!r}: put {begins} and {ends} where it belongs")
    return f"{before}{begins}\n\n{text}\n\n{ends}{after}"


def write_block(name: str, text: str) -> None:
    """Put a block where it belongs in the page."""
    PAGE.write_text(with_block(PAGE.read_text("utf-8"), name, text), "utf-8")
