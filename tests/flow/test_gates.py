"""A gate of the blocking wires: opened, timed out, or interrupted by a signal at any moment."""

import gc
import random
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Iterator

import pytest

from sluice.core.bounds import NS_PER_MS, NS_PER_SECOND
from sluice.wires.blocking.scope import BlockingScope
from sluice.wires.clock import SystemClock

CLOCK = SystemClock()
SCOPE = BlockingScope(CLOCK)
INTERRUPTIONS = 10_000


class Interrupted(BaseException):
    """What the signal handler of these tests raises."""


@pytest.fixture
def _interrupting() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # what comes out of its callbacks is lost
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a wait that was interrupted before it began
        yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.enable()


@pytest.mark.usefixtures("_interrupting")
def test_a_signal_while_waiting_comes_out_as_what_its_handler_raised() -> None:
    met: Counter[type[BaseException]] = Counter()
    while met.total() < INTERRUPTIONS:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-4))
            while True:
                SCOPE.run(SCOPE.gate().wait(CLOCK.steady_ns() + random.randrange(NS_PER_MS // 10)))
        except BaseException as error:
            met[type(error)] += 1
    assert met == {Interrupted: INTERRUPTIONS}


def test_an_open_gate_lets_everybody_through_and_stays_open() -> None:
    gate, passed = SCOPE.gate(), []

    def wait() -> None:
        passed.append(SCOPE.run(gate.wait(CLOCK.steady_ns() + 60 * NS_PER_SECOND)))

    threads = [threading.Thread(target=wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    gate.set()
    gate.set()
    for thread in threads:
        thread.join(30)
    assert passed == [True] * 8
    assert SCOPE.run(gate.wait(0))


def test_a_gate_that_nobody_opens_is_left_at_its_deadline() -> None:
    deadline_ns = CLOCK.steady_ns() + NS_PER_MS
    assert not SCOPE.run(SCOPE.gate().wait(deadline_ns))
    assert CLOCK.steady_ns() >= deadline_ns
