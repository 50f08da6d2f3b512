"""The errors of records and rows: what they name, and which record of a rejected batch they are about."""

from __future__ import annotations

import pytest

from headrace.network.cluster import TopicPartition
from headrace.network.protocol.messages.records.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from headrace.producer import errors
from headrace.producer.record_errors import first_rejected, record_too_large, rejected_records, rejection, row_error

PARTITION = TopicPartition("t", 3)
INVALID = errors.InvalidRecordError.code


def answer(message: str | None = None, **records: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=3,
        error_code=INVALID,
        base_offset=-1,
        error_message=message,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=int(index[1:]), batch_index_error_message=said)
            for index, said in records.items()
        ],
    )


def test_the_limit_that_a_record_exceeds_is_the_one_named():
    assert "is larger than max.request.size (10 bytes)" in str(record_too_large(11, 10, 100))
    assert "does not fit into buffer.memory (5 bytes)" in str(record_too_large(8, 10, 5, " for topic 't'"))


def test_a_rejection_has_the_brokers_words_or_those_of_the_error():
    assert str(rejection(answer("no key"), PARTITION)) == "t-3: no key"
    assert str(rejection(answer(), PARTITION)).startswith("t-3: ")
    assert isinstance(rejection(answer(), PARTITION), errors.InvalidRecordError)


def test_records_are_rejected_with_their_own_words_the_batchs_or_the_errors():
    error = errors.InvalidRecordError("all of it")
    assert rejected_records(answer(), error) is None
    found = rejected_records(answer("the batch", _0="the record", _4=None), error)
    assert found is not None
    assert {index: str(each) for index, each in found.items()} == {0: "the record", 4: "the batch"}
    assert {index: str(each) for index, each in (rejected_records(answer(_1=None), error) or {}).items()} == {
        1: "all of it"
    }


@pytest.mark.parametrize(
    ("start", "count", "index", "said"),
    [(0, 10, 2, "two"), (3, 7, 7, "seven"), (3, 4, 3, "the batch"), (8, 2, 8, "the batch")],
)
def test_the_first_rejected_record_of_a_run(start: int, count: int, index: int, said: str):
    record_errors: dict[int, BaseException] = {7: Exception("seven"), 2: Exception("two")}
    found, error = first_rejected(record_errors, start, count, Exception("the batch"))
    assert (found, str(error)) == (index, said)


def test_a_row_error_says_which_row_where_to_and_why():
    cause = errors.KafkaTimeoutError("too slow")
    error = row_error(4, "t", 3, cause, " of partition 0")
    assert str(error) == "row 4 of partition 0 for t-3 was not delivered: KafkaTimeoutError: too slow"
    assert (error.row, error.topic, error.partition, error.__cause__) == (4, "t", 3, cause)
    assert str(row_error(4, None, -1, errors.SerializationError("no bytes"))) == "row 4 was not delivered: no bytes"
