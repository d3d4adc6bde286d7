"""What a call costs the store: reads before the first take, writes per lease."""

from sluice import Limit, Need
from tests.facade.kit import Api, opened


def test_at_most_three_reads_come_before_the_first_take_and_none_before_the_next(api: Api) -> None:
    api.rival.set_limits("gpt", [Limit("rpm", "60/min")])
    names = [f"e{number}" for number in range(9)]
    for parent, name in zip([None, *names], names, strict=False):
        api.rival.create_entity(name, parent, cascade=True)
    assert api.store.calls == []
    api.sluice.acquire("gpt", entity=names[-1])
    assert api.store.names() == ["get", "get", "get", "take"]
    api.store.calls.clear()
    api.sluice.acquire("gpt", entity=names[-1])
    assert api.store.names() == ["take"]


def test_several_needs_are_read_as_one(api: Api) -> None:
    for resource in ("gpt", "search", "mail"):
        api.rival.set_limits(resource, [Limit("rpm", "60/min")])
    api.rival.create_entity("acme", "*", cascade=True)
    api.rival.create_entity("globex", "acme", cascade=True)
    api.sluice.acquire([Need("gpt", None, "acme"), Need("search"), Need("mail", None, "globex")])
    assert api.store.names() == ["get", "get", "get", "take"]


def test_making_a_client_does_nothing(api: Api) -> None:
    api.client()
    assert api.store.calls == []


def test_a_lease_of_slots_costs_two_writes_with_settling_and_releasing_in_one(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("tpm", "1000/min", cost=0), Limit("concurrent", "4 slots ttl 60s")])
    api.sluice.peek("openai")
    api.store.calls.clear()
    with api.sluice.acquire("openai", {"tpm": 100}) as lease:
        lease.settle(tpm=60)
        lease.settle(tpm=70)
    assert api.store.names() == ["take", "release"]
    assert api.free("openai", "tpm") == 930


def test_a_lease_of_rates_costs_a_second_write_only_if_it_is_settled(api: Api) -> None:
    api.sluice.set_limits("openai", [Limit("tpm", "1000/min")])
    api.sluice.peek("openai")
    api.store.calls.clear()
    with api.sluice.acquire("openai", {"tpm": 100}):
        pass
    with api.sluice.acquire("openai", {"tpm": 100}) as lease:
        lease.settle(tpm=100)
    assert api.store.names() == ["take", "take"]
    with api.sluice.acquire("openai", {"tpm": 100}) as lease:
        lease.settle(tpm=101)
    assert api.store.names() == ["take", "take", "take", "settle"]


def test_a_denial_costs_one_write_and_nothing_is_undone() -> None:
    for kind in ("blocking", "asyncio"):
        with opened(kind) as api:
            api.sluice.set_limits("openai", [Limit("rpm", "1/min"), Limit("concurrent", "4 slots ttl 60s")])
            with api.sluice.acquire("openai"):
                api.store.calls.clear()
                assert not api.sluice.try_acquire("openai")
                assert api.store.names() == ["take"]


def test_two_buckets_of_a_joint_store_are_one_write(api: Api) -> None:
    api.sluice.set_limits("gpt", [Limit("rpm", "60/min")])
    api.sluice.create_entity("acme", "*", cascade=True)
    api.sluice.acquire("gpt", entity="acme")
    assert api.store.names().count("take") == 1


def test_two_buckets_of_another_store_are_asked_one_after_another_slots_first(apart: Api) -> None:
    apart.sluice.set_limits("gpt", [Limit("rpm", "60/min"), Limit("concurrent", "4 slots ttl 60s")], entity="acme")
    apart.sluice.set_limits("gpt", [Limit("rpm", "60/min")])
    apart.sluice.create_entity("acme", "*", cascade=True)
    with apart.sluice.acquire("gpt", entity="acme"):
        takes = apart.store.requests("take")
    assert [[part.key.entity for part in take.parts] for take in takes] == [["acme"], ["*"]]
