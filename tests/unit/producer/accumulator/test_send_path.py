"""What takes the direct path, and that it writes the same record as the checked one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.column_bench import NOW_MS, PARTITIONS, Bench, records_of

from headrace.network import _build
from headrace.network.protocol.errors import PartitionerError
from headrace.network.records.builder_cy import encoded_size
from headrace.network.records.headers_cy import encode_headers
from headrace.network.sections import here
from headrace.producer import ProducerRecord, RecordFuture
from headrace.producer.accumulator.murmur2_cy import partition_for_key
from headrace.producer.accumulator.send_path_cy import SendPath
from headrace.producer.accumulator.serializing_cy import SerializeFunction

PARTITION = 1
LIMIT = 10_000


class Path(SendPath):
    """A path over an accumulator with topic t, which records what it doesn't send directly."""

    def __init__(
        self,
        serialize_value: Callable[..., Any] | None = None,
        *,
        opens: bool = False,
        memory: int = 32 << 20,
        choose: Callable[..., int] | None = None,
    ) -> None:
        self.bench = Bench(batch_size=20_000, memory=memory)
        super().__init__(self.bench.clock, keys_choose=True)
        self.checked: list[tuple] = []
        self.serialized: list[tuple] = []
        # a batch that is open, so that a record needs no other
        for partition in range(PARTITIONS):
            self.bench.accumulator.append(self.bench.queues, partition, NOW_MS, None, b"first", None, None, 0)
        function = None if serialize_value is None else SerializeFunction("value", "f", serialize_value)
        self._use(
            self.bench.accumulator.topics,
            (),
            direct=True,
            max_direct_bytes=LIMIT,
            opens=self.bench.accumulator if opens else None,
            serialize_value=function,
            choose=choose,
            metadata=cast("Any", SimpleNamespace(cluster="the cluster")),
        )

    def _send_checked(self, *record: Any) -> Any:
        self.checked.append(record)
        return RecordFuture()

    def _send_serialized(self, *record: Any) -> Any:
        self.serialized.append(record)
        return RecordFuture()

    def sent(self) -> list[tuple]:
        """The records after the first ones: partition, timestamp, key, value, headers."""
        return [
            (batch.partition, *record)
            for batch in self.bench.batches()
            for record in records_of(batch)
            if record[2] != b"first"
        ]


class Number:
    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


H = (("a", b"1"), ("ü", None))
DIRECT: dict[str, tuple[dict[str, Any], tuple]] = {
    "headers": ({"headers": list(H)}, (NOW_MS, None, b"v", H)),
    "a tuple of headers": ({"headers": H}, (NOW_MS, None, b"v", H)),
    "the items of a dict": ({"headers": dict(H).items()}, (NOW_MS, None, b"v", H)),
    "no headers": ({"headers": []}, (NOW_MS, None, b"v", ())),
    "a timestamp": ({"timestamp_ms": 5}, (5, None, b"v", ())),
    "the first timestamp": ({"timestamp_ms": 0}, (0, None, b"v", ())),
    "an integer type": ({"timestamp_ms": Number(5), "partition": Number(PARTITION)}, (5, None, b"v", ())),
    "a bytearray": ({"value": bytearray(b"xy"), "key": bytearray(b"k")}, (NOW_MS, b"k", b"xy", ())),
    "a memoryview": ({"value": memoryview(b"x_y_")[::2], "key": memoryview(b"k")}, (NOW_MS, b"k", b"xy", ())),
    "a tombstone": ({"value": None, "key": b"k"}, (NOW_MS, b"k", None, ())),
}


@pytest.mark.parametrize("name", DIRECT)
def test_records_on_the_direct_path(name: str) -> None:
    arguments, record = DIRECT[name]
    path = Path()
    future = path.send("t", **{"value": b"v", "partition": PARTITION, **arguments})
    assert isinstance(future, RecordFuture)
    assert path.checked == path.serialized == []
    assert path.sent() == [(PARTITION, *record)]


def test_a_partitioner_chooses_unless_a_partition_is_named() -> None:
    asked: list[tuple] = []

    def choose(*record: Any) -> int:
        asked.append(record)
        return 2

    path = Path(lambda _topic, _headers, value: value.encode(), choose=choose)
    path.send("t", "v", b"k", [("a", b"1")])
    path.send("t", "w", partition=0)
    assert path.checked == path.serialized == []
    assert path.sent() == [(0, NOW_MS, None, b"w", ()), (2, NOW_MS, b"k", b"v", (("a", b"1"),))]
    size = encoded_size(b"k", b"v", encode_headers([("a", b"1")]))
    assert asked == [("t", b"k", b"k", "v", b"v", "the cluster", path.bench.queues, size)]


