"""What a take costs the client: processor time of one UpdateItem, ours beside boto3's and aiobotocore's.

    python -m venv .venv-bench
    .venv-bench/bin/pip install --requirement requirements/bench.in --editable '.[dynamodb]'
    .venv-bench/bin/python bench/dynamodb_client.py

A server in a process of its own answers everything with the same small reply. The clients take turns, a slice each, in
one process; what is compared is the ratio inside each round, and what is printed is the median of the rounds, so a
machine that gets slower or faster on the way changes nothing. Exit status 1 if a ratio is over what is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MOST_PERCENT = 40
WARM_UP = 200

BODY: dict[str, Any] = {
    "TableName": "quota",
    "Key": {"pk": {"S": "k3J9x0Qz1Ab/BUCKET#acme#gpt-4#0"}, "sk": {"S": "#"}},
    "UpdateExpression": "ADD #a :a, #b :b SET #s.#id = :x",
    "ConditionExpression": "#i = :i AND #a > :n AND #a <= :w AND #j = :j AND #b > :n AND #b <= :v AND size(#s) <= :c "
    "AND attribute_not_exists(#s.#id) AND (attribute_not_exists(#p) OR #p <= :n)",
    "ExpressionAttributeNames": {
        "#a": "f:rpm", "#b": "f:tpm", "#i": "i:rpm", "#j": "i:tpm", "#s": "s:concurrent", "#p": "paused",
        "#id": "01JD2W8Z7K-4f9a2c@host-1:4242",
    },
    "ExpressionAttributeValues": {
        ":a": {"N": "120000000"}, ":b": {"N": "480000000"}, ":i": {"N": "120000000"}, ":j": {"N": "400000"},
        ":n": {"N": "1763584000123456789"}, ":w": {"N": "1763584060123456789"}, ":v": {"N": "1763584060123456789"},
        ":c": {"N": "31"}, ":x": {"N": "1763584060123456789"},
    },
    "ReturnValues": "ALL_NEW",
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    "ReturnConsumedCapacity": "INDEXES",
}  # fmt: skip

ANSWER = json.dumps(
    {
        "Attributes": {
            "pk": {"S": "k3J9x0Qz1Ab/BUCKET#acme#gpt-4#0"},
            "sk": {"S": "#"},
            "f:rpm": {"N": "1763584000243456789"},
            "i:rpm": {"N": "120000000"},
            "f:tpm": {"N": "1763584000603456789"},
            "i:tpm": {"N": "400000"},
            "s:concurrent": {"M": {f"01JD2W8Z7K-{n:06x}@host-1:4242": {"N": "1763584060123456789"} for n in range(4)}},
        },
        "ConsumedCapacity": {"TableName": "quota", "CapacityUnits": 1.0, "Table": {"CapacityUnits": 1.0}},
    }
).encode()


class _Answering(asyncio.Protocol):
    """Answers each request, whatever it asks, in one write."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.read = b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        while (end := self.read.find(b"\r\n\r\n")) >= 0:
            head = self.read[:end].lower()
            start = head.find(b"content-length:")
            length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
            if len(self.read) < end + 4 + length:
                return
            self.read = self.read[end + 4 + length :]
            date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nServer: Server\r\nDate: %b\r\nContent-Type: application/x-amz-json-1.0\r\n"
                b"Content-Length: %d\r\nConnection: keep-alive\r\nx-amzn-RequestId: "
                b"4KBNVRGD25RG1KEO9UT4V3FQDJVV4KQNSO5AEMVJF66Q9ASUAAJG\r\nx-amz-crc32: %d\r\n\r\n%b"
                % (date.encode(), len(ANSWER), zlib.crc32(ANSWER), ANSWER)
            )


def serve(ports: Any) -> None:
    """Answer on loopback until killed."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def slice_of(call: Callable[[], object], calls: int) -> float:
    """Microseconds of this process's time that a call takes."""
    begun = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - begun) / calls / 1000


