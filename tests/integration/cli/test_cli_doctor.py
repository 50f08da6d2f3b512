"""`headrace doctor` against broken set-ups on real sockets: the step that fails, its exit code, and the advice."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.processes import child

from headrace.broker import EmbeddedCluster, Fault
from headrace.broker.security.certificates import ThrowAwayAuthority
from headrace.cli import main
from headrace.cli.doctor import connecting
from headrace.network.clock import Clock
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import InvalidRecordError, KafkaStorageError
from headrace.network.protocol.messages.topics.metadata import MetadataResponse, MetadataResponseBroker
from headrace.network.sockets.resolver import ResolvedAddress
from headrace.producer import KafkaProducer

HEADRACE = [sys.executable, "-m", "headrace.cli"]
CONFIGURATION, NAME, TCP, TLS, SASL, API_VERSIONS, BROKERS, TOPIC, ACCESS, WRITE = range(3, 13)
DAY = datetime.timedelta(days=1)


class Report:
    """What the doctor found."""

    def __init__(self, code: int, findings: list[dict[str, Any]]) -> None:
        self.code = code
        self.findings = findings

    def failed(self) -> dict[str, Any]:
        """The only failure."""
        (found,) = [each for each in self.findings if each["status"] == "failed"]
        return found

    def of(self, step: str, status: str) -> list[dict[str, Any]]:
        return [each for each in self.findings if (each["step"], each["status"]) == (step, status)]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Report]:
    """Runs the doctor with --json; keyword arguments are keys of the client."""

    def run(servers: str, *arguments: str, timeout_ms: int = 10_000, **keys: object) -> Report:
        given = ["doctor", "-b", servers, "--json", "--timeout-ms", str(timeout_ms), *arguments]
        if keys:
            file = tmp_path / "client.properties"
            file.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in keys.items()))
            given += ["--command-config", str(file)]
        code = main(given)
        captured = capsys.readouterr()
        assert captured.err == ""
        content = json.loads(captured.out)
        assert content["exit_code"] == code
        return Report(code, content["findings"])

    return run


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts a server that runs a function per connection; returns its address."""
    with contextlib.ExitStack() as stack:

        def start(answer: Callable[[socket.socket], object]) -> str:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            held: list[socket.socket] = []

            def run() -> None:
                while True:
                    try:
                        sock, _ = listener.accept()
                    except OSError:
                        return
                    held.append(sock)
                    with contextlib.suppress(OSError):
                        answer(sock)

            thread = threading.Thread(target=run)
            thread.start()
            stack.callback(
                lambda: (listener.shutdown(socket.SHUT_RDWR), thread.join(), [each.close() for each in held])
            )
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield start


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> ThrowAwayAuthority:
    return ThrowAwayAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as started:
        yield started


def tls_cluster(authority: ThrowAwayAuthority, **keys: Any) -> EmbeddedCluster:
    keys.setdefault("ssl_keystore_location", authority.issue_server())
    return EmbeddedCluster(listeners="SSL://127.0.0.1:0", **keys)


# --- A cluster that works ---


def test_nothing_is_wrong(doctor, cluster):
    cluster.create_topic("fine", 2, configs={"message.timestamp.type": "LogAppendTime"})
    report = doctor(cluster.bootstrap_servers, "--topic", "fine", "--write")
    assert report.code == 0
    assert report.of("name", "failed") == []
    (versions,) = report.of("ApiVersions", "ok")
    assert versions["facts"]["kafka"] == "4.1 or later"
    (written,) = report.of("write", "ok")
    assert written["facts"]["latency_ms"] > 0
    (clock,) = report.of("clock", "ok")
    assert abs(clock["facts"]["skew_ms"]) <= clock["facts"]["error_ms"] + 2
    assert sum(len(cluster.records("fine", each)) for each in range(2)) == 1
    assert [each["target"] for each in report.of("topic", "warning")] == ["fine"]  # one replica


