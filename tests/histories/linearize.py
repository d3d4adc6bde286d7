"""Whether a history of overlapping calls could have happened one call at a time.

A history is *linearizable* if its calls can be put in an order in which

- a call that returned before another was made stands before it, and
- a sequential model, applied in that order, gives each call the answer that it had.

A call whose outcome is unknown may stand anywhere after it was made (and before it was over, if that is known: the
process was dead by then), or nowhere. The search is Wing and Gong's, with Lowe's memory: the next call is one of those
made before any other one that is missing returned; a set of placed calls that led to a state before is not tried again.
It tries every order that these rules allow, so it rejects only what has none; for what it accepts, it gives an order.

Calls on disjoint objects are checked apart: a history is linearizable if and only if that of each object is.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

NEVER_NS = 1 << 200
"""Later than everything: when a call returned that did not."""

S = TypeVar("S")


class Call(Protocol):
    """One call. ``known``: it returned with an answer, so it has a place in any order."""

    @property
    def made_ns(self) -> int: ...
    @property
    def over_ns(self) -> int: ...
    @property
    def known(self) -> bool: ...
    @property
    def changes_nothing(self) -> bool:
        """Whether a call with this answer leaves every state as it is, wherever it stands."""
        ...


C = TypeVar("C", bound=Call)
Step = Callable[[S, C], Iterable[S]]
"""The states that a call may lead to with the answer that it had; none if it can't have had it in this state."""


@dataclass(frozen=True)
class Verdict(Generic[C]):
    """``order`` is a whole linearization if ``holds``, else the longest beginning of one; ``stuck`` could come next."""

    holds: bool
    order: tuple[C, ...]
    stuck: tuple[C, ...]


def linearize(calls: Iterable[C], start: S, step: Step[S, C]) -> Verdict[C]:
    """Look for an order of calls. Equal states must compare equal."""
    search = _Search(calls, step)
    if not search.needed:
        return Verdict(True, (), ())
    tried: dict[int, list[S]] = {}
    path: list[int] = []
    longest: tuple[int, ...] = ()
    stuck = search.next(0)
    branches = [search.branches(0, start)]
    while branches:
        for number, placed, state in branches[-1]:
            states = tried.setdefault(placed, [])
            if state in states:
                continue
            states.append(state)
            path.append(number)
            if placed & search.needed == search.needed:
                return Verdict(True, tuple(search.calls[n] for n in path), ())
            branches.append(search.branches(placed, state))
            if len(path) > len(longest):
                longest, stuck = tuple(path), search.next(placed)
            break
        else:
            branches.pop()
            if path:
                path.pop()
    return Verdict(False, tuple(search.calls[n] for n in longest), tuple(search.calls[n] for n in stuck))


class _Search(Generic[S, C]):
    """What may come next. Calls have numbers, known ones first, in the order in which they were made; sets are bits."""

    def __init__(self, calls: Iterable[C], step: Step[S, C]) -> None:
        made = sorted(calls, key=lambda call: (not call.known, call.made_ns))
        self.calls = made
        self._known = sum(call.known for call in made)
        self._step = step
        self.needed = (1 << self._known) - 1

    def branches(self, placed: int, state: S) -> Iterator[tuple[int, int, S]]:
        """Which call can come next, what is placed then, and the state it leads to."""
        numbers = sorted(self.next(placed), key=lambda number: self.calls[number].over_ns)  # the likeliest first
        for number in numbers:
            call = self.calls[number]
            if call.changes_nothing and not self._ends_a_doubt(call, numbers) and any(self._fits(state, call)):
                yield number, placed | 1 << number, state  # here it costs nothing, and later it might not fit
                return
        for number in numbers:
            for after in self._step(state, self.calls[number]):
                yield number, placed | 1 << number, after

    def _fits(self, state: S, call: C) -> Iterator[bool]:
        return (True for _ in self._step(state, call))

    def _ends_a_doubt(self, call: C, numbers: Iterable[int]) -> bool:
        """Whether one of these calls could have no place any more once this one has."""
        return any(self.calls[number].over_ns < call.made_ns for number in numbers)

    def next(self, placed: int) -> list[int]:
        """The calls that no missing one returned before, and that were not over before a placed one was made."""
        near: list[int] = []
        first_over_ns = NEVER_NS
        for number in range(_first_missing(placed), self._known):
            if self.calls[number].made_ns > first_over_ns:
                break
            if not placed >> number & 1:
                near.append(number)
                first_over_ns = min(first_over_ns, self.calls[number].over_ns)
        doubtful = range(self._known, len(self.calls))
        last_known = (placed & self.needed).bit_length() - 1
        last_made_ns = max(
            [self.calls[n].made_ns for n in doubtful if placed >> n & 1]
            + [self.calls[last_known].made_ns if last_known >= 0 else 0]
        )
        return near + [
            n
            for n in doubtful
            if not placed >> n & 1 and self.calls[n].made_ns <= first_over_ns and self.calls[n].over_ns >= last_made_ns
        ]


def _first_missing(placed: int) -> int:
    return (~placed & (placed + 1)).bit_length() - 1


def apart(calls: Iterable[C], objects: Callable[[C], Sequence[Hashable]]) -> list[list[C]]:
    """Calls in groups that share no object, not even through others."""
    leader: dict[Hashable, Hashable] = {}

    def lead(thing: Hashable) -> Hashable:
        while (above := leader.setdefault(thing, thing)) != thing:
            thing = above
        return thing

    listed = list(calls)
    for call in listed:
        first, *others = objects(call)
        for other in others:
            leader[lead(other)] = lead(first)
    groups: dict[Hashable, list[C]] = {}
    for call in listed:
        groups.setdefault(lead(objects(call)[0]), []).append(call)
    return list(groups.values())
