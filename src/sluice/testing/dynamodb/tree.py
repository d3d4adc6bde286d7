"""What conditions and updates of DynamoDB are made of, and the two ways in which a request is not done at all."""

from __future__ import annotations

from dataclasses import dataclass


class Invalid(Exception):
    """The engine refuses the request as it stands, as it would with a ValidationException."""


class Unmodelled(Exception):
    """The model doesn't know what the engine would do."""


Path = tuple[str, ...]
"""The elements of a document path as they are written."""


@dataclass(frozen=True, slots=True)
class Attribute:
    path: Path


@dataclass(frozen=True, slots=True)
class Value:
    name: str


@dataclass(frozen=True, slots=True)
class Size:
    path: Path


@dataclass(frozen=True, slots=True)
class IfNotExists:
    path: Path
    otherwise: Attribute | Value


@dataclass(frozen=True, slots=True)
class Sum:
    left: Attribute | Value | IfNotExists
    right: Attribute | Value | IfNotExists
    sign: int


Compared = Attribute | Value | Size
Assigned = Attribute | Value | IfNotExists | Sum


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str
    left: Compared
    right: Compared


@dataclass(frozen=True, slots=True)
class Between:
    operand: Compared
    low: Compared
    high: Compared


@dataclass(frozen=True, slots=True)
class OneOf:
    operand: Compared
    options: tuple[Compared, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    path: Path


@dataclass(frozen=True, slots=True)
class Missing:
    path: Path


@dataclass(frozen=True, slots=True)
class BeginsWith:
    path: Path
    prefix: Value


@dataclass(frozen=True, slots=True)
class Both:
    left: Test
    right: Test


@dataclass(frozen=True, slots=True)
class Either:
    left: Test
    right: Test


@dataclass(frozen=True, slots=True)
class Negated:
    test: Test


Test = Comparison | Between | OneOf | Exists | Missing | BeginsWith | Both | Either | Negated


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, and the placeholders that it mentions."""

    test: Test
    mentions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Update:
    """An update, and the placeholders that it mentions."""

    sets: tuple[tuple[Path, Assigned], ...]
    removes: tuple[Path, ...]
    adds: tuple[tuple[Path, Value], ...]
    mentions: frozenset[str]