def test_a_secured_cluster_shows_its_certificate_and_no_password(doctor):
    with EmbeddedCluster(security="SASL_SSL", users={"alice": "hunter2"}) as secured:
        secured.create_topic("t")
        keys = secured.client_config(user="alice")
        report = doctor(secured.bootstrap_servers, "--topic", "t", "--write", **keys)
    assert report.code == 0
    (tls,) = report.of("TLS", "ok")
    assert "localhost" in tls["facts"]["names"]
    assert len(tls["facts"]["chain"]) == 2
    (sasl,) = report.of("SASL", "ok")
    assert sasl["facts"]["mechanism"] == keys["sasl.mechanism"]
    assert "hunter2" not in json.dumps(report.findings)


def test_create_time_leaves_the_clock_unmeasured(doctor, cluster):
    cluster.create_topic("created")
    report = doctor(cluster.bootstrap_servers, "--topic", "created", "--write")
    (clock,) = report.of("clock", "skipped")
    assert "not measured" in clock["text"]


def test_nothing_is_written_without_being_asked(doctor, cluster):
    cluster.create_topic("untouched")
    assert doctor(cluster.bootstrap_servers, "--topic", "untouched").code == 0
    assert cluster.records("untouched", 0) == []


# --- Names and TCP ---


def test_a_dead_port(doctor):
    report = doctor("127.0.0.1:1")
    assert (report.code, report.failed()["step"]) == (TCP, "TCP")
    assert "Connection refused; nothing listens there" in report.failed()["text"]


def test_a_name_that_does_not_exist(doctor):
    report = doctor("broker.invalid:9092")
    assert (report.code, report.failed()["step"]) == (NAME, "name")
    assert "name servers" in report.failed()["advice"]


def test_a_name_service_that_does_not_answer(doctor, monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(connecting, "resolve_host", lambda *_: never.wait())
    report = doctor("broker.example.com:9092", timeout_ms=200)
    never.set()
    assert report.code == NAME
    assert "the name service did not answer within 200 ms" in report.failed()["text"]


def test_a_network_that_drops_packets(doctor):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        # once its queue is full, the kernel drops further connection requests
        for _ in range(3):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(listener.getsockname())
        report = doctor(f"127.0.0.1:{listener.getsockname()[1]}", timeout_ms=300)
    assert (report.code, report.failed()["step"]) == (TCP, "TCP")
    assert "did not answer within 300 ms" in report.failed()["text"]
    assert "firewalls" in report.failed()["advice"]


def test_one_of_several_bootstrap_servers_is_dead(doctor, cluster):
    report = doctor(f"127.0.0.1:1,{cluster.bootstrap_servers}")
    assert report.code == TCP
    assert len(report.of("brokers", "ok")) == 2


def test_one_address_of_a_name_is_dead(doctor, cluster, monkeypatch):
    host, port = cluster.bootstrap_servers.split(":")
    addresses = [ResolvedAddress(socket.AF_INET, (host, each)) for each in (1, int(port))]
    monkeypatch.setattr(connecting, "resolve_host", lambda *_: addresses)
    report = doctor(f"broker.example.com:{port}")
    assert report.code == 0
    (warned,) = report.of("TCP", "warning")
    assert f"{host}:1" in warned["text"]
    assert "remove it from the name service" in warned["advice"]


# --- What answers is not what is expected ---


def test_a_server_that_accepts_and_says_nothing(doctor, serve):
    report = doctor(serve(lambda sock: None), timeout_ms=300)
    assert (report.code, report.failed()["step"]) == (API_VERSIONS, "ApiVersions")
    assert "did not answer within 300 ms" in report.failed()["text"]


def test_a_server_that_hangs_up(doctor, serve):
    report = doctor(serve(lambda sock: sock.close()))
    assert report.code == API_VERSIONS


@pytest.mark.parametrize(
    ("banner", "told"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "it is an HTTP server"), (b"SSH-2.0-OpenSSH_9.6\r\n", "it speaks SSH")],
)
def test_a_server_of_another_kind(doctor, serve, banner, told):
    def answer(sock: socket.socket) -> None:
        sock.recv(1000)
        sock.sendall(banner)

    report = doctor(serve(answer))
    assert report.code == API_VERSIONS
    assert told in report.failed()["text"]


# --- TLS ---


def test_plaintext_to_a_tls_port(doctor, authority):
    with tls_cluster(authority) as secured:
        report = doctor(secured.bootstrap_servers)
    assert report.code == API_VERSIONS
    assert "the listener speaks TLSv1.3" in report.failed()["advice"]


