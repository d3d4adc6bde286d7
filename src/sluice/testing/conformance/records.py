"""Documents, listings, and usage filed by the hour."""

from __future__ import annotations

from sluice.core.bounds import NS_PER_HOUR
from sluice.core.bucket import EMPTY
from sluice.core.documents import (
    MAX_BODY_BYTES,
    MAX_WRITES,
    PAGE_SIZE,
    Delete,
    Document,
    DocumentKey,
    Expect,
    Kind,
    Mismatch,
    Put,
    Stored,
    Version,
    Write,
)
from sluice.core.names import BucketKey
from sluice.core.requests import Delta, Fold, Folded, Part, Peek, Take
from sluice.core.usage import hour_key
from sluice.testing.conformance.bench import KEY, NAMESPACE, Bench, S, certain, check, one, plain, rate, same, slots
from sluice.testing.conformance.takes import OTHER, THIRD


def _key(name: str, kind: Kind = Kind.LIMITS, namespace: str = NAMESPACE) -> DocumentKey:
    return DocumentKey(namespace, kind, name)


def _document(name: str, version: str = "v1", body: str = "{}", **under: str) -> Document:
    return Document(_key(name), body, version, under)


@check()
async def a_document_is_read_as_it_was_written(bench: Bench) -> None:
    """Body, version and what a document is listed under come back character by character."""
    bodies = ["", "{}", 'he said "\\n"\n\t\u0000\u2028', "ключ 🔑 'quoted' %s {} $1 ?", "x" * MAX_BODY_BYTES]
    documents = [
        _document(f"#{n}", f"v-{n}'\"", body, entity="tenant:ü/7", resource="POST /search")
        for n, body in enumerate(bodies)
    ]
    same(await bench.write(*(Put(document) for document in documents)), Stored(), "answer")
    same(await bench.get(*(document.key for document in documents)), documents, "documents")


@check()
async def documents_are_read_in_the_order_asked(bench: Bench) -> None:
    """Each key has its answer in its place: None for what is not there, twice what is asked for twice."""
    first, second = _document("first"), _document("second")
    await bench.write(Put(first), Put(second))
    found = await bench.get(second.key, _key("missing"), first.key, second.key)
    same(found, [second, None, first, second], "documents")
    same(await bench.get(_key("first", Kind.ENTITY), _key("first", namespace="other")), [None, None], "elsewhere")


@check()
async def a_document_is_created_once(bench: Bench) -> None:
    """Of two that must create the same document, the second is told so and changes nothing."""
    first, second = _document("name", "v1", "one"), _document("name", "v2", "two")
    same(await bench.write(Put(first, Expect.ABSENT)), Stored(), "first")
    same(await bench.write(Put(second, Expect.ABSENT)), Mismatch(first.key), "second")
    same(await bench.get(first.key), [first], "document")


@check()
async def a_document_is_replaced_at_the_version_that_was_read(bench: Bench) -> None:
    """A write that names a version lands on that version alone; without one it lands on anything."""
    v1, v2, v3 = (_document("name", f"v{n}", f"body {n}") for n in (1, 2, 3))
    same(await bench.write(Put(v1, Version("v0"))), Mismatch(v1.key), "on nothing")
    await bench.write(Put(v1))
    same(await bench.write(Put(v2, Version("v1"))), Stored(), "on its version")
    same(await bench.write(Put(v3, Version("v1"))), Mismatch(v1.key), "on an old version")
    same(await bench.get(v1.key), [v2], "document")
    same(await bench.write(Put(v3)), Stored(), "on anything")
    same(await bench.get(v1.key), [v3], "document")


@check()
async def a_document_is_removed_on_its_condition(bench: Bench) -> None:
    """A removal has the same conditions as a write; removing what is not there is no error."""
    document = _document("name")
    same(await bench.write(Delete(document.key)), Stored(), "of nothing")
    same(await bench.write(Delete(document.key, Version("v1"))), Mismatch(document.key), "of a version not there")
    await bench.write(Put(document))
    same(await bench.write(Delete(document.key, Version("v2"))), Mismatch(document.key), "of another version")
    same(await bench.get(document.key), [document], "document")
    same(await bench.write(Delete(document.key, Version("v1"))), Stored(), "of its version")
    same(await bench.get(document.key), [None], "document")
    same(await bench.write(Put(document, Expect.ABSENT)), Stored(), "creating it anew")


