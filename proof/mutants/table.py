"""The table of planted bugs in docs/reliability.md: written by the command, between two marks."""

from collections.abc import Sequence
from typing import Final

from proof.mutants.trial import Verdict
from proof.page import write_block

BLOCK: Final = "planted bugs"


def table(verdicts: Sequence[Verdict]) -> str:
    """One line a bug: where it is, what it breaks, what caught it."""
    lines = ["| in | planted bug | what it breaks | caught by | seeds |", "|---|---|---|---|---:|"]
    for verdict in verdicts:
        mutant = verdict.mutant
        seeds = str(verdict.seeds) if verdict.by_simulator else ""
        by = verdict.caught_by or "**nothing**"
        lines.append(f"| {mutant.part} | {mutant.name} | {mutant.breaks} | {by} | {seeds} |")
    caught = [verdict for verdict in verdicts if verdict.caught_by]
    ours = [verdict for verdict in verdicts if verdict.mutant.part in {"core", "flow"}]
    simulated = sum(verdict.by_simulator for verdict in ours)
    lines += [
        "",
        f"{len(caught)} of {len(verdicts)} caught; of the {len(ours)} in core and flows, {simulated} by the simulator.",
    ]
    return "\n".join(lines)


def write_table(verdicts: Sequence[Verdict]) -> None:
    """Put the table where it belongs in docs/reliability.md."""
    write_block(BLOCK, table(verdicts))
