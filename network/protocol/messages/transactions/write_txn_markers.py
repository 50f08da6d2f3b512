"""WriteTxnMarkers: the coordinator has leaders append the markers of ended transactions (KIP-98)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Int8, Int16, Int32, Int64, String


@struct
class WritableTxnMarkerTopic:
    """The partitions of one topic."""

    name: String
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    """The marker of one transaction and its partitions. `transaction_result` is False for an abort."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field(versions="2+", ignorable=True, default=0)


@request(api_key=ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest(Request):
    """The markers to append. Since version 2 each carries the level of `transaction.version` (KIP-1228)."""

    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    """The partitions of one topic."""

    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    """The results for one marker."""

    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@response(of=WriteTxnMarkersRequest)
class WriteTxnMarkersResponse(Response):
    """The result for each marker."""

    markers: list[WritableTxnMarkerResult]