@pytest.mark.parametrize(
    ("size", "headers"),
    [(100, None), (30_000, None), (100, set())],
    ids=["in a full batch", "too large for the direct path", "headers that the direct path does not take"],
)
def test_a_partitioner_is_asked_once_for_a_record(size: int, headers: Any) -> None:
    asked: list[tuple] = []

    def choose(*record: Any) -> int:
        asked.append(record)
        return 2

    path = Path(lambda _topic, _headers, value: value.encode(), choose=choose)
    while not path.serialized:
        path.send("t", "v" * size, headers=headers)
    # the paths behind have no value as the program gave it
    assert [record[4] for record in path.serialized] == [2]
    assert len(asked) == len(path.sent()) + 1
    assert {type(record[3]) for record in asked} == {str}


def test_a_partition_that_a_partitioner_knows_earlier_than_the_queues() -> None:
    path = Path(choose=lambda *_record: PARTITIONS)
    path.send("t", b"v")
    assert path.sent() == []
    assert [record[4] for record in path.serialized] == [PARTITIONS]


def test_what_a_partitioner_raises() -> None:
    def choose(*_record: Any) -> int:
        raise PartitionerError("no")

    path = Path(choose=choose)
    with pytest.raises(PartitionerError, match="no"):
        path.send("t", b"v")
    assert path.sent() == path.checked == path.serialized == []


def test_a_topic_that_a_serializer_makes_unknown() -> None:
    def choose(*_record: Any) -> int:
        raise AssertionError("there is nothing to choose from")

    def forget(_topic: str, _headers: Any, value: str) -> bytes:
        path._use({}, (), direct=True, max_direct_bytes=LIMIT, choose=choose)
        return value.encode()

    path = Path(forget, choose=choose)
    path.send("t", "v")
    assert path.sent() == []
    # which has the value for the partitioner
    assert [record[:3] for record in path.checked] == [("t", "v", None)]


def test_a_whole_record() -> None:
    path = Path()
    called = []
    record = ProducerRecord("t", b"v", b"k", H, 2, 7)
    future = path.send(record, callback=lambda metadata, error: called.append(metadata))
    assert path.checked == path.serialized == []
    assert path.sent() == [(2, 7, b"k", b"v", H)]
    batch = future.final_batch
    batch.complete(4)
    batch.run_callbacks()
    assert [(each.offset, each.serialized_header_size) for each in called] == [(5, 1 + 4 + 4)]


def test_a_key_chooses_unless_a_partition_is_named() -> None:
    path = Path()
    other = (partition_for_key(b"k", PARTITIONS) + 1) % PARTITIONS
    path.send("t", b"v", b"k", H)
    path.send("t", b"v", b"k", H, other)
    assert sorted(path.sent()) == sorted(
        [(partition_for_key(b"k", PARTITIONS), NOW_MS, b"k", b"v", H), (other, NOW_MS, b"k", b"v", H)]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "unknown"},
        {"topic": ProducerRecord("unknown", b"v")},
        {"topic": ProducerRecord("t", b"v"), "value": b"w"},
        {"topic": 5},
        {"partition": PARTITIONS},
        {"partition": -1},
        {"partition": True},
        {"partition": 2**70},
        {"partition": "1"},
        {"partition": Number(-1)},
        {"timestamp_ms": -1},
        {"timestamp_ms": 2**63},
        {"timestamp_ms": 1.5},
        {"callback": 5},
        {"value": "text"},
        {"key": "text"},
        {"key": 5},
    ],
)
def test_what_needs_more_checks(arguments: dict[str, Any]) -> None:
    path = Path()
    topic = arguments.pop("topic", "t")
    given = {"value": None if isinstance(topic, ProducerRecord) else b"v", **arguments}
    path.send(topic, **given)
    names = ("value", "key", "headers", "partition", "timestamp_ms", "callback")
    assert path.checked == [(topic, *(given.get(name) for name in names))]
    assert path.serialized == path.sent() == []


