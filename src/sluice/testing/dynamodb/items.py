"""Items in the protocol's own form: what a value may be, what it weighs, and what lies at a path.

A value is what the protocol writes, ``{"N": "12"}``; nothing is ever changed in place. Numbers are whole, of at most 38
significant digits; texts, truth values, nothing, maps, lists and sets of texts are known, other sets and bytes are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluice.testing.dynamodb.tree import Invalid, Path, Unmodelled

MAX_ITEM_BYTES: Final = 400 * 1024
MAX_DIGITS: Final = 38
MAX_MAGNITUDE: Final = 10**126
MAX_DEPTH: Final = 32

Attr = Mapping[str, Any]
Item = Mapping[str, Attr]


def checked(value: Attr, depth: int = 0) -> Attr:
    """A value that was sent, as it is kept, if it is one that the model and the engine know."""
    if depth > MAX_DEPTH:
        raise Invalid(f"nested deeper than {MAX_DEPTH}")
    if not isinstance(value, Mapping) or len(value) != 1:
        raise Invalid(f"a value has one type: {value!r}")
    ((kind, content),) = value.items()
    match kind, content:
        case "N", str():
            whole(value)
        case ("S", str()) | ("BOOL", bool()) | ("NULL", True):
            pass
        case "M", Mapping():
            return {kind: {name: checked(inner, depth + 1) for name, inner in content.items()}}
        case "L", list():
            return {kind: [checked(inner, depth + 1) for inner in content]}
        case "SS", list():
            if not content or len(set(content)) < len(content):
                raise Invalid(f"a set has texts, each once: {content!r}")
            return {kind: sorted(content)}
        case _:
            raise Unmodelled(f"nothing is known of the value {value!r}")
    return value


def whole(value: Attr) -> int:
    """The number that a value writes."""
    text: str = value["N"]
    try:
        number = int(text)
    except ValueError as error:
        raise Unmodelled(f"only whole numbers are modelled, not {text!r}") from error
    if str(number) != text:
        raise Unmodelled(f"{text!r} is not how the number {number} is written")
    return in_range(number)


def in_range(number: int) -> int:
    if len(str(abs(number)).rstrip("0")) > MAX_DIGITS:
        raise Invalid(f"only {MAX_DIGITS} significant digits are kept: {number}")
    if abs(number) >= MAX_MAGNITUDE:
        raise Invalid(f"a number of such size is not kept: {number}")
    return number


def size_of(item: Item) -> int:
    """The bytes that an item counts for."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Attr) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return _number_size(content)
        case "M":
            return 3 + sum(len(name.encode()) + _value_size(inner) + 1 for name, inner in content.items())
        case "L":
            return 3 + sum(_value_size(inner) + 1 for inner in content)
        case "SS":
            return sum(len(text.encode()) for text in content)
    return 1


def _number_size(text: str) -> int:
    """Two digits a byte, without the zeros behind; a byte more for the exponent, and one for a sign."""
    digits = text.lstrip("-")
    pairs = digits.rjust(len(digits) + len(digits) % 2, "0")
    while pairs.endswith("00"):
        pairs = pairs[:-2]
    return 1 + len(pairs) // 2 + text.startswith("-")


@dataclass(frozen=True, slots=True)
class Placeholders:
    """What the ``#names`` and ``:values`` of a request stand for."""

    names: Mapping[str, str]
    values: Mapping[str, Attr]

    @classmethod
    def of(cls, body: Mapping[str, Any], mentioned: Iterable[frozenset[str]]) -> Placeholders:
        """Those of a request whose expressions mention these: all of them, and no others."""
        names: Mapping[str, str] = body.get("ExpressionAttributeNames", {})
        values: Mapping[str, Attr] = body.get("ExpressionAttributeValues", {})
        needed = frozenset[str]().union(*mentioned)
        given = names.keys() | values.keys()
        if needed != given:
            raise Invalid(
                f"placeholders {sorted(needed - given)} are not defined, {sorted(given - needed)} are not used"
            )
        return cls(names, {name: checked(value) for name, value in values.items()})

    def path(self, path: Path) -> Path:
        return tuple(self.names[element] if element.startswith("#") else element for element in path)

    def found(self, path: Path, item: Item) -> Attr | None:
        """What lies at a path in an item."""
        attributes: Mapping[str, Attr] = item
        found: Attr | None = None
        for element in self.path(path):
            found = attributes.get(element)
            if found is None:
                return None
            attributes = found.get("M", {})
        return found