def test_tls_to_a_plaintext_port(doctor, authority, cluster):
    report = doctor(cluster.bootstrap_servers, security_protocol="SSL", ssl_truststore_location=authority.ca_path)
    assert (report.code, report.failed()["step"]) == (TLS, "TLS")
    assert "without TLS, Kafka 4.1 or later answers there" in report.failed()["advice"]


def test_a_server_that_stalls_in_the_handshake(doctor, serve, authority):
    report = doctor(
        serve(lambda sock: None), timeout_ms=300, security_protocol="SSL", ssl_truststore_location=authority.ca_path
    )
    assert report.code == TLS
    assert "did not complete the TLS handshake" in report.failed()["text"]


def test_an_authority_that_is_not_trusted(doctor, authority, tmp_path):
    other = ThrowAwayAuthority(tmp_path)
    with tls_cluster(authority) as secured:
        report = doctor(secured.bootstrap_servers, security_protocol="SSL", ssl_truststore_location=other.ca_path)
    assert report.code == TLS
    assert "unable to get local issuer certificate" in report.failed()["text"]


def test_a_certificate_for_another_name(doctor, authority):
    keystore = authority.issue_server(["broker.example.com"], name="other")
    with tls_cluster(authority, ssl_keystore_location=keystore) as secured:
        report = doctor(secured.bootstrap_servers, security_protocol="SSL", ssl_truststore_location=authority.ca_path)
    assert report.code == TLS
    assert "names: broker.example.com" in report.failed()["text"]


@pytest.mark.parametrize(("begin", "end", "told"), [(-3, -1, "has expired"), (1, 3, "not yet valid")])
def test_a_certificate_out_of_its_time(doctor, authority, begin, end, told):
    now = datetime.datetime.now(datetime.timezone.utc)
    keystore = authority.issue_server(name=f"time{begin}", not_before=now + begin * DAY, not_after=now + end * DAY)
    with tls_cluster(authority, ssl_keystore_location=keystore) as secured:
        report = doctor(secured.bootstrap_servers, security_protocol="SSL", ssl_truststore_location=authority.ca_path)
    assert report.code == TLS
    assert told in report.failed()["text"]


def test_a_certificate_that_expires_soon_and_one_that_is_not_verified(doctor, authority):
    now = datetime.datetime.now(datetime.timezone.utc)
    keystore = authority.issue_server(name="soon", not_before=now - DAY, not_after=now + 5.5 * DAY)
    with tls_cluster(authority, ssl_keystore_location=keystore) as secured:
        report = doctor(secured.bootstrap_servers, security_protocol="SSL", ssl_truststore_location=authority.ca_path)
        assert report.code == 0
        assert "expires in 5 days" in report.of("TLS", "warning")[0]["text"]
        keys = {"security_protocol": "SSL", "enable_ssl_certificate_verification": "false"}
        report = doctor(secured.bootstrap_servers, **keys)
        assert report.code == 0
        assert "is not verified" in report.of("TLS", "warning")[0]["text"]


def test_a_client_certificate_that_is_missing(doctor, authority):
    keys = {"ssl_client_auth": "required", "ssl_truststore_location": authority.ca_path}
    with tls_cluster(authority, **keys) as secured:
        report = doctor(secured.bootstrap_servers, security_protocol="SSL", ssl_truststore_location=authority.ca_path)
    assert (report.code, report.failed()["step"]) == (TLS, "TLS")
    assert "the broker demands a client certificate" in report.failed()["text"]


# --- SASL ---

PASSWORD = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "alice", "sasl_password": "guess1"}


def test_a_wrong_password(doctor):
    with EmbeddedCluster(users={"alice": "secret"}) as secured:
        report = doctor(secured.bootstrap_servers, sasl_mechanism="SCRAM-SHA-256", **PASSWORD)
    assert (report.code, report.failed()["step"]) == (SASL, "SASL")
    assert "rejected the SCRAM-SHA-256 credentials" in report.failed()["text"]
    assert "guess1" not in json.dumps(report.findings)


def test_a_mechanism_that_is_not_offered(doctor):
    with EmbeddedCluster(users={"alice": "secret"}, sasl_enabled_mechanisms="PLAIN") as secured:
        report = doctor(secured.bootstrap_servers, sasl_mechanism="SCRAM-SHA-512", **PASSWORD)
    assert report.code == SASL
    assert "does not offer the SASL mechanism SCRAM-SHA-512, but PLAIN" in report.failed()["text"]


