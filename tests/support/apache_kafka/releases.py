"""Older releases of Apache Kafka for the same tests: how to download, start and call each.

All run on the Java that Kafka 4.x requires; the overrides in their poms were found by trial.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import ClassVar

from .cluster import HOST, START_TIMEOUT_S, TOOL_JVM_OPTIONS, ApacheKafka, Broker, Server, free_ports

_HERE = Path(__file__).parent

# Kafka 0.10 logs through log4j 1.2, which prints nothing without a configuration.
_LOG4J = """log4j.rootLogger=INFO, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %m (%c)%n
"""


class ApacheKafka39(ApacheKafka):
    """Apache Kafka 3.9, the last release before 4.0: KRaft mode too, but other class names for the tools."""

    pom: ClassVar[Path] = _HERE / "pom-3.9.xml"
    dump_log_class: ClassVar[str] = "kafka.tools.DumpLogSegments"
    formatter_option: ClassVar[str] = "--property"


class ZooKeeperKafka(ApacheKafka):
    """A release that requires ZooKeeper: one, in its own JVM, for all brokers."""

    console_consumer_class: ClassVar[str] = "kafka.tools.ConsoleConsumer"
    dump_log_class: ClassVar[str] = "kafka.tools.DumpLogSegments"
    formatter_option: ClassVar[str] = "--property"

    _zookeeper: Server | None = None

    def _prepare(self, folder: Path) -> None:
        zookeeper_port, *ports = free_ports(1 + self._count)
        self._zookeeper = Server("zookeeper", zookeeper_port, folder)
        self._zookeeper.configure(
            {
                "dataDir": str(folder / "zookeeper"),
                "clientPort": str(zookeeper_port),
                "clientPortAddress": HOST,
                "maxClientCnxns": "0",
            }
        )
        copies = str(min(self._count, 3))
        for broker_id, port in enumerate(ports, 1):
            broker = self._brokers[broker_id] = Broker(broker_id, port, 0, 0, folder)
            broker.configure(
                {
                    "broker.id": str(broker_id),
                    "listeners": f"PLAINTEXT://{HOST}:{port}",
                    "zookeeper.connect": f"{HOST}:{zookeeper_port}",
                    "zookeeper.connection.timeout.ms": "60000",
                    "log.dirs": str(broker.log_dir),
                    "default.replication.factor": copies,
                    "offsets.topic.replication.factor": copies,
                    "offsets.topic.num.partitions": "1",
                    "transaction.state.log.replication.factor": copies,
                    "transaction.state.log.min.isr": "1",
                    "transaction.state.log.num.partitions": "1",
                    "group.initial.rebalance.delay.ms": "0",
                    "log.retention.ms": "-1",
                    **self._properties,
                }
            )

    def _before_launch(self, folder: Path) -> None:
        zookeeper = self._zookeeper
        assert zookeeper is not None
        command = [self._java, *TOOL_JVM_OPTIONS, *self._logging("info"), "-Dzookeeper.jmx.log4j.disable=true"]
        zookeeper.launch([*command, "-cp", self._class_path, "org.apache.zookeeper.server.ZooKeeperServerMain"])
        # a broker that starts before ZooKeeper waits a second before it retries
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection((HOST, zookeeper.port), timeout=2.0).close()
                return
            except OSError:
                if zookeeper.process is None or zookeeper.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"ZooKeeper does not start:\n{zookeeper.tail()}") from None
            time.sleep(0.02)

    def _clean_up(self) -> None:
        for broker in self._brokers.values():
            broker.end(cleanly=False)
        if self._zookeeper is not None:
            self._zookeeper.end(cleanly=False)
        super()._clean_up()


class ApacheKafka21(ZooKeeperKafka):
    """Apache Kafka 2.1, the oldest release that is fully supported: Produce up to 7, so zstd, and Metadata up to 7."""

    pom: ClassVar[Path] = _HERE / "pom-2.1.xml"


class ApacheKafka010(ZooKeeperKafka):
    """Apache Kafka 0.10.2: ApiVersions 0, Produce and Metadata up to 2, message formats v0 and v1."""

    pom: ClassVar[Path] = _HERE / "pom-0.10.xml"

    def _before_launch(self, folder: Path) -> None:
        (folder / "log4j.properties").write_text(_LOG4J)
        super()._before_launch(folder)

    def _logging(self, level: str) -> list[str]:
        assert self._folder is not None
        return [f"-Dlog4j.configuration=file:{os.fspath(self._folder)}/log4j.properties"]
