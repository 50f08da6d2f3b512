"""Apache Kafka in KRaft combined mode on loopback: one JVM per broker and controller, in a temporary folder."""

from __future__ import annotations

import base64
import os
import random
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from .jars import POM, compile_plugin, jars_folder, java_command

HOST = "127.0.0.1"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
TOOL_TIMEOUT_S = 60.0

# For a JVM that starts often, lives for seconds and shares the machine with others.
JVM_OPTIONS = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
#: The server's heap, collector and compiler from Kafka's own start script, for benchmarks.
SERVER_JVM_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
TOOL_JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

# Below every system's ephemeral ports, so that no outgoing connection takes a port between probing and binding.
_PORTS = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Ports that are free now. The configuration names all KRaft voters before the first one starts."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} ports between {_PORTS.start} and {_PORTS.stop} are free")


class Server:
    """One JVM with its configuration and its output. Both files outlive the process."""

    def __init__(self, name: str, port: int, folder: Path) -> None:
        self.name = name
        self.port = port
        self.config = folder / f"{name}.properties"
        self.output = folder / f"{name}.out"
        self.process: subprocess.Popen[bytes] | None = None
        self.watcher: subprocess.Popen[bytes] | None = None

    def configure(self, settings: Mapping[str, str]) -> None:
        self.config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def launch(self, command: Sequence[str]) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, str(self.config)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        # Kills the JVM when this process ends in any way (pytest-timeout uses os._exit), because its stdin closes then.
        self.watcher = subprocess.Popen(
            ["/bin/sh", "-c", f"read _; kill -9 {self.process.pid}"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def end(self, *, cleanly: bool) -> None:
        """Stop the JVM if it runs, with SIGTERM and a timeout, or with SIGKILL."""
        if self.process is None or self.watcher is None:
            return
        self.watcher.kill()
        self.watcher.wait()
        if self.watcher.stdin is not None:
            self.watcher.stdin.close()
        try:
            if cleanly:
                self.process.terminate()
                self.process.wait(STOP_TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process = self.watcher = None

    def tail(self) -> str:
        lines = self.output.read_text(errors="replace").splitlines() if self.output.exists() else []
        return "\n".join(lines[-30:])


class Broker(Server):
    """One broker, which is a KRaft controller too."""

    def __init__(self, broker_id: int, port: int, controller_port: int, sasl_port: int, folder: Path) -> None:
        super().__init__(f"broker-{broker_id}", port, folder)
        self.sasl_port = sasl_port
        self.broker_id = broker_id
        self.controller_port = controller_port
        self.log_dir = folder / self.name


class ApacheKafka:
    """An Apache Kafka cluster for tests, and its command-line tools.

    A context manager. Entering formats the storage, starts the brokers (ids 1, 2, ...) and returns when each of them
    knows all of them; leaving ends them and removes their files. `properties` are broker settings that override the
    ones that make a small cluster quick. `plugin` names a Java class beside this file, without a package, which is
    compiled and put on the class path. With `sasl_users` (passwords by name) each broker has a second listener, with
    SASL. Not thread-safe.

    Raises ApacheKafkaUnavailable on entering when Java, its compiler (for a plugin), Maven or Maven Central is
    missing, and RuntimeError with the end of the broker's output when a broker doesn't start. Releases that start
    differently are subclasses.
    """

    #: The jars, class names and options that depend on the release; these are the newest release's.
    pom: ClassVar[Path] = POM
    console_consumer_class: ClassVar[str] = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    dump_log_class: ClassVar[str] = "org.apache.kafka.tools.DumpLogSegments"
    formatter_option: ClassVar[str] = "--formatter-property"

    def __init__(
        self,
        brokers: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        sasl_users: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = JVM_OPTIONS,
        plugin: str | None = None,
    ) -> None:
        self._count = brokers
        self._properties = dict(properties or {})
        self._sasl_users = dict(sasl_users or {})
        self._jvm_options = tuple(jvm_options)
        self._plugin = plugin
        self._java = ""
        self._class_path = ""
        self._folder: Path | None = None
        self._brokers: dict[int, Broker] = {}

    def __enter__(self) -> ApacheKafka:
        self._java = java_command()
        self._class_path = os.path.join(jars_folder(self.pom), "*")
        self._folder = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        try:
            if self._plugin is not None:
                compile_plugin(self._plugin, self._class_path, self._folder / "classes")
                self._class_path = os.pathsep.join((str(self._folder / "classes"), self._class_path))
            self._prepare(self._folder)
            self._before_launch(self._folder)
            for broker in self._brokers.values():
                broker.launch(self._broker_command())
            self._wait_until_ready(self._brokers.values(), known_brokers=self._count)
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._clean_up()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, running or not, separated by commas."""
        return ",".join(f"{HOST}:{broker.port}" for broker in self._brokers.values())

    @property
    def sasl_bootstrap_servers(self) -> str:
        """`host:port` of every broker's listener with SASL, for a cluster with `sasl_users`."""
        return ",".join(f"{HOST}:{broker.sasl_port}" for broker in self._brokers.values())

    @property
    def broker_ids(self) -> list[int]:
        return list(self._brokers)

    def log_dir(self, broker_id: int = 1) -> Path:
        """The folder of a broker's partitions, which `stop` and `kill` leave in place."""
        return self._brokers[broker_id].log_dir

    def stop(self, broker_id: int) -> None:
        """Stop a broker with SIGTERM: it hands over its leaderships and marks its logs as cleanly closed."""
        self._brokers[broker_id].end(cleanly=True)

    def kill(self, broker_id: int) -> None:
        """End a broker with SIGKILL."""
        self._brokers[broker_id].end(cleanly=False)

    def restart(self, broker_id: int) -> None:
        """Start a broker again on its port and its files, after stopping it if it runs; returns when it answers."""
        broker = self._brokers[broker_id]
        broker.end(cleanly=True)
        broker.launch(self._broker_command())
        self._wait_until_ready([broker], known_brokers=1)

    def run_class(
        self,
        main_class: str,
        *args: str | os.PathLike[str],
        input: bytes = b"",
        timeout_s: float = TOOL_TIMEOUT_S,
    ) -> bytes:
        """Run a main class of Apache Kafka's jars with `input` on its stdin and return its stdout.

        Raises RuntimeError with its output when it fails, and subprocess.TimeoutExpired when it exceeds the timeout.
        """
        command = [self._java, *TOOL_JVM_OPTIONS, *self._logging("warn"), "-cp", self._class_path, main_class]
        answer = subprocess.run(
            [*command, *map(str, args)], input=input, capture_output=True, timeout=timeout_s, check=False
        )
        if answer.returncode != 0:
            said = (answer.stdout[-4000:] + answer.stderr[-4000:]).decode(errors="replace")
            raise RuntimeError(f"{main_class} ended with exit code {answer.returncode}:\n{said}")
        return answer.stdout

    def console_consumer(
        self, topic: str, *, max_messages: int, formatter: Mapping[str, str] | None = None, bootstrap_servers: str = ""
    ) -> list[bytes]:
        """The first `max_messages` records of a topic, one line per record, as the console consumer prints them.

        `formatter` has properties of its formatter, such as `{"print.key": "true", "print.headers": "true"}`.
        `bootstrap_servers`, if given, may name a broker of another project. Returns fewer records if no further one
        arrives within twenty seconds.
        """
        options: list[str] = []
        for name, value in (formatter or {}).items():
            options += [self.formatter_option, f"{name}={value}"]
        output = self.run_class(
            self.console_consumer_class,
            *("--bootstrap-server", bootstrap_servers or self.bootstrap_servers, "--topic", topic, "--from-beginning"),
            *("--max-messages", str(max_messages), "--timeout-ms", "20000", *options),
        )
        return output.split(b"\n")[:-1]

    def dump_log(self, *files: str | os.PathLike[str], options: Sequence[str] = ("--deep-iteration",)) -> str:
        """What the dump-log tool prints of segment, index or snapshot files, whichever broker wrote them."""
        names = ",".join(map(str, files))
        return self.run_class(self.dump_log_class, "--files", names, *options).decode()

    # --- Starting ---

    def _prepare(self, folder: Path) -> None:
        ports = free_ports(3 * self._count)
        for broker_id in range(1, self._count + 1):
            self._brokers[broker_id] = Broker(broker_id, ports.pop(), ports.pop(), ports.pop(), folder)
        brokers = self._brokers.values()
        voters = ",".join(f"{broker.broker_id}@{HOST}:{broker.controller_port}" for broker in brokers)
        copies = str(min(self._count, 3))
        for broker in brokers:
            settings = {
                "process.roles": "broker,controller",
                "node.id": str(broker.broker_id),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://{HOST}:{broker.port},CONTROLLER://{HOST}:{broker.controller_port}",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{broker.port}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": str(broker.log_dir),
                "default.replication.factor": copies,
                "offsets.topic.replication.factor": copies,
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.replication.factor": copies,
                "transaction.state.log.min.isr": "1",
                "transaction.state.log.num.partitions": "1",
                "share.coordinator.state.topic.replication.factor": copies,
                "share.coordinator.state.topic.min.isr": "1",
                "share.coordinator.state.topic.num.partitions": "1",
                "group.initial.rebalance.delay.ms": "0",
                # Kafka checks retention half a minute after the start, and tests write records with old timestamps.
                "log.retention.ms": "-1",
                # A killed broker is noticed within seconds, but a busy machine's pause is not mistaken for its death.
                "broker.heartbeat.interval.ms": "500",
                "broker.session.timeout.ms": "6000",
                **(self._sasl_settings(broker) if self._sasl_users else {}),
                **self._properties,
            }
            broker.configure(settings)

    def _sasl_settings(self, broker: Broker) -> dict[str, str]:
        """A second listener, with SASL. Its users are those of PLAIN; SCRAM's are stored by a test."""
        users = " ".join(f'user_{name}="{password}"' for name, password in self._sasl_users.items())
        listeners = {"PLAINTEXT": broker.port, "SASL_PLAINTEXT": broker.sasl_port}
        advertised = ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())
        return {
            "listeners": f"{advertised},CONTROLLER://{HOST}:{broker.controller_port}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
            ),
            **{
                f"listener.name.sasl_plaintext.scram-sha-{bits}.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                )
                for bits in (256, 512)
            },
        }

    def _before_launch(self, folder: Path) -> None:
        """Format the brokers' storage."""
        # Kafka writes a cluster id as a UUID's 16 bytes in URL-safe base64 without padding.
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if cluster_id.startswith("-"):
            cluster_id = "A" + cluster_id[1:]  # the command line would take it for an option
        for broker in self._brokers.values():
            self.run_class("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", broker.config)

    def _broker_command(self) -> list[str]:
        return [self._java, *self._jvm_options, *self._logging("info"), "-cp", self._class_path, "kafka.Kafka"]

    def _logging(self, level: str) -> list[str]:
        return [f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}", "-Dorg.slf4j.simpleLogger.showDateTime=true"]

    def _wait_until_ready(self, brokers: Iterable[Broker], *, known_brokers: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        for broker in brokers:
            while True:
                if broker.process is None or broker.process.poll() is not None:
                    raise RuntimeError(f"Apache Kafka's broker {broker.broker_id} ended at startup:\n{broker.tail()}")
                try:
                    known = _brokers_known_by(broker.port)
                    if known >= known_brokers:
                        break
                    reason = f"it knows {known} of {known_brokers} brokers"
                except OSError as not_yet:
                    reason = str(not_yet)
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"Apache Kafka's broker {broker.broker_id} is not ready in {START_TIMEOUT_S:.0f} s: {reason}\n"
                        + broker.tail()
                    )
                time.sleep(0.05)

    def _clean_up(self) -> None:
        for broker in self._brokers.values():
            broker.end(cleanly=False)
        self._brokers.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _brokers_known_by(port: int) -> int:
    """The number of brokers in the Metadata response of the one on `port` (version 0, for no topics).

    Encoded by hand, because the fixture must not depend on the code under test. A broker that is still starting accepts
    the connection, but answers only once it serves.
    """
    with socket.create_connection((HOST, port), timeout=2.0) as connection:
        # size; api key 3, version 0, correlation id 1, no client id; an empty array
        body = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", 0)
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answer:
            header = answer.read(12)
    if len(header) < 12:
        raise ConnectionError("the broker closed the connection")
    return struct.unpack(">iii", header)[2]
