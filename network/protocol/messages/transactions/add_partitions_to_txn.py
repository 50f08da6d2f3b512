"""AddPartitionsToTxn: adds partitions to an open transaction (KIP-98, KIP-890)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Int16, Int32, Int64, String


@struct
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    name: String
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction:
    """The partitions of one transaction. `verify_only` checks that they are in the transaction and adds none."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic]


@request(api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request):
    """Clients send one transaction, in versions up to 3; brokers send several in `transactions`, since version 4."""

    transactions: list[AddPartitionsToTxnTransaction] = field(versions="4+", default_factory=list)
    v3_and_below_transactional_id: String = field(versions="0-3", default="")
    v3_and_below_producer_id: Int64 = field(versions="0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field(versions="0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(versions="0-3", default_factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    """The result for one partition."""

    partition_index: Int32
    partition_error_code: Int16 = 0


@struct
class AddPartitionsToTxnTopicResult:
    """The partitions of one topic."""

    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    """The results for one transaction."""

    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


@response(of=AddPartitionsToTxnRequest, client_throttles="1+")
class AddPartitionsToTxnResponse(Response):
    """The results of one transaction up to version 3, of several since 4."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="4+", ignorable=True, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(versions="4+", default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(versions="0-3", default_factory=list)
