"""`sluice repair`: when a host whose clock was far ahead has frozen a bucket for everybody."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from sluice.cli.client import add_for_whom, open_client
from sluice.cli.output import print_json


def add(subjects: Any, everywhere: argparse.ArgumentParser) -> None:
    repairing = subjects.add_parser(
        "repair",
        parents=[everywhere],
        help="take back what a wrong clock has left behind",
        description="Take back what a host whose clock was far ahead has left in a bucket: rates and pauses that would "
        "last for hours, slots that would never lapse. What is in order stays as it is.",
    )
    repairing.add_argument("resource", metavar="RESOURCE")
    add_for_whom(repairing)
    repairing.set_defaults(run=repair)


def repair(asked: argparse.Namespace) -> int:
    """Put a bucket right, and say what was wrong with it."""
    with open_client(asked) as sluice:
        repairs = sluice.repair(asked.resource, entity=asked.entity)
    if asked.json:
        print_json({"resource": asked.resource, "entity": asked.entity, **dataclasses.asdict(repairs)})
        return 0
    done = [*repairs.limits, *(["a pause"] if repairs.pause_ended else [])]
    print(f"{asked.resource}: put right: {', '.join(done)}" if done else f"{asked.resource}: nothing was wrong")
    return 0