@check()
async def documents_are_written_all_or_nothing(bench: Bench) -> None:
    """As many documents as may be written together are, or none: one condition that fails undoes the rest."""
    old = [_document(f"old {n}") for n in range(2)]
    await bench.write(*(Put(document) for document in old))
    new = [_document(f"new {n}") for n in range(MAX_WRITES - 3)]
    writes: list[Write] = [
        Delete(old[0].key),
        *(Put(document, Expect.ABSENT) for document in new),
        Put(_document("old 1", "v2")),
    ]
    same(len(writes) + 1, MAX_WRITES, "writes")
    same(await bench.write(*writes, Put(_document("missing"), Version("v1"))), Mismatch(_key("missing")), "answer")
    same(await bench.get(old[0].key, old[1].key, new[0].key), [old[0], old[1], None], "documents")
    same(await bench.listed(Kind.LIMITS), old, "documents listed")
    same(await bench.write(*writes, Put(_document("missing"), Expect.ABSENT)), Stored(), "answer when all hold")
    same(len(await bench.listed(Kind.LIMITS)), MAX_WRITES - 1, "documents listed")


@check()
async def the_document_that_did_not_match_is_named(bench: Bench) -> None:
    """Where several conditions fail, the first of them is named, whatever its kind and namespace."""
    await bench.write(Put(_document("here")))
    entity = Document(_key("acme", Kind.ENTITY, "elsewhere"), "{}", "v1")
    writes = [Put(_document("fine"), Expect.ABSENT), Put(entity, Version("v0")), Put(_document("here"), Expect.ABSENT)]
    same(await bench.write(*writes), Mismatch(entity.key), "answer")


@check()
async def documents_are_listed_in_order_page_by_page(bench: Bench) -> None:
    """A listing gives each document once, ordered by id, in pages of a known size, and says where it ends."""
    names = [f"{n:04d}" for n in range(2 * PAGE_SIZE + 30)]
    for start in range(0, len(names), MAX_WRITES):
        await bench.write(*(Put(_document(name)) for name in reversed(names[start : start + MAX_WRITES])))
    same([document.key.id for document in await bench.listed(Kind.LIMITS)], names, "ids")
    page = certain(await bench.store.list(NAMESPACE, Kind.LIMITS))
    same((len(page.documents), page.after), (PAGE_SIZE, names[PAGE_SIZE - 1]), "size of a page, where to go on")
    page = certain(await bench.store.list(NAMESPACE, Kind.LIMITS, after=names[29]))
    page = certain(await bench.store.list(NAMESPACE, Kind.LIMITS, after=page.after))
    same((len(page.documents), page.after), (PAGE_SIZE, None), "size of a last page that is full, where to go on")
    page = certain(await bench.store.list(NAMESPACE, Kind.LIMITS, after="9999"))
    same((page.documents, page.after), ((), None), "page past the end")


@check()
async def documents_are_listed_in_the_order_of_their_characters(bench: Bench) -> None:
    """Ids are ordered by code point, the same on every engine: upper case before lower, accents after."""
    names = ["#", "#a", "#b", "A", "B", "a", "a#", "a#b", "aa", "b", "~", "é", "ü", "中", "🔑"]
    await bench.write(*(Put(_document(name)) for name in reversed(names)))
    same([document.key.id for document in await bench.listed(Kind.LIMITS)], names, "ids")


@check()
async def documents_are_listed_by_prefix(bench: Bench) -> None:
    """A prefix is text, no pattern: characters that mean something to an engine mean themselves."""
    names = ["a%c", "a%d", "a_c", "abc", "a\\c", "A%c", "a*c", "a", "ü#1", "ü#2", "u#1", "[a]"]
    await bench.write(*(Put(_document(name)) for name in names))
    for prefix in ("a%", "a_", "a", "A", "a\\", "a*", "ü#", "[", "nothing", ""):
        wanted = sorted(name for name in names if name.startswith(prefix))
        same(
            [d.key.id for d in await bench.listed(Kind.LIMITS, prefix=prefix)],
            wanted,
            f"ids that start with {prefix!r}",
        )