@pytest.mark.parametrize(
    "headers",
    [{"a": b"1"}, [("a", "1")], [(b"a", b"1")], [("a",)], ["ab"], [5], 5, iter(H), [("\ud800", b"")], [["a", b"1"]]],
)
def test_headers_that_need_more_checks(headers: Any) -> None:
    path = Path()
    path.send("t", b"v", b"k", headers)
    assert path.serialized == [("t", b"v", b"k", headers, None, None, None)]
    assert path.checked == path.sent() == []
    assert not hasattr(headers, "__next__") or list(headers) == list(H), "an iterator is not read"


def test_a_record_that_is_too_large_or_finds_no_batch() -> None:
    path = Path()
    path.send("t", b"v" * LIMIT, b"k", H)
    assert path.serialized == [("t", b"v" * LIMIT, b"k", H, None, None, None)]
    path.bench.batches()
    path.send("t", b"v", None, [], 1, 5)
    assert path.serialized[1:] == [("t", b"v", None, [], 1, 5, None)]


def test_a_record_opens_its_batch_directly() -> None:
    path = Path(opens=True)
    path.bench.batches()
    path.send("t", b"a", None, H, PARTITION, 5)
    path.send("t", b"b", b"k")
    path.send("t", b"c")
    assert path.serialized == path.checked == []
    sent = path.sent()
    assert (PARTITION, 5, None, b"a", H) in sent
    assert (partition_for_key(b"k", PARTITIONS), NOW_MS, b"k", b"b", ()) in sent
    assert [record[1:] for record in sent if record[3] == b"c"] == [(NOW_MS, None, b"c", ())]


def test_a_record_waits_for_nothing_on_the_direct_path() -> None:
    path = Path(opens=True, memory=PARTITIONS * 1250)
    path.bench.batches()
    assert path.bench.pool.available_bytes == 0
    path.send("t", b"no memory", None, None, PARTITION)
    assert [record[1] for record in path.serialized] == [b"no memory"]
    path = Path(opens=True)
    path.bench.batches()
    with here.section:
        path.send("t", b"a nested call", None, None, PARTITION)
    path.bench.accumulator.stash.waiting.append(cast(Any, None))
    path.send("t", b"comes after stashed records", None, None, PARTITION)
    path.bench.accumulator.stash.waiting.clear()
    path.bench.accumulator.close()
    path.send("t", b"closed", None, None, PARTITION)
    assert [record[1] for record in path.serialized] == [b"a nested call", b"comes after stashed records", b"closed"]
    assert path.sent() == []


def test_a_serializer_runs_once_and_sees_topic_and_headers() -> None:
    seen = []

    def serialize(topic: str, headers: Any, data: Any) -> bytes:
        seen.append((topic, list(headers), data))
        headers.append(("added", b"2"))
        return b"%d" % data

    path = Path(serialize)
    path.send("t", 5, None, [("a", b"1")], PARTITION)
    assert seen == [("t", [("a", b"1")], 5)]
    assert path.sent() == [(PARTITION, NOW_MS, None, b"5", (("a", b"1"), ("added", b"2")))]
    # no batch is open any more: the record goes on with what the serializer returned
    path.send("t", 6, None, [])
    assert path.serialized == [("t", b"6", None, [("added", b"2")], None, None, None)]
    assert len(seen) == 2


def test_a_serializer_that_closes_the_producer() -> None:
    def serialize(topic: str, headers: Any, data: Any) -> bytes:
        path._leave_direct_path()
        return b"serialized"

    path = Path(serialize)
    path.send("t", 5)
    assert path.serialized == [("t", b"serialized", None, None, None, None, None)]
    assert path.sent() == []


def test_a_serializer_in_whose_call_the_producer_begins_anew() -> None:
    def serialize(topic: str, headers: Any, data: Any) -> bytes:
        path._use(other.bench.accumulator.topics, (), direct=True, max_direct_bytes=LIMIT)
        return b"serialized"

    other = Path()
    path = Path(serialize)
    path.send("t", 5)
    assert path.serialized == [("t", b"serialized", None, None, None, None, None)]
    assert path.sent() == other.sent() == []


def test_the_interpreted_path_writes_the_same() -> None:
    module = _build.interpreted("headrace.producer.accumulator.send_path_cy")
    for given, expected in [(5, 5), (2**63 - 1, 2**63 - 1), (2**63, -1), (-1, -1), (True, -1), ("1", -1), (1.0, -1)]:
        assert module.whole_number(given) == expected
