"""How long a producer keeps an event loop from other work. A watchdog task on the loop measures it.

    python benchmarks/loop_pauses.py [--clients NAME,...] [--situations NAME,...] [--loop asyncio|uvloop]

The watchdog sleeps for a millisecond at a time and takes the longest time between two of its turns, less that
millisecond. Every measurement runs in its own process, against an embedded broker in another one. `baseline` does what
`gather` does with a coroutine that only awaits a future of asyncio: no producer can have a shorter pause there.
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

Situation = Callable[[Any], Awaitable[None]]


async def watch(longest: list[float]) -> None:
    """The watchdog: append the longest pause so far, in seconds, until cancelled."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest[0] = max(longest[0], now - last - 0.001)
        last = now


async def send(producer: Any) -> None:
    """A task that sends as fast as it can, until the buffer is full and beyond."""
    for _ in range(500_000):
        await producer.send(TOPIC, VALUE)
    await producer.flush()


async def large(producer: Any) -> None:
    """The same with records of 100 KB."""
    value = b"x" * 100_000
    for _ in range(2_000):
        await producer.send(TOPIC, value)
    await producer.flush()


async def gather(producer: Any) -> None:
    """Gathers of 1,000 `send_and_wait`."""
    for _ in range(100):
        await asyncio.gather(*(producer.send_and_wait(TOPIC, VALUE) for _ in range(1_000)))


async def tasks(producer: Any) -> None:
    """100,000 tasks that await at once, started 500 per turn, because starting them all takes one turn of asyncio."""
    started = []
    for _ in range(200):
        started += [asyncio.ensure_future(producer.send_and_wait(TOPIC, VALUE)) for _ in range(500)]
        await asyncio.sleep(0)
    for task in started:
        await task


async def lists(producer: Any) -> None:
    """Lists of 10,000 records, for this project's producer."""
    futures = [await producer.send_many(TOPIC, [VALUE] * 10_000) for _ in range(50)]
    for future in futures:
        await future


async def baseline(producer: Any) -> None:
    """Gathers of 1,000 coroutines that await a future each."""
    loop = asyncio.get_running_loop()

    async def wait(future: asyncio.Future[None]) -> None:
        await future

    for _ in range(100):
        futures = [loop.create_future() for _ in range(1_000)]
        for future in futures:
            loop.call_soon(future.set_result, None)
        await asyncio.gather(*(wait(future) for future in futures))


SITUATIONS: dict[str, Situation] = {each.__name__: each for each in (send, large, gather, tasks, lists, baseline)}


def producer_of(client: str, bootstrap_servers: str) -> Any:
    if client == "aiokafka":
        from aiokafka import AIOKafkaProducer

        return AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True)
    from headrace.producer import AsyncKafkaProducer

    return AsyncKafkaProducer(bootstrap_servers=bootstrap_servers)


async def measure(client: str, name: str, bootstrap_servers: str) -> float:
    """The longest pause in milliseconds."""
    async with producer_of(client, bootstrap_servers) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        gc.collect()
        longest = [0.0]
        watchdog = asyncio.ensure_future(watch(longest))
        await asyncio.sleep(0.01)
        await SITUATIONS[name](producer)
        watchdog.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watchdog
        return longest[0] * 1000.0


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
        print(f"{asyncio.run(measure(client, name, bootstrap_servers)):.1f}")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="headrace,aiokafka")
    parser.add_argument("--situations", default=",".join(SITUATIONS))
    parser.add_argument("--loop", default="asyncio", choices=("asyncio", "uvloop"))
    options = parser.parse_args()
    from comparison.brokers import select_broker

    with select_broker("embedded")() as broker, broker.topic(6) as topic:
        print(f"{'longest pause of the loop in ms':40}" + "".join(f"{each:>12}" for each in options.clients.split(",")))
        for name in options.situations.split(","):
            pauses = [
                measured_in_process(client, name, options.loop, topic.bootstrap_servers)
                if client == "headrace" or name != "lists"
                else "-"
                for client in options.clients.split(",")
            ]
            print(f"{name:40}" + "".join(f"{each:>12}" for each in pauses), flush=True)


if __name__ == "__main__":
    main()