@check()
async def documents_are_listed_under_what_they_name(bench: Bench) -> None:
    """A document is listed under the names it was last written with, together with prefix and pages."""
    names = [f"{n:03d}" for n in range(PAGE_SIZE + 25)]
    for start in range(0, len(names), MAX_WRITES):
        part = names[start : start + MAX_WRITES]
        await bench.write(*(Put(_document(n, entity="acme", resource=f"r{int(n) % 2}")) for n in part))
    await bench.write(
        Put(_document("other", entity="Acme")), Put(_document("none")), Put(_document("x", resource="acme"))
    )
    found = [document.key.id for document in await bench.listed(Kind.LIMITS, under=("entity", "acme"))]
    same(found, names, "ids under an entity, over several pages")
    found = [d.key.id for d in await bench.listed(Kind.LIMITS, under=("resource", "r1"), prefix="00")]
    same(found, ["001", "003", "005", "007", "009"], "ids under a resource with a prefix")
    await bench.write(Put(_document("001", resource="r2")), Delete(_key("003")))
    found = [d.key.id for d in await bench.listed(Kind.LIMITS, under=("resource", "r1"), prefix="00")]
    same(found, ["005", "007", "009"], "ids once some were moved or removed")
    same(
        [d.key.id for d in await bench.listed(Kind.LIMITS, under=("resource", "r2"))], ["001"], "ids under the new name"
    )


@check(durable=True)
async def what_was_written_outlives_the_store(bench: Bench) -> None:
    """Whoever opens the same data later reads the same documents."""
    documents = [_document("a", entity="acme"), _document("ü", "v2", "🔑")]
    await bench.write(*(Put(document) for document in documents))
    await bench.reopen()
    same(await bench.get(*(document.key for document in documents)), documents, "documents")
    same(await bench.listed(Kind.LIMITS, under=("entity", "acme")), documents[:1], "documents listed")


# --- buckets ----------------------------------------------------------------------------------------------------------


@check()
async def looking_makes_no_bucket(bench: Bench) -> None:
    """A peek at a bucket that was never used shows it empty and leaves no trace."""
    same([one([answer]).image for answer in await bench.store.peek([Peek(KEY), Peek(OTHER)])], [EMPTY, EMPTY], "images")
    same(await bench.bucket_texts(), [], "buckets")


@check()
async def buckets_are_listed_page_by_page(bench: Bench) -> None:
    """Buckets are listed by their keys' text, each once and in order, all of them or those under a name."""
    keys = [BucketKey(NAMESPACE, f"key-{n:03d}", ("gpt-4", "POST /search")[n % 2]) for n in range(PAGE_SIZE + 20)]
    keys += [BucketKey(NAMESPACE, "a#b", "gpt-4"), BucketKey(NAMESPACE, "*", "gpt-4", shard=1)]
    await bench.store.take([Take("lease", (Part(key, (rate(1),)),)) for key in keys])
    await bench.granted("lease", rate(1), at=BucketKey("elsewhere", "key-000", "gpt-4"))
    same(await bench.bucket_texts(), sorted(key.text for key in keys), "buckets")
    same(
        [BucketKey.parse(NAMESPACE, text) for text in await bench.bucket_texts()],
        sorted(keys, key=lambda k: k.text),
        "keys",
    )
    wanted = sorted(key.text for key in keys if key.resource == "gpt-4")
    same(await bench.bucket_texts(under=("resource", "gpt-4")), wanted, "buckets of a resource")
    same(await bench.bucket_texts(under=("entity", "a#b")), ["a#b#gpt-4#0"], "buckets of an entity")
    same(await bench.bucket_texts(under=("entity", "a")), [], "buckets of another entity")


@check()
async def a_forgotten_bucket_is_as_new(bench: Bench) -> None:
    """Forgetting removes buckets whatever is in them, and no other ones."""
    for key in (KEY, OTHER, THIRD):
        await bench.granted("lease", rate(10), slots(3), at=key)
    certain(await bench.store.forget([KEY, THIRD, BucketKey(NAMESPACE, "never", "seen")]))
    same(await bench.bucket_texts(), [OTHER.text], "buckets left")
    same((await bench.granted("lease", rate(10), slots(3))).repeated, False, "repeated in a forgotten bucket")
    await bench.denied("next", rate(1), at=OTHER)


# --- usage ------------------------------------------------------------------------------------------------------------


