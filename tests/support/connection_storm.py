"""A storm of connections: hundreds at once in TLS and SCRAM, then all of them re-authenticate at once.

python tests/support/connection_storm.py --connections 500 --rounds 5

A producer writes to a partition all the while, one record after the other. During each phase records must be sent and
acknowledged: a network thread serves every connection once per turn, so traffic goes on, however fast or slow the
machine is. The connections are those of a process of their own, as clients are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.message import Request
from headrace.network.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from headrace.network.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from headrace.network.security.passwords import PasswordCredentials
from headrace.producer import KafkaProducer

MECHANISM = "SCRAM-SHA-256"
#: All connections re-authenticate this often.
RENEWALS = 3
PATIENCE_S = 240.0
#: The sessions of the connections are renewed by the storm, never because they end.
SESSION_MS = 3_600_000


@dataclass
class StormResult:
    """`findings` is empty if every guarantee held.

    `acknowledged` has the number of records that were acknowledged during each phase. The phases of one name count
    together.
    """

    findings: list[str] = field(default_factory=list)
    acknowledged: Counter[str] = field(default_factory=Counter)


# --- The clients' process ---


class Client:
    """One connection, which authenticates and stays."""

    def __init__(self, credentials: PasswordCredentials) -> None:
        self._credentials = credentials

    async def connect(self, host: str, port: int, context: ssl.SSLContext) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            host, port, ssl=context, ssl_handshake_timeout=PATIENCE_S
        )
        await self.authenticate()

    async def authenticate(self) -> None:
        """Authenticate, for the first time or again. Raises RuntimeError if the broker rejects it."""
        mechanism = self._credentials.begin("broker")
        await self._ask(SaslHandshakeRequest(mechanism=MECHANISM))
        message: bytes | None = mechanism.initial_message()
        while message is not None:
            answer = await self._ask(SaslAuthenticateRequest(auth_bytes=message))
            message = mechanism.respond(bytes(answer.auth_bytes))
        assert mechanism.is_complete

    async def _ask(self, message: Request) -> Any:
        self._writer.write(b"".join(encode_request(message, version=1, correlation_id=1, client_id="storm")))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        content = memoryview(await self._reader.readexactly(size))
        answer = decode_response(type(message), 1, content)[1]
        if answer.error_code:
            raise RuntimeError(f"{type(message).__name__}: error {answer.error_code}")
        return answer

    def close(self) -> None:
        self._writer.transport.abort()


async def storm(job: dict[str, Any]) -> None:
    """All clients connect at once, then all re-authenticate at once, RENEWALS times.

    Each phase begins with a line of input, and ends with one of output.
    """
    context = ssl.create_default_context(cafile=job["ca"])
    credentials = PasswordCredentials(MECHANISM, job["user"], job["password"])
    clients = [Client(credentials) for _ in range(job["connections"])]

    sys.stdin.readline()
    await asyncio.gather(*(each.connect(job["host"], job["port"], context) for each in clients))
    print("connected", flush=True)
    for _ in range(RENEWALS):
        sys.stdin.readline()
        await asyncio.sleep(1.1)  # brokers refuse to renew a session earlier
        print("waited", flush=True)
        sys.stdin.readline()
        await asyncio.gather(*(each.authenticate() for each in clients))
        print("renewed", flush=True)
    for each in clients:
        each.close()


# --- The cluster and the traffic that must go on ---


class Traffic:
    """A producer on its own thread, one acknowledged record after the other."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.acknowledged = 0
        self.errors: list[BaseException] = []
        self._more = threading.Condition()
        self._ended = threading.Event()
        self._producer = KafkaProducer(config, linger_ms=0)
        self._thread = threading.Thread(target=self._run, name="traffic")

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._producer.send("t", b"v").get(PATIENCE_S)
                with self._more:
                    self.acknowledged += 1
                    self._more.notify_all()
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self) -> Traffic:
        self._thread.start()
        self.wait_for(1)
        return self

    def wait_for(self, count: int) -> bool:
        """Wait for `count` more acknowledged records. Returns whether they came."""
        with self._more:
            wanted = self.acknowledged + count
            return self._more.wait_for(lambda: self.acknowledged >= wanted or bool(self.errors), PATIENCE_S)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.close()


def run_storm(connections: int = 500) -> StormResult:
    """One storm of `connections` connections against a new cluster."""
    result = StormResult()
    with EmbeddedCluster(security="SASL_SSL", connections_max_reauth_ms=SESSION_MS, max_connections=10_000) as cluster:
        config = cluster.client_config()
        host, _, port = cluster.bootstrap_servers.partition(":")
        job = {
            "host": host,
            "port": int(port),
            "ca": config["ssl.truststore.location"],
            "user": config["sasl.username"],
            "password": config["sasl.password"],
            "connections": connections,
        }
        command = [sys.executable, str(Path(__file__).resolve()), "--client"]
        with (
            Traffic(config) as traffic,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients,
        ):
            assert clients.stdin is not None
            assert clients.stdout is not None
            clients.stdin.write(json.dumps(job) + "\n")
            for phase in ("connect", *("wait", "renew") * RENEWALS):
                before = traffic.acknowledged
                clients.stdin.write("go\n")
                clients.stdin.flush()
                if not clients.stdout.readline():
                    result.findings.append(f"{phase}: the clients failed")
                    break
                result.acknowledged[phase] += traffic.acknowledged - before
            if clients.wait() != 0:
                result.findings.append(f"the clients ended with exit code {clients.returncode}")
            if not traffic.wait_for(10):
                result.findings.append("no record is acknowledged after the storm")
        result.findings += [f"a record failed: {error!r}" for error in traffic.errors]
        if len(cluster.records("t", 0)) != traffic.acknowledged:
            result.findings.append("acknowledged records are missing or duplicated")
    for phase, times in (("connect", 1), ("renew", RENEWALS)):
        count = result.acknowledged[phase]
        # the first record of each phase may have been in flight when it began
        if count <= times:
            result.findings.append(f"{phase}: only {count} records were acknowledged meanwhile")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        asyncio.run(storm(json.loads(sys.stdin.readline())))
        return 0
    failed = False
    for number in range(options.rounds):
        result = run_storm(options.connections)
        print(f"round {number}: {result.acknowledged}", flush=True)
        for finding in result.findings:
            failed = True
            print(f"round {number}: {finding}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
