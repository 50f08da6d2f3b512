"""WriteTxnMarkers: appends the markers of ended transactions. A coordinator sends it to the partitions' leaders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....network.protocol.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError
from ....network.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ...internal_topics import OFFSETS_TOPIC
from ...log.markers import Marker
from ...metadata import PartitionKey
from ...replica.delayed_produce import ProduceResult
from ...replica.partition import MarkerAppend
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

#: How long the followers have to copy a marker. A coordinator sends it again after that.
_TIMEOUT_MS = 5_000.0


@serves(WriteTxnMarkersRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | None:
    """Answers when all markers are on all in-sync replicas, or have failed."""
    if not request.markers:
        return WriteTxnMarkersResponse(markers=[])
    results: list[WritableTxnMarkerResult | None] = [None] * len(request.markers)

    def finish(at: int, codes: dict[PartitionKey, int]) -> None:
        results[at] = _result(request.markers[at], codes)
        done = [each for each in results if each is not None]
        if len(done) == len(results):
            context.respond(WriteTxnMarkersResponse(markers=done))

    for at, marker in enumerate(request.markers):
        _append(broker, context, marker, partial(finish, at))
    return None


def _append(
    broker: BrokerServices,
    context: RequestContext,
    asked: WritableTxnMarker,
    done: Callable[[dict[PartitionKey, int]], None],
) -> None:
    append = MarkerAppend(
        asked.producer_id,
        asked.producer_epoch,
        Marker(asked.transaction_result, asked.coordinator_epoch),
        asked.transaction_version,
    )
    codes: dict[PartitionKey, int] = {}
    keys: list[PartitionKey] = []
    for key in _keys(asked):
        error = context.injected_error(*key) or context.refusal(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        if error is None and key not in broker.replicas.partitions:
            error = UnknownTopicOrPartitionError(f"this broker has no replica of {key[0]}-{key[1]}")
        elif error is None and key[0] == OFFSETS_TOPIC and not broker.offsets.is_loaded(key[1]):
            # The coordinator of transactions takes this as a reason to try again.
            error = NotLeaderForPartitionError(f"the groups of {key[0]}-{key[1]} are being loaded")
        if error is None:
            keys.append(key)
        else:
            codes[key] = error.code

    def appended(results: dict[PartitionKey, ProduceResult]) -> None:
        for key, result in results.items():
            codes[key] = 0 if result.error is None else result.error.code
            if result.error is None and key[0] == OFFSETS_TOPIC:
                broker.offsets.end_transaction(key[1], asked.producer_id, is_commit=asked.transaction_result)
        done(codes)

    if keys:
        broker.replicas.append_own(_TIMEOUT_MS, [(key, append) for key in keys], appended)
    else:
        done(codes)


def _keys(asked: WritableTxnMarker) -> list[PartitionKey]:
    return [(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]


def _result(asked: WritableTxnMarker, codes: dict[PartitionKey, int]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=codes[topic.name, index])
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )
