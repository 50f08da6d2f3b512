"""The brokers that the producers can be compared against, and a fresh topic per run."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

#: Timeout in seconds for the start of a process and for an answer.
PATIENCE_S = 60.0
#: A deleted topic's files go after this time, so that runs don't fill the disk and the page cache.
DELETE_DELAY_MS = 100


class BrokerUnavailableError(Exception):
    """The broker can't run on this machine; the message names the missing part."""


class UnknownBrokerError(ValueError):
    """There is no adapter of this name; the message lists those that there are."""


@dataclasses.dataclass(frozen=True)
class Topic:
    """A topic for one run, and the address of its broker with the keys of TLS that clients need."""

    bootstrap_servers: str
    name: str
    partitions: int
    admin: Any
    security: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def records(self) -> int:
        """The sum of the end offsets of its partitions. Raises confluent-kafka's error if the broker has none."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

        wanted = {TopicPartition(self.name, number): OffsetSpec.latest() for number in range(self.partitions)}
        answers = self.admin.list_offsets(wanted, request_timeout=PATIENCE_S).values()
        return sum(answer.result(PATIENCE_S).offset for answer in answers)


class Broker(contextlib.AbstractContextManager["Broker"], abc.ABC):
    """A broker that runs while the context is entered. Raises BrokerUnavailableError on entering."""

    @contextlib.contextmanager
    @abc.abstractmethod
    def topic(self, partitions: int) -> Iterator[Topic]:
        """A topic of its own, which is deleted at the end."""
        yield NotImplemented

    def secured(self) -> Broker:
        """The same broker behind TLS. Raises BrokerUnavailableError if it has none."""
        raise BrokerUnavailableError("this broker is measured without TLS only")


class ServerBroker(Broker):
    """A broker whose topics are created and deleted with requests."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self.bootstrap_servers = ""
        self.security: Mapping[str, str] = {}
        self._admin: Any = None

    def __enter__(self) -> ServerBroker:
        from confluent_kafka.admin import AdminClient

        self.bootstrap_servers = self._open.enter_context(self._server())
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **self.security})
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._admin = None
        self._open.close()

    @contextlib.contextmanager
    def topic(self, partitions: int) -> Iterator[Topic]:
        from confluent_kafka.admin import NewTopic  # pyright: ignore[reportPrivateImportUsage]

        name = f"benchmark-{uuid.uuid4().hex[:12]}"
        wanted = NewTopic(name, partitions, 1, config={"file.delete.delay.ms": str(DELETE_DELAY_MS)})
        self._wait(self._admin.create_topics([wanted], operation_timeout=PATIENCE_S))
        try:
            yield Topic(self.bootstrap_servers, name, partitions, self._admin, self.security)
        finally:
            self._wait(self._admin.delete_topics([name], operation_timeout=PATIENCE_S))

    @staticmethod
    def _wait(futures: dict[str, Any]) -> None:
        for future in futures.values():
            future.result(PATIENCE_S)

    @contextlib.contextmanager
    @abc.abstractmethod
    def _server(self) -> Iterator[str]:
        """Run the server and yield its address."""
        yield NotImplemented


class Embedded(ServerBroker):
    """``headrace broker`` in its own process, with its logs in a temporary directory."""

    options: Sequence[str] = ()

    def __init__(self) -> None:
        super().__init__()
        self._secured: Broker | None = None

    def secured(self) -> Broker:
        if self._secured is None:
            self._secured = self._open.enter_context(EmbeddedTls())
        return self._secured

    @contextlib.contextmanager
    def _server(self) -> Iterator[str]:
        program = "import sys; from headrace.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "broker", *self.options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline().strip()
                if not line:
                    raise BrokerUnavailableError(f"headrace broker ended with exit code {process.wait()}")
                self._read_security(process.stdout)
                yield line.partition("=")[2]
            finally:
                process.terminate()

    def _read_security(self, output: IO[str]) -> None:
        """Read what clients need from the lines behind the address."""


class EmbeddedTls(Embedded):
    """The same with TLS 1.3 and throw-away certificates. Both sides' OpenSSL prefers TLS_AES_256_GCM_SHA384."""

    options = ("--security", "SSL", "--config", "ssl.enabled.protocols=TLSv1.3")

    def _read_security(self, output: IO[str]) -> None:
        for line in output:
            key, _, value = line.strip().partition("=")
            if key == "ssl.truststore.location":
                self.security = {"security.protocol": "SSL", "ssl.ca.location": value}
                return
        raise BrokerUnavailableError("headrace broker --security SSL ended")


class ApacheKafkaBroker(ServerBroker):
    """Apache Kafka in KRaft mode, as the tests start it."""

    @contextlib.contextmanager
    def _server(self) -> Iterator[str]:
        from .apache_kafka import SERVER_JVM_OPTIONS, ApacheKafka, ApacheKafkaUnavailable

        # of a deleted topic's files: the broker's own delay counts, not the topic's
        properties = {"log.segment.delete.delay.ms": str(DELETE_DELAY_MS)}
        try:
            kafka = ApacheKafka(jvm_options=SERVER_JVM_OPTIONS, properties=properties).__enter__()
        except ApacheKafkaUnavailable as missing:
            raise BrokerUnavailableError(str(missing)) from missing
        try:
            yield kafka.bootstrap_servers
        finally:
            kafka.__exit__()


class MockCluster(Broker):
    """librdkafka's mock cluster, written in C: it discards what a topic has beyond a few megabytes.

    Each topic has its own process, so that nothing is kept.
    """

    def __exit__(self, *exc_info: object) -> None:
        pass

    @contextlib.contextmanager
    def topic(self, partitions: int) -> Iterator[Topic]:
        from confluent_kafka.admin import AdminClient

        name = f"benchmark-{uuid.uuid4().hex[:12]}"
        command = [sys.executable, "-m", "comparison.mock_cluster", name, str(partitions)]
        with subprocess.Popen(
            command,
            cwd=Path(__file__).resolve().parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                address = process.stdout.readline().strip()
                if not address:
                    raise BrokerUnavailableError(f"librdkafka's mock cluster ended with exit code {process.wait()}")
                yield Topic(address, name, partitions, AdminClient({"bootstrap.servers": address, "log_level": 0}))
            finally:
                process.stdin.close()
                process.terminate()


BROKERS: dict[str, type[Broker]] = {
    "embedded": Embedded,
    "apache-kafka": ApacheKafkaBroker,
    "mock": MockCluster,
}


def select_broker(name: str) -> type[Broker]:
    """The adapter of this name. Raises UnknownBrokerError."""
    if name not in BROKERS:
        raise UnknownBrokerError(f"unknown broker {name!r}; expected one of {', '.join(BROKERS)}")
    return BROKERS[name]
