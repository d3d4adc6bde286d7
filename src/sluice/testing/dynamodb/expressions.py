"""What an expression of DynamoDB says: text in, a small tree out. Only what our store writes is known here.

    condition   comparisons = <> < <= > >=, BETWEEN, IN, AND, OR, NOT, parentheses,
                attribute_exists, attribute_not_exists, begins_with, size
    update      SET with +, - and if_not_exists, REMOVE, ADD of numbers
    operands    :values, and paths whose elements are #names or single letters or ``pk``, the key

NOT binds tightest, then AND, then OR. What is neither known here nor refused by the engine raises `Unmodelled`, so that
nothing is ever decided by a guess. The engine's own refusals of a text are `Invalid`: too long, too many operators,
parentheses that say nothing, a section twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

from sluice.testing.dynamodb.tree import (
    Assigned,
    Attribute,
    BeginsWith,
    Between,
    Both,
    Compared,
    Comparison,
    Condition,
    Either,
    Exists,
    IfNotExists,
    Invalid,
    Missing,
    Negated,
    OneOf,
    Path,
    Size,
    Sum,
    Test,
    Unmodelled,
    Update,
    Value,
)

MAX_EXPRESSION_BYTES: Final = 4_096
MAX_OPERATORS: Final = 300
MAX_OPTIONS: Final = 100

T = TypeVar("T")


@lru_cache(maxsize=4_096)
def condition(text: str) -> Condition:
    """Read a condition."""
    reader = _Reader(text)
    test = reader.either()
    return Condition(test, reader.finished())


@lru_cache(maxsize=4_096)
def update(text: str) -> Update:
    """Read an update."""
    reader = _Reader(text)
    sets: tuple[tuple[Path, Assigned], ...] = ()
    removes: tuple[Path, ...] = ()
    adds: tuple[tuple[Path, Value], ...] = ()
    seen: set[str] = set()
    while reader.peek():
        section = reader.next().upper()
        if section in seen:
            raise Invalid(f"the {section} section can only be used once in an update expression")
        seen.add(section)
        match section:
            case "SET":
                sets = reader.listed(reader.assignment)
            case "REMOVE":
                removes = reader.listed(reader.path)
            case "ADD":
                adds = reader.listed(reader.addition)
            case _:
                raise Unmodelled(f"no update section is called {section!r}: {text}")
    return Update(sets, removes, adds, reader.finished())


_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),.+-]|[#:]\w+|\w+)")
_COMPARATORS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_WORD = re.compile(r"[a-zA-Z]|pk")


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, text: str) -> None:
        if len(text.encode()) > MAX_EXPRESSION_BYTES:
            raise Invalid(f"an expression of {len(text.encode())} bytes; {MAX_EXPRESSION_BYTES} are allowed")
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._operators = 0
        self._mentions: set[str] = set()

    def finished(self) -> frozenset[str]:
        if self._at < len(self._tokens):
            raise Unmodelled(f"nothing is known of what begins with {self.peek()!r} in: {self._text}")
        if self._operators > MAX_OPERATORS:
            raise Invalid(f"the expression contains {self._operators} operators; {MAX_OPERATORS} are allowed")
        return frozenset(self._mentions)

    def peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def _expect(self, wanted: str) -> None:
        found = self.next()
        if found.lower() != wanted:
            raise Unmodelled(f"expected {wanted!r}, found {found!r} in: {self._text}")

    def listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        found = [read()]
        while self.peek() == ",":
            self.next()
            found.append(read())
        return tuple(found)

    # --- operands ---

    def path(self) -> Path:
        found = [self._name()]
        while self.peek() == ".":
            self.next()
            found.append(self._name())
        return tuple(found)

    def _name(self) -> str:
        token = self.next()
        if token.startswith("#"):
            self._mentions.add(token)
        elif not _WORD.fullmatch(token):
            raise Unmodelled(f"{token!r} may be a reserved word; write it as a #name in: {self._text}")
        return token

    def value(self) -> Value:
        token = self.next()
        if not token.startswith(":"):
            raise Unmodelled(f"expected a :value, found {token!r} in: {self._text}")
        self._mentions.add(token)
        return Value(token)

    def _plain(self) -> Attribute | Value:
        return self.value() if self.peek().startswith(":") else Attribute(self.path())

    def _compared(self) -> Compared:
        if self._calls("size"):
            return Size(self._only_path())
        return self._plain()

    def _calls(self, function: str) -> bool:
        if self.peek().lower() != function or self.peek(1) != "(":
            return False
        self._at += 2
        self._operators += 1
        return True

    def _only_path(self) -> Path:
        path = self.path()
        self._expect(")")
        return path

    # --- conditions ---

    def either(self) -> Test:
        test = self._both()
        while self.peek().lower() == "or":
            self._operator()
            test = Either(test, self._both())
        return test

    def _both(self) -> Test:
        test = self._single()
        while self.peek().lower() == "and":
            self._operator()
            test = Both(test, self._single())
        return test

    def _operator(self) -> str:
        self._operators += 1
        return self.next()

    def _single(self) -> Test:
        if self.peek().lower() == "not":
            self._operator()
            return Negated(self._single())
        if self.peek() == "(":
            return self._in_parentheses()
        if self._calls("attribute_exists"):
            return Exists(self._only_path())
        if self._calls("attribute_not_exists"):
            return Missing(self._only_path())
        if self._calls("begins_with"):
            path = self.path()
            self._expect(",")
            prefix = self.value()
            self._expect(")")
            return BeginsWith(path, prefix)
        return self._comparison()

    def _in_parentheses(self) -> Test:
        opened = self._at
        self._expect("(")
        test = self.either()
        self._expect(")")
        if self._tokens[opened + 1] == "(" and self._closes(opened + 1) == self._at - 2:
            raise Invalid("the expression has redundant parentheses")
        return test

    def _closes(self, opened: int) -> int:
        """Where the parenthesis that opens here is closed."""
        depth = 0
        for at in range(opened, len(self._tokens)):
            depth += {"(": 1, ")": -1}.get(self._tokens[at], 0)
            if not depth:
                return at
        raise Unmodelled(f"a parenthesis is not closed in: {self._text}")

    def _comparison(self) -> Test:
        left = self._compared()
        operator = self._operator().lower()
        if operator in _COMPARATORS:
            return Comparison(operator, left, self._compared())
        if operator == "between":
            low = self._compared()
            self._expect("and")
            return Between(left, low, self._compared())
        if operator == "in":
            self._expect("(")
            options = self.listed(self._compared)
            self._expect(")")
            if len(options) > MAX_OPTIONS:
                raise Invalid(f"IN is given {len(options)} operands; {MAX_OPTIONS} are allowed")
            return OneOf(left, options)
        raise Unmodelled(f"no operator is called {operator!r} in: {self._text}")

    # --- updates ---

    def assignment(self) -> tuple[Path, Assigned]:
        path = self.path()
        self._expect("=")
        left = self._assigned()
        if self.peek() not in {"+", "-"}:
            return path, left
        sign = 1 if self._operator() == "+" else -1
        return path, Sum(left, self._assigned(), sign)

    def _assigned(self) -> Attribute | Value | IfNotExists:
        if self._calls("if_not_exists"):
            path = self.path()
            self._expect(",")
            otherwise = self._plain()
            self._expect(")")
            return IfNotExists(path, otherwise)
        return self._plain()

    def addition(self) -> tuple[Path, Value]:
        return self.path(), self.value()


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unmodelled(f"nothing is known of {text[at:].strip()[:20]!r} in: {text}")
        found.append(match[1])
        at = match.end()
    return found
