"""Bad input at every public parameter: a clear error of Sluice's own, before anything is sent or changed."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from sluice import AsyncSluice, ConfigError, Limit, Need, NeverAdmissible, Rate, Sluice, SluiceError
from tests.facade.kit import Api

NO_NAMES: list[Any] = [None, 5, True, b"openai", "", "a\nb", "x" * 129, "e\u0301", "\ud800", 1.5, ["openai"]]
NO_RESOURCES: list[Any] = [*NO_NAMES, "*", "a#b#c", "#rpm", "openai#"]
NO_SECONDS: list[Any] = [-1, -0.001, math.nan, math.inf, -math.inf, "5", None, True, [1], 10**18, 1e300, 1j]
NO_AMOUNTS: list[Any] = [0, -1, 1.0, 1.5, True, None, "1", 10**12 + 1, math.nan, [1]]
NO_SHARES: list[Any] = [-0.1, 1, 1.5, math.nan, math.inf, None, "0.2", True, [0.2], 1j]
NO_CALLABLES: list[Any] = [5, "print", [], object()]
NO_LIMITS: list[Any] = [[], "rpm", [1], Limit("rpm", "1/min"), {"rpm": "1/min"}, [Limit("a", "1/min")] * 2, [None], 7]
NO_KINDS: list[Any] = [None, "OSError", 5, OSError(), [OSError], (OSError, "x"), int]


@pytest.fixture
def openai(api: Api) -> Api:
    api.sluice.set_limits("openai", [Limit("rpm", "60/min"), Limit("concurrent", "4 slots ttl 60s")])
    api.sluice.peek("openai")
    api.store.calls.clear()
    return api


def refused(api: Api, call: Any, *, sent: int = 0) -> None:
    """The call raises an error of Sluice's that is about the input, and says something; nothing reaches the store."""
    with pytest.raises(ConfigError) as error:
        call()
    assert len(str(error.value)) > 20
    assert len(str(error.value)) < 1_000
    assert len(api.store.calls) <= sent


def cases(**values: list[Any]) -> pytest.MarkDecorator:
    listed = [(name, value) for name, several in values.items() for value in several]
    ids = [f"{name}-{number}" for number, (name, _) in enumerate(listed)]
    return pytest.mark.parametrize(("name", "value"), listed, ids=ids)


@cases(
    resource=[*NO_RESOURCES, [], [None], ["openai"], [Need("openai"), "openai"], {"openai": 1}],
    need=[5, "rpm", ["rpm"], {5: 1}, {None: 1}, *({"rpm": amount} for amount in NO_AMOUNTS)],
    entity=NO_NAMES,
    wait=[*NO_SECONDS, 3600.1],
    ttl=[*(value for value in NO_SECONDS if value is not None), 0, 0.0001, 7 * 86400 + 1],
    keep_alive=[None, 0, 1, "yes", []],
    refund_on=NO_KINDS,
    headroom=NO_SHARES,
    lease_id=[value for value in NO_NAMES if value is not None] + ["a#b", "*"],
    limits=NO_LIMITS,
    on_lost=NO_CALLABLES,
)
@pytest.mark.parametrize("method", ["acquire", "try_acquire"])
def test_asking(openai: Api, method: str, name: str, value: Any) -> None:
    options = {"resource": "openai", name: value}
    refused(openai, lambda: getattr(openai.sluice, method)(**options))


@cases(
    resource=NO_RESOURCES,
    need=[5, {"rpm": 0}, {"rpm": True}, {1: 1}],
    entity=NO_NAMES,
    within=[*NO_SECONDS, 86400.1],
    limits=NO_LIMITS,
)
def test_reserving(openai: Api, name: str, value: Any) -> None:
    options = {"resource": "openai#rpm", name: value}
    refused(openai, lambda: openai.sluice.reserve(**options))


@pytest.mark.parametrize("entity", [*NO_NAMES])
@pytest.mark.parametrize("amounts", [{"rpm": 1}, None])
def test_needs_in_a_list(openai: Api, entity: Any, amounts: Any) -> None:
    refused(openai, lambda: openai.sluice.acquire([Need("openai", amounts, entity)]))
    refused(openai, lambda: openai.sluice.acquire([Need(entity, amounts)]))


