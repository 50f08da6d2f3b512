"""Check an installed Headrace against a broker: `python tools/smoke_test.py`, in the environment of a wheel.

It fails unless the hot modules are compiled, `headrace` is the installed one, and records sent through every codec
arrive in the log of an embedded broker. HEADRACE_SMOKE_PURE=1 expects the interpreted modules instead.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from headrace.broker import EmbeddedCluster
from headrace.network import _build
from headrace.producer import AsyncKafkaProducer, KafkaProducer

RECORDS = 2_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


async def send_with_asyncio(server: str) -> int:
    """Send one record with the asyncio producer; returns its offset."""
    async with AsyncKafkaProducer(bootstrap_servers=server) as producer:
        return (await producer.send_and_wait("asyncio", b"v")).offset


def main() -> None:
    """Raises AssertionError."""
    expected = "interpreted" if os.environ.get("HEADRACE_SMOKE_PURE") == "1" else "compiled"
    assert _build.describe() == expected, f"the modules are {_build.describe()}, not {expected}"
    installed, clone = Path(_build.__file__).resolve(), Path(__file__).resolve().parents[1]
    assert clone / "network" not in installed.parents, f"{installed} is the clone's, not the wheel's"
    with EmbeddedCluster() as cluster:
        server = cluster.bootstrap_servers
        for codec in CODECS:
            with KafkaProducer(bootstrap_servers=server, compression_type=codec, value_serializer="json") as producer:
                futures = [producer.send(codec, {"number": number}, key=b"k") for number in range(RECORDS)]
                assert [future.get(30).offset for future in futures] == list(range(RECORDS))
            values = [record.value for record in cluster.records(codec, 0)]
            assert values == [b'{"number":%d}' % number for number in range(RECORDS)], codec
        assert asyncio.run(send_with_asyncio(server)) == 0
    lock = "with" if getattr(sys, "_is_gil_enabled", lambda: True)() else "without"
    print(f"headrace {_build.VERSION} ({_build.describe()}) on Python {sys.version.split()[0]} {lock} the GIL: ok")


if __name__ == "__main__":
    main()
