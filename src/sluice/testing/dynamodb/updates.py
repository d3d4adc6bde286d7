"""What an update makes of an item. All of it is computed from the item as it was.

A path leads through maps that are there: nothing can be put into, or removed from, a map that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from sluice.testing.dynamodb.items import Attr, Item, Placeholders, in_range, whole
from sluice.testing.dynamodb.tree import (
    Assigned,
    Attribute,
    IfNotExists,
    Invalid,
    Path,
    Sum,
    Unmodelled,
    Update,
    Value,
)


def check_update(update: Update, key: str, given: Placeholders) -> None:
    """What the engine refuses of an update whatever the item."""
    written = [path for path, _ in update.sets] + list(update.removes) + [path for path, _ in update.adds]
    paths = sorted(given.path(path) for path in written)
    for one, other in pairwise(paths):
        if other[: len(one)] == one:
            raise Invalid(f"two document paths overlap: {one} and {other}")
    if any(path[0] == key for path in paths):
        raise Invalid(f"attribute {key} is part of the key and can't be updated")
    for _, value in update.adds:
        if not given.values[value.name].keys() & {"N", "SS"}:
            raise Unmodelled("only numbers and sets of texts are added")
    for _, operand in update.sets:
        for term in (operand.left, operand.right) if isinstance(operand, Sum) else ():
            if isinstance(term, Value) and "N" not in given.values[term.name]:
                raise Invalid("only numbers can be added and subtracted")


def updated(update: Update, item: Item, given: Placeholders) -> Item:
    """The item after an update. All of it is computed from the item as it was."""
    new = item
    for path, operand in update.sets:
        new = _placed(new, given.path(path), _assigned(operand, item, given))
    for path, value in update.adds:
        new = _placed(new, given.path(path), _added(given.found(path, item), given.values[value.name]))
    for path in update.removes:
        new = _placed(new, given.path(path), None)
    return new


def _added(before: Attr | None, value: Attr) -> Attr:
    if before is None:
        return value
    if before.keys() != value.keys():
        raise Invalid("a number is added to a number, a set to a set")
    if "SS" in value:
        return {"SS": sorted({*before["SS"], *value["SS"]})}
    return {"N": str(in_range(whole(before) + whole(value)))}


def _assigned(operand: Assigned, item: Item, given: Placeholders) -> Attr:
    match operand:
        case Value(name):
            return given.values[name]
        case Attribute(path):
            found = given.found(path, item)
            if found is None:
                raise Invalid(f"the expression refers to an attribute that is not there: {path}")
            return found
        case IfNotExists(path, otherwise):
            found = given.found(path, item)
            return _assigned(otherwise, item, given) if found is None else found
        case Sum(left, right, sign):
            terms = _assigned(left, item, given), _assigned(right, item, given)
            if not all("N" in term for term in terms):
                raise Invalid("only numbers can be added and subtracted")
            return {"N": str(in_range(whole(terms[0]) + sign * whole(terms[1])))}


def _placed(attributes: Mapping[str, Attr], path: Path, value: Attr | None) -> Mapping[str, Attr]:
    """The same attributes with a value at a path, or without it for None."""
    name, rest = path[0], path[1:]
    if rest:
        inner = attributes.get(name, {})
        if "M" not in inner:
            raise Invalid(f"the document path is invalid for update: nothing can be in {name!r}")
        return {**attributes, name: {"M": _placed(inner["M"], rest, value)}}
    if value is None:
        return {other: kept for other, kept in attributes.items() if other != name}
    return {**attributes, name: value}
