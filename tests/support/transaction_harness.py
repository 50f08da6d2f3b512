"""A transactional producer stepped by hand, with a coordinator that answers what the test has scripted.

harness = TransactionHarness(level=2)
harness.init()
harness.transaction.begin()
harness.append(b"v")
harness.script("EndTxn", 51)          # CONCURRENT_TRANSACTIONS once, then success
harness.call(harness.transaction.commit)
harness.names                         # the requests, in order
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest

from headrace.network.client.api_versions import NodeApiVersions
from headrace.network.client.request import ClientRequest
from headrace.network.protocol.api import requests as known_requests
from headrace.network.protocol.errors import KafkaTimeoutError
from headrace.network.protocol.messages.groups.find_coordinator import Coordinator, FindCoordinatorResponse
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdResponse
from headrace.network.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnResponse
from headrace.network.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from headrace.network.protocol.messages.transactions.end_txn import EndTxnResponse
from headrace.network.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from support.mock_client import latest_api_versions
from support.sender_harness import BACKOFF_MS, SenderHarness

#: A scripted answer: the connection breaks.
LOST = "the connection breaks"
#: A scripted answer: none, until the test answers.
HELD = "no answer"
PRODUCER_ID = 7
#: Turns after which a test that goes on is stuck.
MAX_TURNS = 200


def versions_with(level: int | None, epoch: int = 1, **highest: int) -> NodeApiVersions:
    """A node with a level of the feature (None: it reports no features), and other highest versions by API name."""
    ranges: dict[int, tuple[int, int]] = {}
    for key, request in known_requests.items():
        name = request.__name__.removesuffix("Request")
        ranges[int(key)] = (request.versions.min, highest.get(name, request.versions.max))
    if level is None:
        return latest_api_versions(ranges)
    return NodeApiVersions(
        ranges, name="the mock", finalized_features={"transaction.version": level}, finalized_features_epoch=epoch
    )


class TransactionHarness(SenderHarness):
    """A `SenderHarness` with transactions. The coordinator counts epochs as Kafka's does."""

    def __init__(self, *, level: int | None = None, versions: NodeApiVersions | None = None, **options: Any) -> None:
        super().__init__(transactional_id="id", **options)
        self.client.default_api_versions = versions or versions_with(level)
        self.epoch = -1
        self.answers: dict[str, deque[Any]] = defaultdict(deque)
        self.coordinator_node = 0
        self._handlers: dict[str, Callable[[ClientRequest, int], Any]] = {
            "FindCoordinator": self._find_coordinator,
            "InitProducerId": self._init_producer_id,
            "AddPartitionsToTxn": self._add_partitions,
            "AddOffsetsToTxn": self._add_offsets,
            "TxnOffsetCommit": self._commit_offsets,
            "EndTxn": self._end_txn,
            "Produce": self._produce,
        }

    # --- Steps ---

    def script(self, name: str, *answers: Any) -> None:
        """Answer the next requests of that name with these: an error code, a response, LOST, HELD or a function."""
        self.answers[name].extend(answers)

    def run(self) -> None:
        """Run turns, letting linger and backoffs pass, until nothing is sent or answered any longer."""
        quiet = 0
        for _ in range(MAX_TURNS):
            before = len(self.client.sent)
            self.step(BACKOFF_MS)
            answered = [self._answer(request) for request in list(self.client.requests)]
            quiet = 0 if len(self.client.sent) > before or any(answered) else quiet + 1
            if quiet == 3:
                return
        raise AssertionError(f"it goes on and on: {self.names[-20:]}")

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Make a call that waits, run the sender, and take the outcome."""
        with pytest.raises(KafkaTimeoutError):
            function(*arguments)
        self.run()
        function(*arguments)

    def init(self) -> None:
        self.call(self.transaction.init)

    @property
    def names(self) -> list[str]:
        """The names of all requests, in order."""
        return [type(request.message).__name__.removesuffix("Request") for request in self.client.sent]

    def last(self, name: str) -> Any:
        """The last message of that name."""
        return next(
            request.message
            for request in reversed(self.client.sent)
            if type(request.message).__name__ == f"{name}Request"
        )

    def requests_named(self, name: str) -> list[ClientRequest]:
        return [request for request in self.client.sent if type(request.message).__name__ == f"{name}Request"]

    # --- The coordinator ---

    def _answer(self, request: ClientRequest) -> bool:
        name = type(request.message).__name__.removesuffix("Request")
        answer: Any = self.answers[name].popleft() if self.answers[name] else 0
        if answer is HELD:
            self.answers[name].appendleft(HELD)
            return False
        if answer is LOST:
            self.client.respond(request=request, disconnected=True)
            return True
        if callable(answer):
            answer = answer(request)
        body = answer if not isinstance(answer, int) else self._handlers[name](request, answer)
        self.client.respond(body, request=request)
        return True

    def _find_coordinator(self, request: ClientRequest, error: int) -> FindCoordinatorResponse:
        key = request.message.coordinator_keys[0] if request.message.coordinator_keys else request.message.key
        found = Coordinator(key=key, node_id=self.coordinator_node, host="localhost", port=9092, error_code=error)
        if request.message.coordinator_keys:
            return FindCoordinatorResponse(coordinators=[found])
        return FindCoordinatorResponse(node_id=found.node_id, host=found.host, port=found.port, error_code=error)

    def _init_producer_id(self, request: ClientRequest, error: int) -> InitProducerIdResponse:
        if error:
            return InitProducerIdResponse(error_code=error, producer_epoch=-1)
        self.epoch += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _add_partitions(self, request: ClientRequest, error: int) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                        for index in topic.partitions
                    ],
                )
                for topic in request.message.v3_and_below_topics
            ]
        )

    def _add_offsets(self, request: ClientRequest, error: int) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=error)

    def _commit_offsets(self, request: ClientRequest, error: int) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                        for each in topic.partitions
                    ],
                )
                for topic in request.message.topics
            ]
        )

    def _end_txn(self, request: ClientRequest, error: int) -> EndTxnResponse:
        if error or request.max_version is not None:
            return EndTxnResponse(error_code=error)
        self.epoch += 1
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _produce(self, request: ClientRequest, error: int) -> Any:
        return self.response(request, error)
