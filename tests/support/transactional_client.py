"""A transactional producer of single requests: each step of a transaction can be repeated, left out, or interrupted.

It finds coordinators and leaders, follows them when they move, and retries what a real producer retries.
"""

from __future__ import annotations

import contextlib
from typing import Any

from headrace.network.addresses import Address
from headrace.network.client.blocking_connection import BlockingConnection
from headrace.network.protocol.errors import KafkaConnectionError, make_error
from headrace.network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from headrace.network.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.network.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.network.protocol.messages.transactions.end_txn import EndTxnRequest
from headrace.network.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.network.records.builder_cy import build_batch

GROUP, TRANSACTION = 0, 1
#: What a producer retries: coordinator and leader moves, concurrent transactions, too few replicas.
RETRIABLE = {3, 5, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56, 88}
MAX_TRIES = 3_000
TIMEOUT_MS = 10_000


class TransactionalClient:
    """One producer. `bumps`: whether it speaks the newer protocol (KIP-890)."""

    def __init__(self, cluster: Any, name: str, *, bumps: bool = True, timeout_ms: int = 60_000) -> None:
        self.cluster = cluster
        self.name = name
        self.bumps = bumps
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.added: set[tuple[str, int]] = set()
        self._connections: dict[tuple[str, int], BlockingConnection] = {}

    def __enter__(self) -> TransactionalClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # --- Steps ---

    def init(self, **expected: int) -> int:
        """InitProducerId. Returns the error code."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.timeout_ms, **expected)
        answer = self._retry(lambda: self._ask_coordinator(request, 5), lambda answer: answer.error_code)
        if not answer.error_code:
            self._take(answer.producer_id, answer.producer_epoch)
        return answer.error_code

    def add(self, topic: str, partition: int = 0) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )

        def code(answer: Any) -> int:
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        found = code(self._retry(lambda: self._ask_coordinator(request, 3), code))
        if not found:
            self.added.add((topic, partition))
        return found

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Write a batch, and add its partition first if the protocol wants that. Returns the error code."""
        key = (topic, partition)
        if not self.bumps and key not in self.added and (code := self.add(topic, partition)):
            return code
        sequence = self.sequences.get(key, 0)
        batch = build_batch(
            [(1_700_000_000_000, None, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            attributes=0x10,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
        version = 12 if self.bumps else 11
        answer = self._retry(
            lambda: self._ask_leader(topic, partition, request, version),
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        )
        code = answer.responses[0].partition_responses[0].error_code
        if not code:
            self.sequences[key] = sequence + len(values)
        return code

    def commit_offset(self, group: str, topic: str, offset: int) -> int:
        """TxnOffsetCommit, after AddOffsetsToTxn if the protocol wants that. Returns the error code."""
        if not self.bumps:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
            )
            answer = self._retry(lambda: self._ask_coordinator(add, 3), lambda answer: answer.error_code)
            if answer.error_code:
                return answer.error_code
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        version = 5 if self.bumps else 3
        answer = self._retry(
            lambda: self._ask_coordinator(request, version, kind=GROUP, key=group),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        return answer.topics[0].partitions[0].error_code

    def end(self, *, commit: bool) -> int:
        """EndTxn. Returns the error code."""
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        version = 5 if self.bumps else 4
        answer = self._retry(lambda: self._ask_coordinator(request, version), lambda answer: answer.error_code)
        if not answer.error_code:
            if self.bumps:
                self._take(answer.producer_id, answer.producer_epoch)
            self.added.clear()
        return answer.error_code

    def committed_offset(self, group: str, topic: str) -> int:
        """The group's offset, once no transaction changes it."""
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
        )
        answer = self._retry(
            lambda: self._ask_coordinator(request, 8, kind=GROUP, key=group),
            lambda answer: (
                answer.groups[0].error_code
                or max([each.error_code for found in answer.groups[0].topics for each in found.partitions], default=0)
            ),
        )
        return next(
            (found.partitions[0].committed_offset for found in answer.groups[0].topics if found.name == topic), -1
        )

    def _take(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.sequences.clear()
        self.added.clear()

    # --- Requests ---

    def coordinator(self, kind: int = TRANSACTION, key: str = "") -> tuple[str, int]:
        """The address of a coordinator."""

        def ask() -> Any:
            for address in self.cluster.bootstrap_servers.split(","):
                host, _, port = address.rpartition(":")
                with contextlib.suppress(KafkaConnectionError):
                    request = FindCoordinatorRequest(key=key or self.name, key_type=kind)
                    return self.connection(host, int(port)).request(request, 3)
            return None

        found = self._retry(ask, lambda answer: answer.error_code)
        return found.host, found.port

    def connection(self, host: str, port: int) -> BlockingConnection:
        known = self._connections.get((host, port))
        if known is None:
            known = self._connections[host, port] = BlockingConnection(
                Address(host, port), client_id=self.name, timeout_ms=TIMEOUT_MS, max_response_bytes=2**24
            )
        return known

    def _ask_coordinator(self, request: Any, version: int, kind: int = TRANSACTION, key: str = "") -> Any:
        with contextlib.suppress(KafkaConnectionError):
            return self.connection(*self.coordinator(kind, key)).request(request, version)
        return None

    def _ask_leader(self, topic: str, partition: int, request: Any, version: int) -> Any:
        image = self.cluster.controller.image
        state = image.partition(topic, partition)
        endpoint = None if state is None else image.brokers.get(state.leader)
        if endpoint is None:
            return None
        with contextlib.suppress(KafkaConnectionError):
            return self.connection(endpoint.host, endpoint.port).request(request, version)
        return None

    def _retry(self, ask: Any, code: Any) -> Any:
        last = None
        for _ in range(MAX_TRIES):
            answer = ask()
            if answer is not None:
                last = code(answer)
                if last not in RETRIABLE:
                    return answer
        raise AssertionError(
            f"{self.name}: no answer after {MAX_TRIES} tries; last {make_error(last) if last else None}"
        )