def test_what_goes_with_one_resource_does_not_go_with_a_list(openai: Api) -> None:
    for options in ({"need": {"rpm": 1}}, {"entity": "acme"}, {"limits": [Limit("rpm", "1/min")]}):
        refused(openai, lambda options=options: openai.sluice.acquire([Need("openai"), Need("gpu")], **options))
    refused(openai, lambda: openai.sluice.acquire([Need("openai", {"rpm": 1}, f"e{n}") for n in range(33)]))
    refused(openai, lambda: openai.sluice.reserve("openai"))
    refused(openai, lambda: openai.sluice.reserve("openai#concurrent"))


@cases(resource=[*NO_RESOURCES, "openai#rpm"], entity=NO_NAMES)
@pytest.mark.parametrize("method", ["peek", "resolve_limits"])
def test_looking(openai: Api, method: str, name: str, value: Any) -> None:
    options = {"resource": "openai", name: value}
    refused(openai, lambda: getattr(openai.sluice, method)(**options))


@cases(resource=[*NO_RESOURCES, "openai#rpm"], seconds=[*NO_SECONDS, 0, 86401], entity=NO_NAMES)
def test_pausing(openai: Api, name: str, value: Any) -> None:
    options = {"resource": "openai", "seconds": 5, name: value}
    refused(openai, lambda: openai.sluice.pause(**options))


@cases(
    resource=[value for value in NO_RESOURCES if value is not None],
    entity=[value for value in NO_NAMES if value is not None],
)
def test_listing_leases(openai: Api, name: str, value: Any) -> None:
    options = {name: value}
    refused(openai, lambda: openai.sluice.leases(**options))


@cases(
    resource=[value for value in [*NO_RESOURCES, "openai#rpm"] if value is not None],
    limits=[*NO_LIMITS, None, [Limit(f"l{n}", "1/min") for n in range(33)]],
    entity=[value for value in NO_NAMES if value is not None],
    expect=[5, b"x", True, ["x"]],
)
def test_setting_limits(openai: Api, name: str, value: Any) -> None:
    options = {"resource": "openai", "limits": [Limit("rpm", "1/min")], name: value}
    refused(openai, lambda: openai.sluice.set_limits(**options))


@cases(
    resource=[value for value in [*NO_RESOURCES, "openai#rpm"] if value is not None],
    entity=[value for value in NO_NAMES if value is not None],
)
@pytest.mark.parametrize("method", ["get_limits", "delete_limits"])
def test_reading_and_deleting_limits(openai: Api, method: str, name: str, value: Any) -> None:
    options = {"resource": "openai", name: value}
    refused(openai, lambda: getattr(openai.sluice, method)(**options))


@cases(expect=[5, b"x", True, ["x"]])
def test_deleting_limits(openai: Api, name: str, value: Any) -> None:
    refused(openai, lambda: openai.sluice.delete_limits("openai", **{name: value}))


@cases(
    entity_id=[*NO_NAMES, "*"],
    parent=[value for value in NO_NAMES if value is not None],
    cascade=[None, 1, 0, "yes"],
    metadata=[5, "text", ["list"], {"a": object()}, {"a": math.nan}, {"a": "x" * 5000}, {1: {2, 3}}, {"a": "\ud800"}],
)
def test_creating_entities(openai: Api, name: str, value: Any) -> None:
    options = {"entity_id": "acme", name: value}
    refused(openai, lambda: openai.sluice.create_entity(**options), sent=3 if name == "metadata" else 0)


@pytest.mark.parametrize("value", [*NO_NAMES, "*"])
def test_entities_by_name(openai: Api, value: Any) -> None:
    openai.sluice.create_entity("acme")
    openai.store.calls.clear()
    refused(openai, lambda: openai.sluice.get_entity(value))
    refused(openai, lambda: openai.sluice.delete_entity(value))
    refused(openai, lambda: openai.sluice.move_entity(value, None))
    if value is not None and value != "*":
        refused(openai, lambda: openai.sluice.move_entity("acme", value), sent=1)
        openai.store.calls.clear()
        refused(openai, lambda: openai.sluice.entities(value))


