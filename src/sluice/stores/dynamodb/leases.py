"""The life of a lease after its take: released, renewed, or tidied away once it has lapsed.

    release    REMOVE its entries, correct its rates     if the entries are there
    renew      SET its entries to now + ttl              if each is live, and it has no more of them
    reap       REMOVE entries                            if each is as it was seen

All are conditional on the lease's own entries, so a second time does nothing. Which entries a lease has in a bucket is
known from the last image, or read. Renewals of many leases in one bucket are one write; if it is refused, the image
tells which of them have lapsed, and the rest go again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sluice.core import bucket as core
from sluice.core.bucket import Bucket
from sluice.core.names import BucketKey, entry_owner, slot_entries
from sluice.core.requests import (
    Gone,
    Reap,
    Reaped,
    Release,
    Released,
    Renew,
    Renewed,
    SlotEntry,
    SlotsCharge,
    Unknown,
    Unreached,
)
from sluice.stores.dynamodb.correcting import CONTENDED, TRIES, correct
from sluice.stores.dynamodb.expressions import MAX_ENTRIES, BucketWrite
from sluice.stores.dynamodb.images import lease_map
from sluice.stores.dynamodb.pinning import pinned_write
from sluice.stores.dynamodb.rounds import Bench, Work
from sluice.stores.dynamodb.table import SLOTS

MAX_RENEWED: Final = 50
"""Slots that are renewed in one write: each has a condition of its own."""

# --- releasing --------------------------------------------------------------------------------------------------------


def release(bench: Bench, request: Release) -> Work[Released | Gone | Unknown | Unreached]:
    """Give back all slots of a lease in a bucket, and correct its rates in the same write."""
    image = bench.beliefs.get(request.key)
    if image is None or not _held(image, request.lease_id):
        found = yield from bench.read(request.key)
        if isinstance(found, Unknown | Unreached):
            return found
        image = found
    for _ in range(TRIES):
        held = _held(image, request.lease_id)
        if not held:
            return Gone(bench.now_ns)
        write = BucketWrite(request.key)
        _remove(write, held, image)
        correct(write, request.deltas, image, bench.now_ns)
        answer = yield from bench.write(request.key, write)
        if isinstance(answer, Unknown | Unreached):
            return answer
        done, image = answer
        if done:
            yield from _release_rest(bench, request, image)
            return Released(bench.now_ns)
    return Unreached(CONTENDED)


def _release_rest(bench: Bench, request: Release, image: Bucket) -> Work[None]:
    """Remove entries that the image did not show before: of the same id, taken anew by somebody else meanwhile.

    Tried once: what is left after that lapses.
    """
    held = _held(image, request.lease_id)
    if held:
        write = BucketWrite(request.key)
        _remove(write, held, image)
        yield from bench.write(request.key, write)


def _held(image: Bucket, lease_id: str) -> dict[str, list[str]]:
    """The entries of a lease by limit, lapsed or not."""
    held = {}
    for name, entries in image.slots.items():
        mine = [entry for entry in entries if entry_owner(entry) == lease_id]
        if mine:
            held[name] = mine
    return held


def _remove(write: BucketWrite, held: Mapping[str, Sequence[str]], image: Bucket) -> None:
    for name, mine in held.items():
        path = write.name(SLOTS + name)
        if len(mine) > MAX_ENTRIES // len(held):
            seen = image.slots[name]
            write.only_if(f"{path}={write.value(lease_map(dict(seen)))}")
            gone = set(mine)
            rest = {entry: expires_ns for entry, expires_ns in seen.items() if entry not in gone}
            write.set(path, write.value(lease_map(rest)))
            continue
        for entry in mine:
            entry_path = write.entry(SLOTS + name, entry)
            write.only_if(f"attribute_exists({entry_path})")
            write.remove(entry_path)


# --- renewing ---------------------------------------------------------------------------------------------------------

Answers = list[tuple[int, Renewed | Gone | Unknown | Unreached]]
Numbered = tuple[int, Renew]


def renew(bench: Bench, key: BucketKey, requests: Sequence[Numbered]) -> Work[Answers]:
    """Renew leases of one bucket, as many in a write as fit."""
    answers: Answers = []
    waiting = list(requests)
    while waiting:
        group, waiting = _next_group(waiting)
        answers += yield from _renew_group(bench, key, group)
    return answers


def _next_group(requests: Sequence[Numbered]) -> tuple[list[Numbered], list[Numbered]]:
    """Some that go together in one write, and the rest. No lease is in it twice."""
    group: list[Numbered] = []
    rest: list[Numbered] = []
    ids: set[str] = set()
    room = MAX_RENEWED
    for number, request in requests:
        size = sum(charge.amount + 1 for charge in request.slots)
        alone = not group and not rest
        if request.lease_id in ids or rest or not (size <= room or alone):
            rest.append((number, request))
        else:
            group.append((number, request))
            ids.add(request.lease_id)
            room -= size
    return group, rest


def _renew_group(bench: Bench, key: BucketKey, group: Sequence[Numbered]) -> Work[Answers]:
    answers: Answers = []
    image: Bucket | None = None
    if sum(charge.amount for _, request in group for charge in request.slots) > MAX_RENEWED:
        found = yield from bench.read(key)
        if isinstance(found, Unknown | Unreached):
            return [(number, found) for number, _ in group]
        image = found
    for _ in range(TRIES):
        if image is not None:
            group, gone = _still_live(bench, image, group)
            answers += gone
        if not group:
            return answers
        write = _renewal(bench, key, group, image)
        if not write.changes:
            return answers + [(number, Renewed(bench.now_ns)) for number, _ in group]
        answer = yield from bench.write(key, write)
        if isinstance(answer, Unknown | Unreached):
            return answers + [(number, answer) for number, _ in group]
        done, image = answer
        if done:
            return answers + [(number, Renewed(bench.now_ns)) for number, _ in group]
    return answers + [(number, Unreached(CONTENDED)) for number, _ in group]


def _still_live(bench: Bench, image: Bucket, group: Sequence[Numbered]) -> tuple[list[Numbered], Answers]:
    live: list[Numbered] = []
    gone: Answers = []
    for number, request in group:
        _, outcome = core.renew(image, request, bench.now_ns)
        if isinstance(outcome, Gone):
            gone.append((number, outcome))
        else:
            live.append((number, request))
    return live, gone


def _renewal(bench: Bench, key: BucketKey, group: Sequence[Numbered], image: Bucket | None) -> BucketWrite:
    """The write that renews these. With an exact image, what many entries would make too long is pinned on it."""
    if image is not None and sum(charge.amount for _, request in group for charge in request.slots) > MAX_RENEWED:
        ((_, request),) = group
        return pinned_write(key, image, core.renew(image, request, bench.now_ns)[0])
    write = BucketWrite(key)
    for _, request in group:
        for charge in request.slots:
            seen = {} if image is None else image.slots.get(charge.name, {})
            _renew_entries(write, request.lease_id, charge, seen, bench.now_ns)
    return write


def _renew_entries(
    write: BucketWrite, lease_id: str, charge: SlotsCharge, seen: Mapping[str, int], now_ns: int
) -> None:
    expires_ns = now_ns + charge.ttl_ns
    expires = write.number(expires_ns)
    for entry in slot_entries(lease_id, charge.amount):
        path = write.entry(SLOTS + charge.name, entry)
        if seen.get(entry, 0) > expires_ns:
            write.only_if(f"{path}>{expires}")
        else:
            write.only_if(f"{path} BETWEEN {write.number(now_ns + 1)} AND {expires}")
            write.set(path, expires)
    one_more = f"{lease_id}#{charge.amount}"
    path = write.entry(SLOTS + charge.name, one_more)
    if one_more in seen:
        write.only_if(f"{path}<={write.number(now_ns)}")
    else:
        write.only_if(f"attribute_not_exists({path})", exists=False)


# --- tidying ----------------------------------------------------------------------------------------------------------


def reap(bench: Bench, request: Reap) -> Work[Reaped | Unknown | Unreached]:
    """Tidy lapsed slots away that still are as they were seen."""
    due_by_ns = bench.now_ns - bench.max_skew_ns
    due = [slot for slot in dict.fromkeys(request.seen) if slot.expires_ns <= due_by_ns]
    if len({(slot.limit, slot.entry) for slot in due}) < len(due):  # seen twice: one write can't name both
        found = yield from bench.read(request.key)
        if isinstance(found, Unknown | Unreached):
            return found
        due = _still_there(due, found)
    removed: set[SlotEntry] = set()
    tries = 0
    while due and tries < TRIES:
        some = due[:MAX_ENTRIES]
        answer = yield from bench.write(request.key, removal(request.key, some))
        if isinstance(answer, Unknown | Unreached):
            return answer
        done, image = answer
        if done:
            removed.update(some)
            due = due[MAX_ENTRIES:]
            continue
        tries += 1
        due = _still_there(due, image)
    if due and not removed:
        return Unreached(CONTENDED)
    return Reaped(bench.now_ns, tuple(slot for slot in request.seen if slot in removed))


def _still_there(slots: Sequence[SlotEntry], image: Bucket) -> list[SlotEntry]:
    return [slot for slot in slots if image.slots.get(slot.limit, {}).get(slot.entry) == slot.expires_ns]


def removal(key: BucketKey, slots: Sequence[SlotEntry]) -> BucketWrite:
    """A write that removes slots, each only if it is as it was seen."""
    write = BucketWrite(key)
    for slot in slots:
        path = write.entry(SLOTS + slot.limit, slot.entry)
        write.only_if(f"{path}={write.number(slot.expires_ns)}")
        write.remove(path)
    return write