def test_no_sasl_where_it_is_demanded(doctor):
    with EmbeddedCluster(users={"alice": "secret"}, sasl_enabled_mechanisms="PLAIN") as secured:
        report = doctor(secured.bootstrap_servers)
    assert (report.code, report.failed()["step"]) == (SASL, "SASL")
    assert "the listener demands SASL (it offers PLAIN)" in report.failed()["text"]
    assert "security.protocol=SASL_PLAINTEXT" in report.failed()["advice"]


def test_sasl_where_there_is_none(doctor, cluster):
    report = doctor(cluster.bootstrap_servers, sasl_mechanism="PLAIN", **PASSWORD)
    assert report.code == SASL
    assert "does not expect SASL there" in report.failed()["text"]


# --- Brokers ---


def test_an_advertised_name_that_does_not_exist(doctor):
    with EmbeddedCluster(
        listeners="PLAINTEXT://127.0.0.1:0", advertised_listeners="PLAINTEXT://kafka.invalid:9092"
    ) as odd:
        (port,) = odd._ports[1].values()
        report = doctor(f"127.0.0.1:{port}")
    assert report.code == BROKERS
    failed = report.failed()
    assert failed["target"] == "broker 1 at kafka.invalid:9092"
    assert failed["text"].startswith("it advertises an address that can't be used from here: name: ")
    assert "advertised.listeners" in failed["advice"]


def test_an_advertised_port_where_nothing_listens(doctor):
    with EmbeddedCluster(listeners="PLAINTEXT://127.0.0.1:0", advertised_listeners="PLAINTEXT://127.0.0.1:1") as odd:
        (port,) = odd._ports[1].values()
        report = doctor(f"127.0.0.1:{port}")
    assert report.code == BROKERS
    assert "TCP: cannot connect to 127.0.0.1:1: Connection refused" in report.failed()["text"]


def test_an_advertised_name_that_the_certificate_lacks(doctor, authority):
    keystore = authority.issue_server(["localhost"], name="localhost")
    with tls_cluster(authority, ssl_keystore_location=keystore) as secured:
        port = secured.bootstrap_servers.rpartition(":")[2]
        report = doctor(f"localhost:{port}", security_protocol="SSL", ssl_truststore_location=authority.ca_path)
    assert report.code == BROKERS
    assert "IP address mismatch" in report.failed()["text"]
    assert "have the certificate issued for 127.0.0.1 too" in report.failed()["advice"]


def test_brokers_that_advertise_the_same_address(doctor):
    with EmbeddedCluster() as odd:
        host, port = odd.bootstrap_servers.split(":")
        brokers = [MetadataResponseBroker(node_id=each, host=host, port=int(port)) for each in (1, 2)]
        odd.inject(ApiKey.METADATA, Fault(response=MetadataResponse(brokers=brokers, topics=[])), times=None)
        report = doctor(odd.bootstrap_servers)
    assert report.code == BROKERS
    assert report.failed()["text"] == "brokers 1, 2 advertise the same address"


def test_a_cluster_without_brokers(doctor):
    with EmbeddedCluster() as odd:
        odd.inject(ApiKey.METADATA, Fault(response=MetadataResponse(brokers=[], topics=[])), times=None)
        report = doctor(odd.bootstrap_servers)
    assert report.code == BROKERS
    assert report.failed()["text"] == "the metadata names no broker"


def test_a_broker_that_rejects_every_request(doctor):
    with EmbeddedCluster() as odd:
        odd.inject(ApiKey.METADATA, Fault(close=True), times=None)
        report = doctor(odd.bootstrap_servers)
    assert (report.code, report.failed()["step"]) == (BROKERS, "brokers")


# --- The topic ---


def test_a_topic_that_is_missing(doctor, cluster):
    report = doctor(cluster.bootstrap_servers, "--topic", "nothing", "--write")
    assert report.code == TOPIC
    assert "headrace topics create nothing" in report.failed()["advice"]
    assert "nothing" not in [topic for topic, _ in cluster.controller.image.topics.items()]