async def slice_of_tasks(call: Callable[[], Awaitable[object]], calls: int, tasks: int) -> float:
    """The same, with so many under way at once."""

    async def one_after_another() -> None:
        for _ in range(calls // tasks):
            await call()

    begun = time.process_time_ns()
    await asyncio.gather(*[one_after_another() for _ in range(tasks)])
    return (time.process_time_ns() - begun) / (calls // tasks * tasks) / 1000


def compare_blocking(endpoint: str, rounds: int, calls: int) -> tuple[float, float, float]:
    """Ours, boto3's and the ratio, each the median of the rounds."""
    import boto3
    from botocore.config import Config

    from sluice.stores.dynamodb.wire import Answered, Call, Operation
    from sluice.wires.blocking.dynamodb import BlockingWire
    from sluice.wires.blocking.scope import BlockingScope
    from sluice.wires.clock import SystemClock
    from sluice.wires.dynamodb.opening import Resolution
    from sluice.wires.dynamodb.options import read_options
    from sluice.wires.dynamodb.skew import EngineClock

    options = read_options(f"dynamodb://quota?endpoint={endpoint}")
    wire = BlockingWire(options, EngineClock(SystemClock()), Resolution(options).account)
    theirs = boto3.client("dynamodb", endpoint_url=endpoint, config=Config(retries={"max_attempts": 0}))
    scope = BlockingScope(SystemClock())
    call = [Call(Operation.UPDATE_ITEM, BODY)]

    def ours() -> None:
        (reply,) = scope.run(wire.send(call))
        assert isinstance(reply, Answered)
        assert reply.body["Attributes"]

    def boto() -> None:
        assert theirs.update_item(**BODY)["Attributes"]

    slice_of(ours, WARM_UP), slice_of(boto, WARM_UP)
    return medians([(slice_of(ours, calls), slice_of(boto, calls)) for _ in range(rounds)])


async def compare_asyncio(endpoint: str, rounds: int, calls: int, tasks: int) -> tuple[float, float, float]:
    """Ours, aiobotocore's and the ratio, each the median of the rounds."""
    from aiobotocore.session import get_session
    from botocore.config import Config

    from sluice.stores.dynamodb.wire import Answered, Call, Operation
    from sluice.wires.aio.dynamodb import AioWire
    from sluice.wires.clock import SystemClock
    from sluice.wires.dynamodb.opening import Resolution
    from sluice.wires.dynamodb.options import read_options
    from sluice.wires.dynamodb.skew import EngineClock

    options = read_options(f"dynamodb://quota?endpoint={endpoint}")
    wire = AioWire(options, EngineClock(SystemClock()), Resolution(options).account)
    call = [Call(Operation.UPDATE_ITEM, BODY)]
    config = Config(retries={"max_attempts": 0}, max_pool_connections=64)
    async with get_session().create_client("dynamodb", endpoint_url=endpoint, config=config) as theirs:

        async def ours() -> None:
            (reply,) = await wire.send(call)
            assert isinstance(reply, Answered)
            assert reply.body["Attributes"]

        async def boto() -> None:
            assert (await theirs.update_item(**BODY))["Attributes"]

        await slice_of_tasks(ours, WARM_UP, tasks)
        await slice_of_tasks(boto, WARM_UP, tasks)
        measured = [
            (await slice_of_tasks(ours, calls, tasks), await slice_of_tasks(boto, calls, tasks)) for _ in range(rounds)
        ]
    await wire.close()
    return medians(measured)


def medians(rounds: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The median of each side, and of the ratios inside the rounds."""
    return (
        statistics.median(ours for ours, _ in rounds),
        statistics.median(theirs for _, theirs in rounds),
        statistics.median(ours / theirs for ours, theirs in rounds),
    )


def main() -> int:
    """Measure, print, and say whether it is good enough."""
    asked = argparse.ArgumentParser(
        description="Processor time of one UpdateItem, ours beside boto3's and aiobotocore's."
    )
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--calls", type=int, default=400, help="calls of a slice (default: 400)")
    given = asked.parse_args()
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "eu-west-1"}
    spawning = multiprocessing.get_context("spawn")
    ports = spawning.Queue()
    server = spawning.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    endpoint = f"http://127.0.0.1:{ports.get(timeout=30)}"
    rows = [
        ("blocking, boto3", compare_blocking(endpoint, given.rounds, given.calls)),
        ("asyncio, aiobotocore", asyncio.run(compare_asyncio(endpoint, given.rounds, given.calls, 1))),
        ("the same, 16 at once", asyncio.run(compare_asyncio(endpoint, given.rounds, given.calls, 16))),
    ]
    server.terminate()
    print(f"{'':24}{'ours':>10}{'theirs':>10}{'ratio':>10}")
    for name, (ours, theirs, ratio) in rows:
        print(f"{name:24}{ours:7.0f} us{theirs:7.0f} us{ratio:9.0%}")
    return int(any(ratio * 100 > MOST_PERCENT for _, (_, _, ratio) in rows))


if __name__ == "__main__":
    sys.exit(main())
