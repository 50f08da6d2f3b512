"""A producer over SASL against the embedded broker: mechanisms, failures at every step, and sessions that end."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from typing import Any

import pytest
from support.fault_proxy import FaultProxy
from support.waiting import wait_until

from headrace.broker import ApiKey, EmbeddedCluster, Fault
from headrace.network.protocol.errors import (
    DeliveryTimeoutError,
    IllegalSaslStateError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from headrace.network.protocol.messages.security.sasl_authenticate import SaslAuthenticateResponse
from headrace.producer import KafkaProducer

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECRET = "hush-hush, =\u00e9"
#: The requests of one authentication, in order: the nth of that API.
STEPS = [
    (ApiKey.API_VERSIONS, 0),
    (ApiKey.SASL_HANDSHAKE, 0),
    (ApiKey.SASL_AUTHENTICATE, 0),
    (ApiKey.SASL_AUTHENTICATE, 1),
]


def sasl(mechanism: str = "SCRAM-SHA-256", password: str | None = SECRET, **others: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        **({"sasl_plain_username": "alice", "sasl_plain_password": password} if password is not None else {}),
        **others,
    }


def nth(at: int, fault: Fault):
    """A handler with the fault for the request number `at`, counted from 0."""
    left = iter([None] * at + [fault])
    return lambda context, request: next(left, None)


def count(cluster: EmbeddedCluster, api_key: ApiKey) -> int:
    return sum(each.api_key is api_key for each in cluster.requests)


@pytest.fixture
def cluster():
    with EmbeddedCluster(users={"alice": SECRET}, connection_failed_authentication_delay_ms=0) as running:
        yield running


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_are_delivered_and_the_broker_knows_who_sent_them(cluster, mechanism):
    principals = set()

    def look(context, request) -> None:
        principals.add(context.connection.principal)

    cluster.on_request(ApiKey.PRODUCE, look)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl(mechanism)) as producer:
        assert producer.send("t", value=b"v").get(30).offset == 0
    assert principals == {"User:alice"}


@pytest.mark.parametrize("keys", [
    {"sasl.mechanisms": "PLAIN", "sasl.username": "alice", "sasl.password": SECRET},
    {"sasl.mechanism": "PLAIN", "sasl.jaas.config":
     f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{SECRET}";'},
    {"sasl.jaas.config":
     f'org.apache.kafka.common.security.plain.PlainLoginModule required username=alice password="{SECRET}";'},
    {"sasl.mechanism": "SCRAM-SHA-512", "sasl.credentials": lambda: ("alice", SECRET)},
])  # fmt: skip
def test_the_spellings_of_other_clients(cluster, keys):
    config = {"bootstrap.servers": cluster.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT", **keys}
    with KafkaProducer(config) as producer:
        producer.send("t", value=b"v").get(30)
        assert SECRET not in repr(producer.config)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_typed_at_once_and_retried_without_a_storm(cluster, mechanism, caplog):
    caplog.set_level(logging.DEBUG)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl(mechanism, "guess-guess")) as producer:
        for _ in range(2):
            with pytest.raises(SaslAuthenticationFailedError, match=f"rejected the {mechanism} credentials") as failed:
                producer.send("t", value=b"v")
            assert "guess-guess" not in str(failed.value)
        before = count(cluster, ApiKey.SASL_HANDSHAKE)
        time.sleep(3)
        after = count(cluster, ApiKey.SASL_HANDSHAKE)
        assert 1 <= after - before <= 12
        # the user gets this password: the producer recovers by itself
        cluster.set_password("alice", "guess-guess")
        wait_until(lambda: _sends(producer))
    text = caplog.text
    assert "guess-guess" not in text
    assert SECRET not in text
    assert (
        len([each for each in caplog.records if each.levelno >= logging.WARNING and "network_client" in each.name]) <= 2
    )


def _sends(producer: KafkaProducer) -> bool:
    try:
        producer.send("t", value=b"v").get(30)
    except SaslAuthenticationFailedError:
        return False
    return True


def test_a_mechanism_that_is_not_offered_names_those_that_are():
    with (
        EmbeddedCluster(users={"alice": SECRET}, sasl_enabled_mechanisms="SCRAM-SHA-512,PLAIN") as cluster,
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl()) as producer,
        pytest.raises(UnsupportedSaslMechanismError, match=r"but SCRAM-SHA-512 and PLAIN; change sasl\.mechanism"),
    ):
        producer.send("t", value=b"v")


def test_a_listener_without_sasl_is_named():
    with (
        EmbeddedCluster() as cluster,
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl()) as producer,
        pytest.raises(IllegalSaslStateError, match=r"security\.protocol"),
    ):
        producer.send("t", value=b"v")


def test_a_client_without_sasl_is_told_what_to_set(cluster, caplog):
    what = "closed the connection before it answered a request: if its listener expects SASL, set security.protocol"
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=1500) as producer,
        pytest.raises(KafkaTimeoutError, match=what),
    ):
        producer.send("t", value=b"v")
    # at once, and not again at each attempt
    assert [what in entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING] == [True]
    assert count(cluster, ApiKey.API_VERSIONS) < 30


@pytest.mark.parametrize(("api_key", "at"), STEPS)
def test_a_broker_that_stalls_at_a_step_is_left_and_tried_again(cluster, api_key, at):
    cluster.on_request(api_key, nth(at, Fault(silent=True)), times=1)
    settings = sasl(socket_connection_setup_timeout_ms=300, request_timeout_ms=600, delivery_timeout_ms=60_000)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        assert producer.send("t", value=b"v").get(30).offset == 0
    assert count(cluster, ApiKey.API_VERSIONS) >= 2


@pytest.mark.parametrize(("api_key", "at"), STEPS[1:])
def test_a_broker_that_stalls_for_good_has_a_typed_error_in_time(cluster, api_key, at):
    if at:
        cluster.on_request(
            api_key, lambda context, request: Fault(silent=True) if request.auth_bytes[:2] == b"c=" else None
        )
    else:
        cluster.inject(api_key, Fault(silent=True), times=None)
    settings = sasl(
        socket_connection_setup_timeout_ms=200, socket_connection_setup_timeout_max_ms=200, max_block_ms=2000
    )
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        began = time.monotonic()
        with pytest.raises(KafkaTimeoutError, match="did not authenticate this client within 200 ms"):
            producer.send("t", value=b"v")
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(("api_key", "at"), STEPS)
@pytest.mark.parametrize("size_bytes", [0, 2, 9])
def test_a_connection_cut_at_a_step_is_made_again(cluster, api_key, at, size_bytes):
    cluster.on_request(api_key, nth(at, Fault(cut_after_bytes=size_bytes)), times=1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl()) as producer:
        assert producer.send("t", value=b"v").get(30).offset == 0


def test_a_connection_cut_at_every_byte_of_a_request_is_made_again(cluster):
    host, port = cluster.bootstrap_servers.split(":")
    with FaultProxy((host, int(port))) as proxy:
        for size_bytes in range(1, 40, 6):
            fault = proxy.request(ApiKey.SASL_AUTHENTICATE).cut(at=size_bytes)
            with KafkaProducer(bootstrap_servers=proxy.bootstrap_servers, **sasl()) as producer:
                producer.send("t", value=b"v").get(30)
            fault.wait()


@pytest.mark.parametrize(
    ("first", "final", "problem"),
    [
        (b"r=%s-server,s=c2FsdA==,i=1", None, "requests 1 iterations; 4096 to 1000000 are accepted"),
        (b"r=%s-server,s=c2FsdA==,i=2000000000", None, "requests 2000000000 iterations"),
        (b"r=another-server,s=c2FsdA==,i=4096", None, "belongs to another exchange"),
        (b"r=%s-server,s=c2Fsd", None, "not base64|ends before"),
        (b"", None, "server-first"),
        (b"r=%s-server,s=c2FsdA==,i=4096", b"v=AAAA", "signature is wrong"),
        (b"r=%s-server,s=c2FsdA==,i=4096", b"", "server-final"),
        (b"r=%s-server,s=c2FsdA==,i=4096", b"e=invalid-proof", "rejected the SCRAM proof"),
    ],
)
def test_altered_messages_are_refused(cluster, first, final, problem):
    def answer(context, request) -> Fault | None:
        message = bytes(request.auth_bytes)
        if message.startswith(b"n,,"):
            nonce = message.rpartition(b"r=")[2]
            return Fault(response=SaslAuthenticateResponse(auth_bytes=first.replace(b"%s", nonce)))
        return Fault(response=SaslAuthenticateResponse(auth_bytes=final or b""))

    cluster.on_request(ApiKey.SASL_AUTHENTICATE, answer)
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl()) as producer,
        pytest.raises(SaslAuthenticationFailedError, match=problem),
    ):
        producer.send("t", value=b"v")


@pytest.mark.parametrize("limit_bytes", [None, 100_000])
def test_an_oversized_message_of_the_broker_is_refused(cluster, limit_bytes):
    huge = SaslAuthenticateResponse(auth_bytes=b"r=" + b"x" * 1_000_000)
    cluster.inject(ApiKey.SASL_AUTHENTICATE, Fault(response=huge), times=None)
    limits = {} if limit_bytes is None else {"receive_message_max_bytes": limit_bytes}
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=3_000, **sasl(**limits)) as producer,
        pytest.raises(KafkaError, match=r"another exchange|server-first|above the limit of 100000") as failed,
    ):
        producer.send("t", value=b"v")
    assert len(str(failed.value)) < 2_000


def test_a_replayed_exchange_is_refused(cluster):
    recorded: list[bytes] = []
    replay: list[bytes] = []

    def answer(context, request) -> Fault | None:
        if replay:
            return Fault(response=SaslAuthenticateResponse(auth_bytes=replay.pop(0)))
        recorded.append(bytes(request.auth_bytes))
        return None

    cluster.on_request(ApiKey.SASL_AUTHENTICATE, answer)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl()) as producer:
        producer.send("t", value=b"v").get(30)
    nonces = recorded[1].split(b",")[1][2:]
    replay.append(b"r=" + nonces + b",s=c2FsdA==,i=4096")
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl()) as producer,
        pytest.raises(SaslAuthenticationFailedError, match="another exchange"),
    ):
        producer.send("t", value=b"v")


def test_batches_that_need_the_producer_id_fail_at_once(cluster):
    cluster.create_topic("t")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl()) as producer:
        assert producer.partitions_for("t") == {0}
        cluster.set_password("alice", "another")
        cluster.close_connections(1)
        future = producer.send("t", value=b"v")
        with pytest.raises(SaslAuthenticationFailedError):
            future.get(30)
        cluster.set_password("alice", SECRET)
        wait_until(lambda: _sends(producer))


def test_batches_for_a_broker_that_alone_refuses_wait_for_the_delivery_timeout():
    with EmbeddedCluster(2, users={"alice": SECRET}, connection_failed_authentication_delay_ms=0) as cluster:
        cluster.create_topic("t", num_partitions=2)
        led = {cluster.leader_of("t", each): each for each in range(2)}
        (good, bad) = led
        settings = sasl(delivery_timeout_ms=3000, request_timeout_ms=1000, linger_ms=0)
        at_good = cluster.bootstrap_servers.split(",")[sorted(led).index(good)]
        with KafkaProducer(bootstrap_servers=at_good, **settings) as producer:
            producer.send("t", value=b"v", partition=led[good]).get(30)
            refuse = Fault(error=SaslAuthenticationFailedError)
            registration = cluster.inject(ApiKey.SASL_AUTHENTICATE, refuse, times=None, node_id=bad)
            cluster.close_connections(bad)
            waits = producer.send("t", value=b"v", partition=led[bad])
            for _ in range(5):
                producer.send("t", value=b"v", partition=led[good]).get(30)
            with pytest.raises(DeliveryTimeoutError, match="rejected the SCRAM-SHA-256 credentials") as failed:
                waits.get(30)
            assert isinstance(failed.value.__cause__, SaslAuthenticationFailedError)
            registration.remove()
            producer.send("t", value=b"v", partition=led[bad]).get(30)


def test_a_callable_rotates_the_password(cluster):
    passwords = [SECRET]
    threads = set()

    def credentials() -> tuple[str, str]:
        threads.add(threading.current_thread().name)
        return "alice", passwords[-1]

    settings = sasl(password=None, sasl_credentials=credentials, delivery_timeout_ms=60_000)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        producer.send("t", value=b"v").get(30)
        passwords.append("the next one")
        cluster.set_password("alice", passwords[-1])
        cluster.close_connections(1)
        producer.send("t", value=b"v").get(30)
    assert threads == {"headrace-credentials"}


def test_a_callable_that_raises_or_blocks_holds_up_authentication_only(cluster):
    blocked, is_blocked = threading.Event(), threading.Event()
    answers: list[Any] = [ValueError("hush"), 5, ("alice", "")]

    def credentials() -> Any:
        if not answers:
            is_blocked.set()
            blocked.wait(60)
            return "alice", SECRET
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    settings = sasl(password=None, sasl_credentials=credentials)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        for problem in ("raised ValueError", "returned a int", "the password is empty"):
            with pytest.raises(SaslAuthenticationFailedError, match=problem) as failed:
                _until_it_is_another_error(producer, problem)
            assert "hush" not in str(failed.value)
        waiting = threading.Thread(target=wait_until, args=(lambda: _sends(producer),))
        waiting.start()
        wait_until(is_blocked.is_set)
        blocked.set()
        waiting.join()
    assert len(cluster.records("t", 0)) == 1


def _until_it_is_another_error(producer: KafkaProducer, problem: str) -> None:
    """A result is used for a second, so the error before may come several times."""
    while True:
        try:
            producer.send("t", value=b"v")
        except SaslAuthenticationFailedError as error:
            if problem in str(error):
                raise


def _ask_for_new_topics(producer: KafkaProducer) -> None:
    """Wait for metadata again and again, until that fails."""
    for number in itertools.count():
        producer.partitions_for(f"topic-{number}")


# --- Sessions ---


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sessions_are_renewed_under_load_and_nothing_is_lost(mechanism):
    with EmbeddedCluster(2, users={"alice": SECRET}, connections_max_reauth_ms=2000) as cluster:
        cluster.create_topic("t", num_partitions=4)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl(mechanism, linger_ms=0)) as producer:
            futures = []
            end = time.monotonic() + 6.5
            while time.monotonic() < end:
                futures += [producer.send("t", value=b"%d" % len(futures), partition=each) for each in range(4)]
                time.sleep(0.002)
            for future in futures:
                future.get(30)
        records = sum(len(cluster.records("t", each)) for each in range(4))
        assert records == len(futures)
        renewals = Counter(each.connection_id for each in cluster.requests if each.api_key is ApiKey.SASL_HANDSHAKE)
        producing = {each.connection_id for each in cluster.requests if each.api_key is ApiKey.PRODUCE}
        assert sum(renewals[each] - 1 for each in producing) >= 4


def test_an_idle_connection_is_renewed_by_the_next_record(cluster):
    with (
        EmbeddedCluster(users={"alice": SECRET}, connections_max_reauth_ms=1200) as short,
        KafkaProducer(bootstrap_servers=short.bootstrap_servers, **sasl()) as producer,
    ):
        producer.send("t", value=b"v").get(30)
        before = count(short, ApiKey.SASL_HANDSHAKE)
        time.sleep(2.5)
        assert count(short, ApiKey.SASL_HANDSHAKE) == before
        assert producer.send("t", value=b"v").get(30).offset == 1
        written = [each.connection_id for each in short.requests if each.api_key is ApiKey.PRODUCE]
        assert len(set(written)) == 1, "it is another connection"
        assert count(short, ApiKey.SASL_HANDSHAKE) == before + 1


def test_short_sessions_do_not_keep_idle_connections_open(caplog):
    with (
        caplog.at_level("DEBUG", "headrace.network"),
        EmbeddedCluster(users={"alice": SECRET}, connections_max_reauth_ms=1200) as short,
        KafkaProducer(bootstrap_servers=short.bootstrap_servers, **sasl(connections_max_idle_ms=2_000)) as producer,
    ):
        producer.send("t", value=b"v").get(30)
        # it connects again at once, for metadata
        wait_until(lambda: "without traffic (connections.max.idle.ms is 2000)" in caplog.text)
        producer.send("t", value=b"v").get(30)


def test_a_session_with_a_full_pipeline_and_throttling_is_renewed():
    with EmbeddedCluster(users={"alice": SECRET}, connections_max_reauth_ms=1500) as cluster:
        slow = {"handled": 0}

        def delay(context, request) -> Fault:
            slow["handled"] += 1
            return Fault(delay_ms=100, throttle_ms=50 if slow["handled"] % 4 == 0 else 0)

        cluster.on_request(ApiKey.PRODUCE, delay)
        settings = sasl(linger_ms=0, batch_size=0)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
            futures = []
            end = time.monotonic() + 4
            while time.monotonic() < end:
                futures.append(producer.send("t", value=b"v"))
                time.sleep(0.01)
            for future in futures:
                future.get(60)
        assert len(cluster.records("t", 0)) == len(futures)
        assert count(cluster, ApiKey.SASL_HANDSHAKE) >= 4


def test_another_principal_gets_a_new_connection_and_nothing_is_lost():
    names = iter(["alice", *["bob"] * 1000])
    settings = sasl("PLAIN", None, sasl_credentials=lambda: (next(names), SECRET), linger_ms=0)
    with EmbeddedCluster(users={"alice": SECRET, "bob": SECRET}, connections_max_reauth_ms=1500) as cluster:
        principals = []

        def look(context, request) -> None:
            principals.append(context.connection.principal)

        cluster.on_request(ApiKey.PRODUCE, look)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
            sent = 0
            while "User:bob" not in principals:
                producer.send("t", value=b"v").get(30)
                sent += 1
                time.sleep(0.01)
        assert principals[0] == "User:alice"
        assert len(cluster.records("t", 0)) == sent


def test_a_password_that_is_changed_during_a_session_ends_it_with_the_error():
    with (
        EmbeddedCluster(users={"alice": SECRET}, connections_max_reauth_ms=1200) as cluster,
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **sasl("PLAIN")) as producer,
    ):
        producer.send("t", value=b"v").get(30)
        cluster.set_password("alice", "another")
        with pytest.raises(SaslAuthenticationFailedError, match="PLAIN credentials"):
            _ask_for_new_topics(producer)
        cluster.set_password("alice", SECRET)
        wait_until(lambda: _sends(producer))
