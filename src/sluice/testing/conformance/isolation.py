"""Names and namespaces: whatever they are, nothing crosses from one to another."""

from __future__ import annotations

from sluice.core.bounds import MAX_NAME_BYTES, MAX_NAME_CHARS
from sluice.core.documents import Delete, Document, DocumentKey, Kind, Put
from sluice.core.names import BucketKey
from sluice.core.requests import Delta, Granted, Part, Pause, Released, Renewed, Take
from sluice.testing.conformance.bench import KEY, NAMESPACE, Bench, S, a, certain, check, plain, rate, same, slots

NAMES = (
    "acme", "Acme", "ACME", "acme ", " acme", "acmé", "acm\u0435", "tenant:ü/7", "POST /search", "a/b", "a\\b", "a.b",
    "a:b", "a|b",
    "a,b", "a=b", "a;b", "a%b", "a_b", "a?b", "$1", "{}", "[]", "'", '"', "''", "`", "--", "/*", "null",
    "NULL", "0", "-1", "1e3", "true", "🔑", "👩💻", "中文", "ß", "SS", "ﬁ", "١", "~", "!", "(x)", "<a&b>",
    "x" * MAX_NAME_CHARS, "🔑" * (MAX_NAME_BYTES // 4),
)  # fmt: skip
"""Names that engines are known to fold, trim, quote or split."""


@check()
async def no_two_resources_collide(bench: Bench) -> None:
    """Every printable name is a resource of its own, whatever its case, spaces, accents or punctuation."""
    keys = [BucketKey(NAMESPACE, "*", name) for name in NAMES]
    await _all_separate(bench, keys)


@check()
async def no_two_entities_collide(bench: Bench) -> None:
    """Every printable name is an entity of its own, also one that looks like a key."""
    names = (*NAMES, "*", "#", "a#b", "a#openai#0", "#openai#0", "a#b#openai", "*#openai#0")
    await _all_separate(bench, [BucketKey(NAMESPACE, name, "openai") for name in names])


async def _all_separate(bench: Bench, keys: list[BucketKey]) -> None:
    for number, key in enumerate(keys):
        await bench.granted("lease", rate(number % 10 + 1), slots(1), at=key)
    for number, key in enumerate(keys):
        image = await bench.image(key)
        same(sum(image.usage.values()), number % 10 + 2, f"usage of {key.text!r}")
        same(plain(image).slots.keys(), {"concurrent"}, f"slots of {key.text!r}")
        same(await bench.bucket_texts(under=("entity", key.entity)) != [], True, f"{key.text!r} is listed")
    same(await bench.bucket_texts(), sorted(key.text for key in keys), "buckets")
    parsed = {BucketKey.parse(NAMESPACE, text) for text in await bench.bucket_texts()}
    same(parsed, set(keys), "keys read from the listing")


@check()
async def no_two_limits_collide(bench: Bench) -> None:
    """Every printable name is a limit of its own, for rates and for slots."""
    taken = NAMES[:32]
    answer = await bench.granted("rates", *(rate(number % 10 + 1, name) for number, name in enumerate(taken)))
    await bench.granted("slots", *(slots(1, name) for name in taken))
    image = plain(await bench.image())
    same((set(image.rates), set(image.slots)), (set(taken), set(taken)), "limits in the bucket")
    for number, name in enumerate(taken):
        spent_ns = image.rates[name].full_at_ns - answer.now_ns
        same(spent_ns, (number % 10 + 1) * 60 * S, f"spent of {name!r}")


@check()
async def no_two_leases_collide(bench: Bench) -> None:
    """Every printable name is a lease id of its own: its slots are renewed and released with no other's."""
    many = [slots(1, capacity=len(NAMES)) for _ in NAMES]
    for name, charge in zip(NAMES, many, strict=True):
        same((await bench.granted(name, charge)).repeated, False, f"repeated for {name!r}")
    same(set((await bench.image()).slots["concurrent"]), set(NAMES), "entries")
    for number, (name, charge) in enumerate(zip(NAMES, many, strict=True)):
        a(Renewed, await bench.renew(name, charge))
        a(Released, await bench.release(name))
        same(set(plain(await bench.image()).slots.get("concurrent", {})), set(NAMES[number + 1 :]), "entries left")


@check()
async def no_two_documents_collide(bench: Bench) -> None:
    """Every printable name is a document of its own, in each kind."""
    kinds = (Kind.LIMITS, Kind.ENTITY)
    documents = [
        Document(DocumentKey(NAMESPACE, kind, name), f"{kind} {name}", name) for kind in kinds for name in NAMES
    ]
    for document in documents:
        await bench.write(Put(document))
    for start in range(0, len(documents), 20):
        some = documents[start : start + 20]
        same(await bench.get(*(document.key for document in some)), some, "documents")
    same([d.key.id for d in await bench.listed(Kind.ENTITY)], sorted(NAMES), "ids")


@check()
async def nothing_crosses_namespaces(bench: Bench) -> None:
    """Two namespaces with the same names share no token, slot, pause, document or listing."""
    there = BucketKey("namespace-b", KEY.entity, KEY.resource)
    await bench.granted("lease", rate(10), slots(3))
    await bench.store.pause([Pause(KEY, 10**12)])
    same((await bench.granted("lease", rate(10), slots(3), at=there)).repeated, False, "repeated in another namespace")
    here = Document(DocumentKey(NAMESPACE, Kind.LIMITS, "#"), "here", "v1")
    other = Document(DocumentKey("namespace-b", Kind.LIMITS, "#"), "there", "v1")
    await bench.write(Put(here), Put(other))
    same(await bench.get(here.key, other.key), [here, other], "documents")
    same(await bench.listed(Kind.LIMITS, "namespace-b"), [other], "documents listed")
    same(await bench.bucket_texts("namespace-b"), [there.text], "buckets listed")
    await bench.write(Delete(other.key))
    certain(await bench.store.forget([there]))
    same(await bench.get(here.key), [here], "document once the other was removed")
    await bench.denied("next", slots(1))


@check()
async def shards_are_buckets_of_their_own(bench: Bench) -> None:
    """The shards of a bucket are counted apart."""
    await bench.granted("lease", rate(10))
    await bench.granted("lease", rate(10), at=BucketKey(NAMESPACE, "*", "openai", shard=1))
    await bench.granted("lease", rate(10), at=BucketKey(NAMESPACE, "*", "openai", shard=10))


@check()
async def one_limit_never_changes_another(bench: Bench) -> None:
    """Takes and corrections of one limit leave the others of its bucket as they were."""
    await bench.granted("lease", rate(1), rate(2, "tpm"), slots(1), slots(1, "gpu"))
    before = plain(await bench.image())
    await bench.granted("other", rate(3, "tpm"), slots(1, "gpu"))
    await bench.settle(Delta("tpm", -1, 60 * S))
    a(Released, await bench.release("other"))
    after = plain(await bench.image())
    same((after.rates["rpm"], after.slots), (before.rates["rpm"], before.slots), "the limits that were not named")


@check()
async def a_large_batch_keeps_its_order(bench: Bench) -> None:
    """A batch over many buckets is answered in the order asked, each with the image of its own bucket."""
    keys = [BucketKey(NAMESPACE, f"{n * 7919 % 100:02d}", "openai") for n in range(100)]
    await bench.store.take([Take("lease", (Part(key, (rate(int(key.entity) % 10 + 1),)),)) for key in keys])
    answers = await bench.store.take([Take("lease", (Part(key, (rate(1, "tpm", 100),)),)) for key in keys])
    for key, answer in zip(keys, answers, strict=True):
        used = sum(n for (name, _), n in a(Granted, answer).images[0].usage.items() if name == "rpm")
        same(used, int(key.entity) % 10 + 1, f"usage in the image of {key.text}")