def _to_the_hour(bench: Bench) -> int:
    """Move to the last tick before the next hour; the number of this one."""
    hour, into_ns = divmod(bench.clock.now_ns(), NS_PER_HOUR)
    bench.advance(NS_PER_HOUR - into_ns - 1)
    return hour


@check(sets_time=True)
async def past_hours_are_filed(bench: Bench) -> None:
    """Folding moves the usage of past hours into documents, one for each limit and hour, and leaves this hour alone."""
    hour = _to_the_hour(bench)
    await bench.granted("lease", rate(4), slots(2, ttl_ns=NS_PER_HOUR), at=OTHER)
    bench.advance(1)
    await bench.granted("next", rate(3), at=OTHER)
    before = await bench.image(OTHER)
    same(before.usage, {("rpm", hour): 4, ("concurrent", hour): 2, ("rpm", hour + 1): 3}, "usage in the bucket")
    same(one(await bench.store.fold([Fold(OTHER)])), Folded(bench.clock.now_ns(), 2), "answer")
    after = await bench.image(OTHER)
    same(after.usage, {("rpm", hour + 1): 3}, "usage left in the bucket")
    same((after.rates, plain(after).slots), (before.rates, plain(before).slots), "the rest of the bucket")
    filed = await bench.get(hour_key(OTHER, ("rpm", hour)), hour_key(OTHER, ("concurrent", hour)))
    same([document and document.body for document in filed], ["4", "2"], "usage filed")
    under = [document and dict(document.under) for document in filed]
    same(under, [{"entity": "acme", "resource": "openai"}] * 2, "what it is filed under")


@check(sets_time=True)
async def an_hour_is_filed_once(bench: Bench) -> None:
    """Folding again files nothing twice, in one batch or later; a bucket without past hours has none."""
    hour = _to_the_hour(bench)
    await bench.granted("lease", rate(4))
    same(one(await bench.store.fold([Fold(KEY)])).hours, 0, "hours filed before the hour is over")
    bench.advance(1)
    answers = await bench.store.fold([Fold(KEY), Fold(KEY), Fold(OTHER)])
    same([one([answer]).hours for answer in answers], [1, 0, 0], "hours filed")
    same(one(await bench.store.fold([Fold(KEY)])).hours, 0, "hours filed later")
    same([d.body for d in await bench.listed(Kind.USAGE)], ["4"], "usage filed")
    same([d.key for d in await bench.listed(Kind.USAGE)], [hour_key(KEY, ("rpm", hour))], "where it is filed")


@check(sets_time=True)
async def hours_add_up(bench: Bench) -> None:
    """What comes to an hour that was filed before is added, below 0 where more was given back than taken."""
    hour = _to_the_hour(bench)
    await bench.granted("lease", rate(4))
    bench.advance(1)
    await bench.store.fold([Fold(KEY)])
    bench.step(-S)
    await bench.settle(Delta("rpm", -9, 60 * S), Delta("tpm", -2, 60 * S))
    bench.step(S)
    same(one(await bench.store.fold([Fold(KEY)])).hours, 2, "hours filed")
    filed = await bench.get(hour_key(KEY, ("rpm", hour)), hour_key(KEY, ("tpm", hour)))
    same([document and document.body for document in filed], ["-5", "-2"], "usage filed")


@check(sets_time=True)
async def filed_hours_are_listed_by_time(bench: Bench) -> None:
    """A limit's hours are found by a prefix, in the order of time, for one entity or resource."""
    first = _to_the_hour(bench) + 1
    bench.advance(1)
    for number in range(3):
        await bench.granted(f"lease {number}", rate(number + 1), at=OTHER)
        await bench.granted(f"lease {number}", rate(1), at=THIRD)
        bench.advance(NS_PER_HOUR)
    await bench.store.fold([Fold(OTHER), Fold(THIRD)])
    found = await bench.listed(Kind.USAGE, prefix="acme#openai#rpm#")
    same([document.body for document in found], ["1", "2", "3"], "amounts")
    same([document.key for document in found], [hour_key(OTHER, ("rpm", first + n)) for n in range(3)], "keys")
    same(len(await bench.listed(Kind.USAGE, under=("entity", "acme"))), 6, "hours of the entity")
    same(len(await bench.listed(Kind.USAGE, under=("resource", "gpt-4"))), 3, "hours of the resource")
