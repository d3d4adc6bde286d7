"""The fixtures as a user's tests see them: each of these runs pytest on a small test file of its own."""

import doctest
import textwrap

import pytest

from sluice.testing import fixtures, losing, never_over

pytest_plugins = ["pytester"]

NAMES = {"sluice_clock", "sluice_client", "sluice_async_client", "sluice_never_over", "sluice_lose"}


@pytest.fixture(autouse=True)
def _named_to_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each run starts faster, and needs none of them
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    pytester.makeconftest('pytest_plugins = ["sluice.testing.fixtures"]')


def run(pytester: pytest.Pytester, code: str) -> pytest.RunResult:
    pytester.makepyfile(f"import pytest\nfrom sluice import AsyncSluice, Limit, Sluice\n{textwrap.dedent(code)}")
    return pytester.runpytest_subprocess("-p", "no:cacheprovider")


def test_the_examples_of_the_fixtures_run(pytester: pytest.Pytester) -> None:
    assert fixtures.__doc__ is not None
    example = fixtures.__doc__[fixtures.__doc__.index("    import asyncio") :].split("\nA fixture of your own")[0]
    pytester.makepyfile(textwrap.dedent(example))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=example.count("def test_"))
    assert example.count("def test_") == 4


@pytest.mark.parametrize("module", [never_over, losing])
def test_the_examples_beside_them_run(module: object) -> None:
    assert doctest.testmod(module, raise_on_error=True).attempted > 3  # type: ignore[arg-type]


def test_all_names_begin_with_the_librarys_so_that_none_collides(pytester: pytest.Pytester) -> None:
    told = pytester.runpytest_subprocess("--fixtures", "-p", "no:cacheprovider").stdout.lines
    at = next(n for n, line in enumerate(told) if "fixtures defined from sluice.testing.fixtures" in line)
    ends = next((n for n, line in enumerate(told) if n > at and line.startswith("---")), len(told))
    found = {line.split()[0] for line in told[at + 1 : ends] if line.startswith("sluice_")}
    listed = [line for line in told[at + 1 : ends] if line and not line.startswith((" ", "="))]
    assert found == NAMES
    assert all(line.startswith("sluice_") for line in listed), listed


def test_each_test_has_an_empty_store_and_a_clock_of_its_own(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        @pytest.mark.parametrize("time", [1, 2])
        def test_it(sluice_client, sluice_clock, time):
            assert sluice_client.resources() == []
            assert sluice_clock.now_ns() == 1_700_000_000 * 10**9
            sluice_client.set_limits("openai", [Limit("rpm", "1/min")])
            sluice_client.acquire("openai")
            sluice_clock.advance(5)
        """,
    )
    result.assert_outcomes(passed=2)


def test_waiting_takes_no_time_and_moves_the_clock(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import asyncio, time

        def test_blocking(sluice_client, sluice_clock):
            sluice_client.set_limits("openai", [Limit("rpm", "1/hour")])
            began, started = time.monotonic(), sluice_clock.now_ns()
            for _ in range(100):
                sluice_client.acquire("openai", wait=3600)
            assert sluice_clock.now_ns() - started == 99 * 3600 * 10**9
            assert time.monotonic() - began < 60

        async def take(sluice, n):
            async with sluice:
                for _ in range(n):
                    await sluice.acquire("openai", wait=3600)

        def test_asyncio(sluice_client, sluice_async_client, sluice_clock):
            sluice_client.set_limits("openai", [Limit("rpm", "1/hour")])
            started = sluice_clock.now_ns()
            asyncio.run(take(sluice_async_client, 20))
            assert sluice_clock.now_ns() - started == 19 * 3600 * 10**9
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_test_whose_grants_went_over_fails_with_the_limit_and_by_how_much(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        from dataclasses import replace

        class Greedy:
            def __init__(self, store):
                self.store = store

            def __getattr__(self, name):
                return getattr(self.store, name)

            async def take(self, requests):
                return await self.store.take([
                    replace(request, parts=tuple(
                        replace(part, charges=tuple(
                            replace(charge, capacity=charge.capacity + 2) for charge in part.charges))
                        for part in request.parts))
                    for request in requests])

        def test_it(sluice_never_over, sluice_clock):
            sluice = Sluice("memory://", clock=sluice_clock)
            opener = sluice._opener
            sluice._opener = lambda *how: Greedy(opener(*how))
            sluice_never_over(sluice)
            sluice.set_limits("openai", [Limit("rpm", "3/min"), Limit("calls", "2 slots ttl 60s", cost=0)])
            for _ in range(9):
                sluice.try_acquire("openai", entity="acme")
            leases = [sluice.try_acquire("openai#calls") for _ in range(3)]
            for lease in leases:
                lease.release()
        """,
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: more was granted than the limits allow:*",
            "*openai#rpm of entity 'acme': 5 granted from 1700000000.000000000 to 1700000000.000000000, 2 more than*",
            "*openai#calls: 3 slots held at 1700000000.000000000, 2 allowed*",
        ]
    )


def test_a_lease_that_is_lost_is_told_of_and_never_renewed(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        from sluice import LeaseLost

        def test_it(sluice_client, sluice_clock, sluice_lose):
            sluice_client.set_limits("printer", [Limit("jobs", "1 slots ttl 30s")])
            told = []
            with sluice_client.acquire("printer", on_lost=lambda: told.append(1)) as lease:
                sluice_clock.advance(100)
                assert not lease.lost
                sluice_lose(lease)
                assert (lease.lost, told) == (True, [1])
                with pytest.raises(LeaseLost):
                    lease.renew()
                with sluice_client.acquire("printer") as other:
                    sluice_clock.advance(100)
                    assert (lease.lost, other.lost) == (True, False)
            with pytest.raises(Exception, match="has ended"):
                sluice_lose(lease)

        async def hold(sluice, lose, advance):
            async with sluice, sluice.acquire("printer") as lease:
                await advance(100)
                before = lease.lost
                lose(lease)
                return before, lease.lost

        def test_asyncio(sluice_client, sluice_async_client, sluice_clock, sluice_lose):
            import asyncio
            sluice_client.set_limits("printer", [Limit("jobs", "1 slots ttl 30s")])
            assert asyncio.run(hold(sluice_async_client, sluice_lose, sluice_clock.aadvance)) == (False, True)

        def test_nothing_to_lose(sluice_client, sluice_lose):
            sluice_client.set_limits("openai", [Limit("rpm", "1/min")])
            with sluice_client.acquire("openai") as lease, pytest.raises(ValueError, match="holds no slots"):
                sluice_lose(lease)
        """,
    )
    result.assert_outcomes(passed=3)