@pytest.mark.parametrize("value", NO_NAMES)
def test_namespaces_by_name(openai: Api, value: Any) -> None:
    refused(openai, lambda: openai.sluice.namespace(value))
    refused(openai, lambda: openai.sluice.purge_namespace(value))


@cases(
    url=[5, b"memory://", "", "nonsense", "mysql://x", "memory://x", "memory:", "http://[::1", True, ["memory://"]],
    namespace=NO_NAMES,
    timeout=[*NO_SECONDS, 0, 0.0001, 61],
    on_unavailable=[None, "maybe", True, 5, ["open"], {}],
    config_ttl=[*NO_SECONDS, 3601],
    observer=NO_CALLABLES,
    clock=[5, "now", object()],
)
@pytest.mark.parametrize("kind", [Sluice, AsyncSluice])
def test_making_a_client(kind: Any, name: str, value: Any) -> None:
    options = {"url": "memory://", name: value}
    with pytest.raises(ConfigError) as error:
        kind(**options)
    assert len(str(error.value)) > 20


@pytest.mark.parametrize("amount", [*NO_AMOUNTS, -5])
def test_what_a_lease_is_told(openai: Api, amount: Any) -> None:
    with openai.sluice.acquire("openai") as lease:
        openai.store.calls.clear()
        refused(openai, lambda: lease.more(rpm=amount))
        if amount not in (0, -1, -5, 10**12 + 1) or isinstance(amount, bool | float):
            refused(openai, lambda: lease.adjust(rpm=amount))
        if amount not in (0, 10**12 + 1) or isinstance(amount, bool | float):
            refused(openai, lambda: lease.settle(rpm=amount))
        for nonsense in ({5: 1}, {None: 1}, 5, "rpm", ["rpm"]):
            for verb in (lease.more, lease.adjust, lease.settle):
                refused(openai, lambda verb=verb, nonsense=nonsense: verb(nonsense))
        refused(openai, lambda: lease.more({"rpm": 1, "openai#rpm": 1}))


@pytest.mark.parametrize(
    "text",
    ["", "x", "1", "0/min", "-1/min", "1.5/min", "1/0s", "1 per 0s", "1/min burst 0", "5 slots ttl 0s", "0 slots"],
)
def test_limit_texts(text: str) -> None:
    with pytest.raises(ConfigError):
        Limit("rpm", text)


@pytest.mark.parametrize("name", [*NO_NAMES, "*", "a#b"])
def test_limit_names(name: Any) -> None:
    with pytest.raises(ConfigError):
        Limit(name, "1/min")


@pytest.mark.parametrize("cost", [-1, 1.5, True, None, "1", 10**12 + 1])
def test_limit_costs(cost: Any) -> None:
    with pytest.raises(SluiceError):
        Limit("rpm", "1/min", cost=cost)


@pytest.mark.parametrize("rule", [None, 5, b"1/min", ["1/min"], 1.5, True])
def test_limit_rules(rule: Any) -> None:
    with pytest.raises(ConfigError):
        Limit("rpm", rule)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, None, "1", 10**12 + 1])
def test_rates_made_of_numbers(number: Any) -> None:
    for options in ({"capacity": number}, {"refill": number}, {"period_ns": number}):
        if number != 10**12 + 1 or "period_ns" not in options:
            with pytest.raises(ConfigError):
                Rate(**({"capacity": 10, "refill": 10, "period_ns": 10**9} | options))


def test_more_than_a_limit_holds_is_never_admissible(openai: Api) -> None:
    for options in ({"need": {"rpm": 61}}, {"need": {"concurrent": 5}}, {"need": {"rpm": 60}, "headroom": 0.1}):
        with pytest.raises(NeverAdmissible):
            openai.sluice.acquire("openai", **options)
    assert openai.store.calls == []


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_belongs_to_a_process_is_not_sent_to_another(send: Callable[[Any], object]) -> None:
    sluice = Sluice("memory://")
    for client in (sluice, AsyncSluice("memory://")):
        with pytest.raises(TypeError, match=r"Sluice\('memory://'.*can't be pickled.*make one there"):
            send(client)
    sluice.set_limits("openai", [Limit("rpm", "60/min")])
    with sluice.acquire("openai") as lease, pytest.raises(TypeError, match=r"can't be pickled.*pass its id"):
        send(lease)