def test_a_partition_without_a_leader(doctor):
    with EmbeddedCluster(2) as pair:
        pair.create_topic("half", 2)
        lost = pair.leader_of("half", 1)
        pair.kill_broker(lost)
        report = doctor(pair.bootstrap_servers.split(",")[2 - lost], "--topic", "half", "--write")
    assert report.code == TOPIC
    assert report.failed()["facts"]["leaderless"] == [1]
    assert report.of("write", "skipped")


def test_too_few_replicas_in_sync(doctor):
    with EmbeddedCluster(2) as pair:
        pair.create_topic("strict", 1, 2, {"min.insync.replicas": "2"})
        pair.kill_broker(2)
        report = doctor(pair.bootstrap_servers.split(",")[0], "--topic", "strict", "--write")
    assert report.code == TOPIC
    assert "fewer than 2 replicas (min.insync.replicas) are in sync in 1 partition (0)" in report.failed()["text"]


def test_more_replicas_demanded_than_there_are(doctor, cluster):
    cluster.create_topic("never", 1, 1, {"min.insync.replicas": "3"})
    report = doctor(cluster.bootstrap_servers, "--topic", "never")
    assert report.code == TOPIC
    assert "no record can ever be acknowledged" in report.failed()["text"]
    report = doctor(cluster.bootstrap_servers, "--topic", "never", acks=1, enable_idempotence="false")
    assert report.code == 0
    assert "acks=1" in report.of("topic", "warning")[0]["text"]


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ({"max.message.bytes": "10000"}, "the brokers reject full batches"),
        ({"max.message.bytes": "500000"}, "the producer accepts records of up to 1.0 MiB"),
        ({"retention.ms": "60000"}, "records are kept for 60 s"),
        ({"cleanup.policy": "compact"}, "cleanup.policy=compact"),
        ({"compression.type": "zstd"}, "the brokers compress every batch again"),
    ],
)
def test_settings_that_do_not_fit_the_producers(doctor, cluster, configs, told):
    topic = f"t{abs(hash(tuple(configs.items())))}"
    cluster.create_topic(topic, configs=configs)
    report = doctor(cluster.bootstrap_servers, "--topic", topic)
    assert report.code == 0
    assert any(told in each["text"] for each in report.of("topic", "warning"))


# --- Access ---


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(authorizer_class_name="StandardAuthorizer") as started:
        for topic in ("hidden", "read-only", "unknown-settings"):
            started.create_topic(topic)
        started.add_acl(operation="DESCRIBE", topic="read-only")
        started.add_acl(operation="DESCRIBE_CONFIGS", topic="read-only")
        started.add_acl(operation="WRITE", topic="unknown-settings")
        yield started


def test_a_topic_that_may_not_be_described(doctor, guarded):
    report = doctor(guarded.bootstrap_servers, "--topic", "hidden", "--write")
    assert (report.code, report.failed()["step"]) == (ACCESS, "access")
    assert "WRITE on TOPIC 'hidden'" in report.failed()["advice"]


def test_a_topic_that_is_read_only(doctor, guarded):
    report = doctor(guarded.bootstrap_servers, "--topic", "read-only", "--write")
    assert report.code == ACCESS
    assert "read-only" in report.failed()["text"]
    assert guarded.records("read-only", 0) == []


def test_settings_that_may_not_be_read(doctor, guarded):
    report = doctor(guarded.bootstrap_servers, "--topic", "unknown-settings", "--write")
    assert report.code == 0
    (skipped,) = report.of("topic", "skipped")
    assert "DESCRIBE_CONFIGS on TOPIC 'unknown-settings'" in skipped["text"]
    assert report.of("write", "ok")


def test_a_topic_of_kafkas_own(doctor, cluster):
    cluster.create_topic("__consumer_offsets")
    report = doctor(cluster.bootstrap_servers, "--topic", "__consumer_offsets", "--write")
    assert report.code == ACCESS
    assert "one of Kafka's own topics" in report.failed()["text"]


# --- Writing ---


def test_a_record_that_is_too_large(doctor, cluster):
    cluster.create_topic("tiny", configs={"max.message.bytes": "40"})
    report = doctor(cluster.bootstrap_servers, "--topic", "tiny", "--write")
    assert (report.code, report.failed()["step"]) == (WRITE, "write")
    assert "MessageSizeTooLargeError" in report.failed()["text"]


