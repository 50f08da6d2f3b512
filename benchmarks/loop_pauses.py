"""How long a producer keeps an event loop from other work, and what a record costs there.

    python benchmarks/loop_pauses.py [--clients NAME,...] [--situations NAME,...] [--loop asyncio|uvloop]

A watchdog task sleeps for a millisecond at a time and takes the longest time between two of its turns, less that
millisecond. Every measurement runs in its own process, against an embedded broker in another one.

The situations that end in `_baseline` send nothing: their coroutines await a future of asyncio each, which the loop
settles. A producer whose `send_and_wait` needs a task per record can't have shorter pauses or cheaper records.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

VALUE = b"x" * 100
TOPIC = "pauses"

#: Not measured for other clients.
OURS = {"lists", "gather_baseline", "tasks_baseline"}

#: Returns the number of records.
Situation = Callable[[Any], Awaitable[int]]


async def watch(longest: list[float]) -> None:
    """The watchdog: append the longest pause so far, in seconds, until cancelled."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest[0] = max(longest[0], now - last - 0.001)
        last = now


async def send(producer: Any) -> int:
    """A task that sends as fast as it can, until the buffer is full and beyond."""
    for _ in range(500_000):
        await producer.send(TOPIC, VALUE)
    await producer.flush()
    return 500_000


async def large(producer: Any) -> int:
    """The same with records of 100 KB."""
    value = b"x" * 100_000
    for _ in range(2_000):
        await producer.send(TOPIC, value)
    await producer.flush()
    return 2_000


async def gather(producer: Any) -> int:
    """Gathers of 1,000 `send_and_wait`."""
    for _ in range(100):
        await asyncio.gather(*(producer.send_and_wait(TOPIC, VALUE) for _ in range(1_000)))
    return 100_000


async def tasks(producer: Any) -> int:
    """100,000 tasks that await at once, started 500 per turn, because starting them all takes one turn of asyncio."""
    started = []
    for _ in range(200):
        started += [asyncio.ensure_future(producer.send_and_wait(TOPIC, VALUE)) for _ in range(500)]
        await asyncio.sleep(0)
    for task in started:
        await task
    return len(started)


async def lists(producer: Any) -> int:
    """Lists of 10,000 records, for this project's producer."""
    futures = [await producer.send_many(TOPIC, [VALUE] * 10_000) for _ in range(50)]
    for future in futures:
        await future
    return 500_000


class Answers:
    """Futures of asyncio that a loop settles in its next turn but one, all that are there in one call."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._futures: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """What `send_and_wait` does at least."""
        if not self._futures:
            self._loop.call_soon(self._loop.call_soon, self._settle)
        future = self._loop.create_future()
        self._futures.append(future)
        await future

    def _settle(self) -> None:
        for future in self._futures:
            future.set_result(None)
        self._futures.clear()


async def gather_baseline(producer: Any) -> int:
    answers = Answers()
    for _ in range(100):
        await asyncio.gather(*(answers.wait() for _ in range(1_000)))
    return 100_000


async def tasks_baseline(producer: Any) -> int:
    """100,000 tasks that await at once. They are answered when all are there, 500 per turn."""
    started = []
    futures: list[asyncio.Future[None]] = []
    loop = asyncio.get_running_loop()

    async def wait() -> None:
        future = loop.create_future()
        futures.append(future)
        await future

    for _ in range(200):
        started += [asyncio.ensure_future(wait()) for _ in range(500)]
        await asyncio.sleep(0)
    for place in range(0, len(futures), 500):
        for future in futures[place : place + 500]:
            future.set_result(None)
        await asyncio.sleep(0)
    for task in started:
        await task
    return len(started)


SITUATIONS: dict[str, Situation] = {
    each.__name__: each for each in (send, large, gather, gather_baseline, tasks, tasks_baseline, lists)
}


def producer_of(client: str, bootstrap_servers: str) -> Any:
    if client == "aiokafka":
        from aiokafka import AIOKafkaProducer

        return AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True)
    from headrace.producer import AsyncKafkaProducer

    return AsyncKafkaProducer(bootstrap_servers=bootstrap_servers)


async def measure(client: str, name: str, bootstrap_servers: str) -> tuple[float, float]:
    """The longest pause in milliseconds, and the microseconds per record."""
    async with producer_of(client, bootstrap_servers) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        gc.collect()
        longest = [0.0]
        watchdog = asyncio.ensure_future(watch(longest))
        await asyncio.sleep(0.01)
        began = time.perf_counter()
        records = await SITUATIONS[name](producer)
        seconds = time.perf_counter() - began
        watchdog.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watchdog
        return longest[0] * 1e3, seconds / records * 1e6


def measured_in_process(client: str, name: str, loop: str, bootstrap_servers: str) -> str:
    command = [sys.executable, __file__, "--measure", client, name, loop, bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr.strip().splitlines()[-1]}"


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        client, name, loop, bootstrap_servers = sys.argv[2:]
        if loop == "uvloop":
            import uvloop

            uvloop.install()
        pause_ms, record_us = asyncio.run(measure(client, name, bootstrap_servers))
        print(f"{pause_ms:.1f} / {record_us:.1f}")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="headrace,aiokafka")
    parser.add_argument("--situations", default=",".join(SITUATIONS))
    parser.add_argument("--loop", default="asyncio", choices=("asyncio", "uvloop"))
    options = parser.parse_args()
    clients = options.clients.split(",")
    from comparison.brokers import select_broker

    with select_broker("embedded")() as broker, broker.topic(6) as topic:
        print(f"{'longest pause in ms / time per record in µs':45}" + "".join(f"{each:>16}" for each in clients))
        for name in options.situations.split(","):
            found = [
                measured_in_process(client, name, options.loop, topic.bootstrap_servers)
                if client == "headrace" or name not in OURS
                else "-"
                for client in clients
            ]
            print(f"{name:45}" + "".join(f"{each:>16}" for each in found), flush=True)


if __name__ == "__main__":
    main()
