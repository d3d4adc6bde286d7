"""Whether a condition holds of an item.

A comparison with something that is missing is false, and so is one in order between different types; only ``<>`` is
then true. What the engine refuses of a condition it refuses whatever the item, and before anything else.
"""

from __future__ import annotations

from typing import Any

from sluice.testing.dynamodb.items import Attr, Item, Placeholders
from sluice.testing.dynamodb.tree import (
    Attribute,
    BeginsWith,
    Between,
    Both,
    Comparison,
    Condition,
    Either,
    Exists,
    Invalid,
    Missing,
    Negated,
    OneOf,
    Size,
    Test,
    Value,
)


def holds(condition: Condition | None, item: Item, given: Placeholders) -> bool:
    """Whether a condition holds of an item; an item that is not there is empty. None asks for nothing."""
    if condition is None:
        return True
    _check_test(condition.test, given)
    return _true(condition.test, item, given)


def _true(test: Test, item: Item, given: Placeholders) -> bool:
    match test:
        case Both(left, right):
            return _true(left, item, given) and _true(right, item, given)
        case Either(left, right):
            return _true(left, item, given) or _true(right, item, given)
        case Negated(inner):
            return not _true(inner, item, given)
    return _true_alone(test, item, given)


def _true_alone(
    test: Comparison | Between | OneOf | Exists | Missing | BeginsWith, item: Item, given: Placeholders
) -> bool:
    match test:
        case Exists(path):
            return given.found(path, item) is not None
        case Missing(path):
            return given.found(path, item) is None
        case BeginsWith(path, prefix):
            found = given.found(path, item) or {}
            start: str = given.values[prefix.name]["S"]
            return "S" in found and found["S"].startswith(start)
        case Comparison(operator, left, right):
            return _compare(operator, _read(left, item, given), _read(right, item, given))
        case Between(operand, low, high):
            value = _read(operand, item, given)
            return _compare(">=", value, _read(low, item, given)) and _compare("<=", value, _read(high, item, given))
        case OneOf(operand, options):
            value = _read(operand, item, given)
            return any(_compare("=", value, _read(option, item, given)) for option in options)


def _read(operand: Attribute | Value | Size, item: Item, given: Placeholders) -> Attr | None:
    match operand:
        case Value(name):
            return given.values[name]
        case Attribute(path):
            return given.found(path, item)
        case Size(path):
            found = given.found(path, item) or {}
            for kind in ("S", "M", "L", "SS"):
                if kind in found:
                    content = found[kind]
                    return {"N": str(len(content.encode() if kind == "S" else content))}
            return None


def _compare(operator: str, left: Attr | None, right: Attr | None) -> bool:
    if left is None or right is None:
        return operator == "<>"
    if operator in {"=", "<>"}:
        return (left == right) is (operator == "=")
    if "N" in left and "N" in right:
        return _in_order(operator, int(left["N"]), int(right["N"]))
    if "S" in left and "S" in right:
        return _in_order(operator, left["S"].encode(), right["S"].encode())
    return False


def _in_order(operator: str, left: Any, right: Any) -> bool:
    order: dict[str, bool] = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return order[operator]


def _check_test(test: Test, given: Placeholders) -> None:
    """What the engine refuses of a condition whatever the item."""
    match test:
        case Both(left, right) | Either(left, right):
            _check_test(left, given)
            _check_test(right, given)
        case Negated(inner):
            _check_test(inner, given)
        case BeginsWith(_, prefix):
            if "S" not in given.values[prefix.name]:
                raise Invalid("begins_with takes a text")
        case Comparison(operator, left, right):
            if left == right or _same_path(left, right, given):
                raise Invalid(f"the operands of {operator} must be distinct")
            if operator not in {"=", "<>"}:
                _check_ordered((left, right), given)
        case Between(operand, low, high):
            _check_ordered((operand, low, high), given)
            if isinstance(low, Value) and isinstance(high, Value):
                ends = given.values[low.name], given.values[high.name]
                if ends[0].keys() != ends[1].keys() or _compare(">", *ends):
                    raise Invalid("BETWEEN takes a lower bound and then an upper bound of the same type")


def _check_ordered(operands: tuple[Attribute | Value | Size, ...], given: Placeholders) -> None:
    for operand in operands:
        if isinstance(operand, Value) and not given.values[operand.name].keys() & {"N", "S"}:
            raise Invalid("only numbers and texts have an order")


def _same_path(left: object, right: object, given: Placeholders) -> bool:
    if isinstance(left, Attribute) and isinstance(right, Attribute):
        return given.path(left.path) == given.path(right.path)
    return False
