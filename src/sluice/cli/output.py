"""Printing: a table for people, or one JSON value for machines."""

import json
from collections.abc import Sequence

Cell = str | int


def print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(head: Sequence[str], rows: Sequence[Sequence[Cell]], nothing: str) -> None:
    """Print rows under their headings, or the sentence ``nothing`` if there are none."""
    print("\n".join(table_lines(head, rows)) if rows else nothing)


def table_lines(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Columns as wide as their widest cell; numbers to the right."""
    texts = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
    right = [bool(rows) and all(isinstance(row[column], int) for row in rows) for column in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in texts
    ]


def seconds_text(seconds: float) -> str:
    """Seconds for people: ``0``, ``12 ms``, ``3.42 s``, ``5 min``."""
    if seconds <= 0:
        return "0"
    if seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{seconds / 60:.0f} min"