@pytest.mark.parametrize("error", [InvalidRecordError, KafkaStorageError])
def test_a_broker_that_rejects_records(doctor, error):
    with EmbeddedCluster() as odd:
        odd.create_topic("t")
        odd.inject(ApiKey.PRODUCE, Fault(error=error), times=None)
        report = doctor(odd.bootstrap_servers, "--topic", "t", "--write", timeout_ms=1000)
    assert report.code == WRITE
    assert error.__name__ in report.failed()["text"]


def test_a_broker_that_never_acknowledges(doctor):
    with EmbeddedCluster() as odd:
        odd.create_topic("t")
        odd.inject(ApiKey.PRODUCE, Fault(silent=True), times=None)
        report = doctor(odd.bootstrap_servers, "--topic", "t", "--write", timeout_ms=500)
    assert report.code == WRITE


def test_a_clock_that_is_wrong(doctor):
    with EmbeddedCluster(clock=_SlowClock()) as late:
        late.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
        report = doctor(late.bootstrap_servers, "--topic", "t", "--write")
    assert report.code == 0
    (warned,) = report.of("clock", "warning")
    assert warned["facts"]["skew_ms"] == pytest.approx(-60_000, abs=1000 + warned["facts"]["error_ms"])
    assert "behind" in warned["text"]


def test_a_running_transaction_is_not_taken_over(doctor, cluster):
    cluster.create_topic("till")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="till-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("till", b"v")
        report = doctor(cluster.bootstrap_servers, "--topic", "till", "--write", transactional_id="till-1")
        assert report.code == 0
        producer.commit_transaction()


# --- Options ---


@pytest.mark.parametrize(
    ("arguments", "keys", "told"),
    [
        (["--write"], {}, "--write needs --topic"),
        (["--topic", "a b"], {}, "a b"),
        ([], {"lingr_ms": 5}, "is not a configuration key; did you mean linger.ms?"),
        ([], {"security_protocol": "SSL", "ssl_truststore_location": "/does/not/exist.pem"}, "/does/not/exist.pem"),
        (["--command-property", "acks"], {}, "--command-property takes KEY=VALUE"),
    ],
)
def test_a_wrong_configuration(doctor, arguments, keys, told):
    report = doctor("localhost:9092", *arguments, **keys)
    assert (report.code, report.failed()["step"]) == (CONFIGURATION, "configuration")
    assert told in report.failed()["text"]


# --- In a terminal, in a pipe, and interrupted ---


def test_the_text_names_the_step_and_the_advice(cluster, capsys):
    assert main(["doctor", "-b", "127.0.0.1:1"]) == TCP
    out = capsys.readouterr().out
    assert "FAIL  TCP            127.0.0.1:1: cannot connect to 127.0.0.1:1: Connection refused" in out
    assert out.splitlines()[-1] == "1 failed, 0 warnings; the first step that fails: TCP"
    assert main(["doctor", "-b", cluster.bootstrap_servers]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no step failed, 0 warnings"


def test_a_terminal_and_a_pipe_show_the_same(cluster):
    arguments = [*HEADRACE, "doctor", "-b", cluster.bootstrap_servers]
    piped = subprocess.run(arguments, capture_output=True, check=True, timeout=60)
    assert b"\x1b" not in piped.stdout
    terminal, inner = pty.openpty()
    with child(arguments, stdout=inner, stderr=inner) as running:
        os.close(inner)
        shown = b""
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 65536):
                shown += part
    os.close(terminal)
    assert running.returncode == 0
    assert b"no step failed" in shown


@pytest.mark.parametrize("option", ["", "--json"])
def test_ctrl_c_ends_it_with_what_is_known(serve, option):
    accepted = threading.Event()
    arguments = [*HEADRACE, "doctor", "-b", serve(lambda sock: accepted.set()), *([option] if option else [])]
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    accepted.wait(60)
    if not option:
        assert running.stdout is not None
        while "TLS" not in running.stdout.readline():
            assert running.poll() is None
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in out + err
    if option:
        content = json.loads(out)
        assert content["interrupted"]
        assert content["findings"][0]["step"] == "configuration"


class _SlowClock(Clock):
    """A wall clock that is a minute behind."""

    def wall_ms(self) -> int:
        return super().wall_ms() - 60_000
