"""The page of KIPs: the improvement proposals of Kafka that concern a producer, and whether this one has them.

Each row names its evidence, from which `docs/generate.py` takes the state: a key that exists, a version of an API, a
module. So the page can't claim what the code lacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from headrace.network.protocol.api import ApiKey, requests
from headrace.producer import KafkaProducer
from headrace.producer.config import ProducerConfig

ROOT = Path(__file__).resolve().parent.parent


class Kip(NamedTuple):
    """One proposal. `evidence` is `key NAME`, `default NAME TEXT`, `api NAME VERSION`, `method NAME`, `file PATH`, or
    `none` for what does not apply to this producer."""

    number: int
    title: str
    evidence: str
    remark: str = ""

    def state(self) -> tuple[str, str]:
        """Whether the producer has it, and where. Raises ValueError for evidence that no rule knows."""
        kind, _, rest = self.evidence.partition(" ")
        if kind == "none":
            return "not applicable", self.remark
        if kind in ("key", "default"):
            return self._state_of_key(*rest.split(" "))
        if kind == "api":
            name, version = rest.split(" ")
            highest = requests[ApiKey[name]].versions.max
            if highest >= int(version):
                return "yes", self.remark or f"{_words(name)} up to version {highest}"
            return "no", self.remark or f"{_words(name)} up to version {highest}, not {version}"
        if kind == "method":
            exists = hasattr(KafkaProducer, rest)
            return ("yes", self.remark or f"`KafkaProducer.{rest}`") if exists else ("no", self.remark)
        if kind == "file":
            if not (ROOT / rest).exists():
                raise ValueError(f"KIP-{self.number} names {rest}, which does not exist")
            return "yes", self.remark or f"`{rest}`"
        raise ValueError(f"KIP-{self.number} has evidence {self.evidence!r}")

    def _state_of_key(self, name: str, default: str | None = None) -> tuple[str, str]:
        entry = ProducerConfig.find(name)
        if entry is None:
            return "no", ProducerConfig.why_left_out(name) or self.remark
        if default is not None and entry.text(entry.default) != default:
            return "no", f"the default of `{name}` is {entry.text(entry.default)}"
        stated = f"`{name}`" if default is None else f"`{name}={default}`"
        return "yes", self.remark or stated


def _words(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


_OWN = "only the producer's own metrics are pushed (KIP-714)"

#: Release of Kafka -> its proposals.
KIPS: dict[str, tuple[Kip, ...]] = {
    "Kafka 4.4": (
        Kip(1123, "Rack-aware partitioning", "key partitioner.rack.aware"),
        Kip(909, "Timeout for resolving bootstrap servers", "key bootstrap.resolve.timeout.ms"),
        Kip(1242, "Detection of a wrong cluster or node", "key metadata.cluster.check.enable"),
        Kip(1319, "Topic ids in TxnOffsetCommit", "api TXN_OFFSET_COMMIT 6"),
        Kip(1332, "Memory of batches in chunks", "file producer/accumulator/batch_memory_cy.py", "always on"),
    ),
    "Kafka 4.3": (
        Kip(1258, "OAuth client credentials with an assertion", "key sasl.oauthbearer.assertion.private.key.file"),
    ),
    "Kafka 4.2": (
        Kip(1228, "Transaction version in WriteTxnMarkers", "api WRITE_TXN_MARKERS 2", "in the embedded broker"),
        Kip(1205, "Thread-safe headers", "none", "headers are an argument of `send`, which reads them once"),
        Kip(1120, "The tag client-id of app-info metrics", "file producer/metrics.py"),
        Kip(1147, "Uniform options of the command-line tools", "file cli/perf/__init__.py", "`headrace perf`"),
    ),
    "Kafka 4.1": (
        Kip(1139, "OAuth JWT bearer grant", "key sasl.oauthbearer.grant.type"),
        Kip(1050, "Uniform error handling of transactions", "file producer/sender/transaction_errors.py"),
        Kip(516, "Topic ids in Produce", "api PRODUCE 13"),
    ),
    "Kafka 4.0": (
        Kip(
            890,
            "Transactions that a late request can't disturb",
            "api END_TXN 5",
            "and the classic protocol",
        ),
        Kip(1102, "Rebootstrap after a time, or when a broker asks", "key metadata.recovery.rebootstrap.trigger.ms"),
        Kip(896, "No protocol versions older than Kafka 2.1", "none", "brokers from Kafka 0.10 are supported"),
        Kip(1030, "New defaults", "default linger.ms 5", "`linger.ms=5`; 0 in `AsyncKafkaProducer`"),
        Kip(1076, "An application's own metrics for brokers", "method register_metric_for_subscription", _OWN),
    ),
    "Kafka 3.7 to 3.9": (
        Kip(714, "Client metrics for brokers", "key enable.metrics.push"),
        Kip(951, "The new leader in the response", "api PRODUCE 10"),
        Kip(899, "Rebootstrap", "key metadata.recovery.strategy"),
        Kip(1025, "URL-encoded OAuth credentials", "key sasl.oauthbearer.header.urlencode"),
        Kip(390, "Levels of compression", "key compression.zstd.level"),
    ),
    "Before Kafka 3.7": (
        Kip(32, "Timestamps of records", "api PRODUCE 2"),
        Kip(35, "Versions that the broker supports", "file network/client/api_versions.py"),
        Kip(42, "Interceptors", "key interceptor.classes"),
        Kip(43, "SASL mechanisms", "key sasl.mechanism"),
        Kip(57, "Standard LZ4 frames", "file network/records/compression.py"),
        Kip(82, "Headers", "file network/records/headers_cy.py"),
        Kip(84, "SCRAM", "file network/security/scram.py"),
        Kip(85, "JAAS in the configuration", "key sasl.jaas.config"),
        Kip(91, "One timeout for delivery", "key delivery.timeout.ms"),
        Kip(98, "Idempotence and transactions", "key transactional.id"),
        Kip(110, "zstd", "key compression.zstd.level"),
        Kip(126, "Splitting batches that are too large", "file producer/accumulator/batch_split.py"),
        Kip(144, "Backoff of connections that grows", "key reconnect.backoff.max.ms"),
        Kip(152, "Errors of authentication", "file network/client/authenticator.py"),
        Kip(219, "Throttling by the client", "file network/client/connection_states_cy.py"),
        Kip(235, "Canonical names of bootstrap servers", "key client.dns.lookup"),
        Kip(255, "OAUTHBEARER", "key sasl.oauth.token.provider"),
        Kip(342, "SASL extensions", "key sasl.oauthbearer.extensions"),
        Kip(360, "New epochs after lost state", "api INIT_PRODUCER_ID 3"),
        Kip(368, "Re-authentication", "file network/client/authentications.py"),
        Kip(447, "Group metadata in transactions", "api TXN_OFFSET_COMMIT 3"),
        Kip(467, "Errors of single records", "api PRODUCE 8"),
        Kip(482, "Tagged fields", "file network/protocol/types.py"),
        Kip(511, "The client's name and version", "api API_VERSIONS 3"),
        Kip(526, "Forgetting topics that receive nothing", "key metadata.max.idle.ms"),
        Kip(580, "Backoff of retries that grows", "key retry.backoff.max.ms"),
        Kip(588, "Recovery from expired transactions", "file producer/sender/transaction_requests.py"),
        Kip(601, "Timeout for connecting", "key socket.connection.setup.timeout.ms"),
        Kip(602, "All addresses of a name", "default client.dns.lookup 'use_all_dns_ips'"),
        Kip(651, "Certificates in PEM", "key ssl.keystore.certificate.chain"),
        Kip(654, "An error of its own for aborted records", "file producer/sender/transaction.py"),
        Kip(679, "Idempotence and acks=all by default", "default enable.idempotence True"),
        Kip(768, "OAuth with OIDC", "key sasl.oauthbearer.token.endpoint.url"),
        Kip(794, "Uniform sticky partitioning", "key partitioner.adaptive.partitioning.enable"),
    ),
    "In no release": (
        Kip(939, "Two-phase commit", "key transaction.two.phase.commit.enable"),
        Kip(782, "Batches that grow while they wait", "key batch.max.size"),
    ),
}


def kips(notice: str) -> str:
    """The page."""
    parts = [
        notice.format(source="docs/kip_table.py and the code"),
        "# KIPs\n",
        """\
The Kafka Improvement Proposals that concern a producer, up to Kafka 4.4, and their state here. The state is read from
the code when this page is generated. Proposals about consumers, Streams, Connect and the administration of brokers are
not listed.
""",
    ]
    for release, listed in KIPS.items():
        parts.append(f"## {release}\n")
        parts.append(
            "| KIP | what it brings | state | where, or why not |\n|---|---|---|---|\n" + "".join(_rows(listed))
        )
    return "\n".join(parts)


def _rows(listed: Iterable[Kip]) -> Iterable[str]:
    for kip in listed:
        state, where = kip.state()
        yield f"| KIP-{kip.number} | {kip.title} | {state} | {where} |\n"
