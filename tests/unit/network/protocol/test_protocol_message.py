"""What a declaration means, and what happens to values and bytes that don't fit it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from headrace.network.protocol import messages
from headrace.network.protocol.api import MODULES, ApiKey, requests
from headrace.network.protocol.codec import codec_for, decode, encode, gather
from headrace.network.protocol.errors import EncodeError, MalformedMessageError, UnsupportedVersionError
from headrace.network.protocol.message import Request, field, fields_of, first_version_with, request, struct
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from headrace.network.protocol.messages.records.fetch import FetchRequest, FetchTopic
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from headrace.network.protocol.types import (
    Bool,
    Bytes,
    Cursor,
    Float64,
    Int8,
    Int16,
    Int32,
    Records,
    String,
    UInt16,
    UInt32,
    size_of,
)
from headrace.network.protocol.versions import Versions


@struct
class Inner:
    """A part."""

    number: Int16 = 0


@struct
class Sample:
    """One field of each type that no real message has."""

    small: Int8
    flag: Bool
    real: Float64
    port: UInt16
    size: UInt32
    blob: Bytes | None = field(nullable="1+")
    since_2: Int32 = field(versions="2+", default=7)
    until_1: String = field(versions="0-1", default="x", ignorable=True)
    inner: Inner = field(versions="3+", tag=5, tagged="3+", default_factory=Inner)
    also: Int32 = field(versions="3+", tag=2, tagged="3+", default=-1)


@struct
class WithOptional:
    """A part that may be missing."""

    inner: Inner | None = field(nullable="1+", default=None)
    number: Int16


def written(value: Any, version: int, flexible: bool) -> bytes:
    out = bytearray()
    references: list[tuple[int, Any]] = []
    codec_for(type(value), version, flexible).write(out, value, references)
    return b"".join(gather(out, references))


def read(cls: type, version: int, flexible: bool, data: bytes) -> Any:
    cursor = Cursor(memoryview(data), 1000)
    value = codec_for(cls, version, flexible).read(cursor)
    assert cursor.position == cursor.end
    return value


def sample(**values: Any) -> Sample:
    return Sample(**{"small": -1, "flag": True, "real": 1.0, "port": 65535, "size": 2**32 - 1, "blob": b"b"} | values)


def produce(partition: Any) -> ProduceRequest:
    return ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


FIXED = "ff 01 3ff0000000000000 ffff ffffffff"


@pytest.mark.parametrize(
    ("value", "version", "flexible", "text"),
    [
        (sample(), 0, False, FIXED + "00000001 62  0001 78"),
        (sample(until_1="yz"), 1, False, FIXED + "00000001 62  0002 797a"),
        (sample(blob=None), 1, False, FIXED + "ffffffff  0001 78"),
        (sample(blob=None, since_2=1), 2, True, FIXED + "00  00000001  00"),
        (sample(), 3, True, FIXED + "02 62  00000007  00"),
        # tagged fields in the order of their tags, not of the declaration
        (sample(inner=Inner(number=1), also=2), 3, True, FIXED + "02 62 00000007  02 02 04 00000002  05 03 0001 00"),
    ],
)
def test_layout_by_version(value: Sample, version: int, flexible: bool, text: str) -> None:
    assert written(value, version, flexible).hex(" ") == bytes.fromhex(text).hex(" ")
    assert read(Sample, version, flexible, bytes.fromhex(text)) == value


def test_unknown_tagged_fields_are_skipped_and_known_ones_have_to_fit() -> None:
    start = FIXED + "02 62 00000007"
    assert read(Sample, 3, True, bytes.fromhex(start + "02  02 04 00000002  09 03 aabbcc")) == sample(also=2)
    for wrong in ("01 02 05 00000002 00", "01 02 03 00000002", "01 09 7f aa"):
        with pytest.raises(MalformedMessageError, match=r"tagged field|size"):
            read(Sample, 3, True, bytes.fromhex(start + wrong))


def test_a_value_that_a_version_has_no_place_for() -> None:
    # ignorable: dropped
    dropped = encode(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], rack_id="r", session_id=3), 4)
    assert decode(FetchRequest, 4, dropped[0]) == FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    # not ignorable: an error, unless it is the default
    encode(FindCoordinatorRequest(key="g", key_type=0), 0)
    with pytest.raises(EncodeError, match=r"FindCoordinatorRequest.key_type = 1 cannot be sent in version 0"):
        encode(FindCoordinatorRequest(key="g", key_type=1), 0)
    with pytest.raises(EncodeError, match="coordinator_keys"):
        encode(FindCoordinatorRequest(key="g", coordinator_keys=["g"]), 3)


def test_each_message_has_its_own_lists() -> None:
    first, second = FindCoordinatorRequest(key="a"), FindCoordinatorRequest(key="b")
    first.coordinator_keys.append("x")
    assert second.coordinator_keys == []
    old = bytes.fromhex("0001 67")
    decode(FindCoordinatorRequest, 0, old).coordinator_keys.append("x")
    assert decode(FindCoordinatorRequest, 0, old).coordinator_keys == []


@pytest.mark.parametrize(
    ("message", "version", "text"),
    [
        (produce(PartitionProduceData(index=2**31, records=b"")), 9, "PartitionProduceData.index = 2147483648"),
        (produce(PartitionProduceData(index="1", records=b"")), 9, "PartitionProduceData.index = '1'"),
        (produce(PartitionProduceData(index=1, records=17)), 9, "PartitionProduceData.records = 17"),
        (produce(None), 9, "TopicProduceData.partition_data = None (not a PartitionProduceData)"),
        (ProduceRequest(acks=1, timeout_ms=1, topic_data="ab"), 9, "topic_data must be a list, not str"),
        (ProduceRequest(acks=1, timeout_ms=1, topic_data=None), 3, "topic_data must not be None"),
        (DeleteTopicsRequest(topic_names=["a", 1], timeout_ms=1), 1, "DeleteTopicsRequest.topic_names = 1"),
        (DeleteTopicsRequest(topic_names=[None], timeout_ms=1), 1, "topic_names must not be None"),
        (DeleteTopicsRequest(topic_names=["\ud800"], timeout_ms=1), 1, "topic_names"),
        (DeleteTopicsRequest(topic_names=["n" * 32768], timeout_ms=1), 1, "has 32768 bytes"),
        (DeleteTopicsRequest(topic_names=["n" * 32768], timeout_ms=1), 5, "has 32768 bytes"),
        (MetadataRequest(topics=None), 0, "topics must not be None"),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9, "name must not be None"),
        (FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic_id="id", partitions=[])]), 13, "topic_id"),
    ],
)
def test_values_that_cannot_be_written(message: Any, version: int, text: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(message, version)
    assert text in str(caught.value)


def test_the_longest_string() -> None:
    message = DeleteTopicsRequest(topic_names=["n" * 32767], timeout_ms=1)
    for version in (1, 5):
        assert decode(DeleteTopicsRequest, version, encode(message, version)[0]) == message


def test_versions_that_are_not_declared() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"ProduceRequest is supported in versions 0-13, not in 14"):
        encode(produce(PartitionProduceData(index=1, records=None)), 14)
    with pytest.raises(UnsupportedVersionError):
        decode(ProduceRequest, 14, b"")


class Region:
    """Stands for a part of a file."""

    size_bytes = 5


def test_records_go_by_reference() -> None:
    first, second, region = bytearray(b"AAA"), memoryview(b"BB"), Region()
    message = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=0, records=[first, second]),
                    PartitionProduceData(index=1, records=b""),
                    PartitionProduceData(index=2, records=region),
                ],
            )
        ],
    )
    for version in (3, 9):
        parts = encode(message, version)
        assert [part for part in parts if part is first or part is second or part is region] == [first, second, region]
        assert size_of(parts) == sum(5 if part is region else len(part) for part in parts)
        assert all(size_of(part) for part in parts)
    # If nothing follows the last records, the gather list ends with them.
    assert encode(message, 3)[-1] is region


def test_records_are_read_as_views() -> None:
    buffer = bytearray(b"".join(encode(produce(PartitionProduceData(index=0, records=b"RRR")), 9)))
    records = decode(ProduceRequest, 9, buffer).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"RRR")] = ord("X")
    assert bytes(records) == b"XRR"


def test_large_records_stay_out_of_the_repr() -> None:
    assert len(repr(produce(PartitionProduceData(index=0, records=bytes(10_000))))) < 300


@pytest.mark.parametrize(
    ("version", "text", "complaint"),
    [
        (3, "ffff 0001 00000001 fffffffe", "negative count -2"),
        (3, "ffff 0001 00000001 ffffffff", "null is not allowed"),
        (3, "fffe 0001 00000001 00000000", "negative size -2"),
        (3, "0002 ff41 0001 00000001 00000000", "not valid UTF-8"),
        (3, "ffff 0001 00000001 00000001 ffff 00000000", "TopicProduceData.name: null is not allowed"),
        (3, "ffff 0001 00000001 00000001 0001 74 00000001 00000000 7fffffff 41", "size 2147483647, but 1 bytes"),
        (9, "00 0001 00000001 00 00", "null is not allowed"),
        (9, "00 0001 00000001 ffffffff0f 00", "4294967294 elements declared, but 1 bytes are left"),
        (9, "00 0001 00000001 ffffffff1f 00", "more than 32 bits"),
        (9, "00 0001 00000001 ffffffffff01 00", "more than 32 bits"),
        (9, "00 0001 00000001 01 01 00 ff01 00", "tagged field 0 has size 255"),
        (9, "00 0001 00000001 01 00 00", "1 bytes are left over"),
        (9, "", "end within a field"),
        (9, "c1b802" + "41" * 40_000, "size 40000, but at most 32767 is allowed"),
    ],
)
def test_bytes_that_are_no_message(version: int, text: str, complaint: str) -> None:
    with pytest.raises(MalformedMessageError) as caught:
        decode(ProduceRequest, version, bytes.fromhex(text))
    assert str(caught.value).startswith(f"ProduceRequest v{version}: ")
    assert complaint in str(caught.value)


def test_a_lie_about_the_count_allocates_nothing() -> None:
    # a count of a billion, then a million bytes: allocates at most what the bytes can hold
    data = bytes.fromhex("3b9aca00") + bytes(1_000_000)
    decode_any = codec_for(DeleteTopicsRequest, 1, False).read
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessageError, match="1000000000 elements"):
            decode_any(Cursor(memoryview(data), 10**12))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_the_elements_of_a_message_are_bounded() -> None:
    data = encode(DeleteTopicsRequest(topic_names=["t"] * 10, timeout_ms=1), 5)[0]
    assert len(decode(DeleteTopicsRequest, 5, data, max_elements=10).topic_names) == 10
    with pytest.raises(MalformedMessageError, match="more array elements"):
        decode(DeleteTopicsRequest, 5, data, max_elements=9)


def test_classes_know_their_api() -> None:
    assert requests[ApiKey.PRODUCE] is ProduceRequest
    assert (ApiVersionsRequest.api_key, ApiVersionsResponse.api_key) == (ApiKey.API_VERSIONS, ApiKey.API_VERSIONS)
    assert ApiVersionsRequest.response_class is ApiVersionsResponse
    assert (ProduceRequest.versions.min, ProduceRequest.versions.max) == (0, 13)
    assert 13 in ProduceRequest.versions
    assert 14 not in ProduceRequest.versions
    assert str(ProduceRequest.versions) == "0-13"


def test_an_api_has_one_request() -> None:
    with pytest.raises(TypeError, match="PRODUCE already has the request ProduceRequest"):

        @request(api_key=ApiKey.PRODUCE, versions="0")
        class Another(Request):
            """Nothing."""

    assert requests[ApiKey.PRODUCE] is ProduceRequest


@pytest.mark.parametrize("text", ["3", "3-13", "3+"])
def test_version_ranges(text: str) -> None:
    versions = Versions.parse(text)
    assert str(versions) == {"3": "3-3"}.get(text, text)
    assert 3 in versions
    assert 2 not in versions
    assert (4 in versions) == (text != "3")


@struct
class NullableInOneWay:
    """The annotation allows None, the declaration does not."""

    name: String | None


@struct
class WithoutDefault:
    """Not always there, and nothing to be instead."""

    name: String = field(versions="2+")


@struct
class OfNoWireType:
    """An annotation that has no form on the wire."""

    name: int


@struct
class ListOfNone:
    """Elements cannot be None."""

    names: list[String | None]


@struct
class TaggedRecords:
    """Records go by reference, which a tagged field's size stands against."""

    records: Records = field(tag=0, tagged="0+", default=b"")


@pytest.mark.parametrize("cls", [NullableInOneWay, WithoutDefault, OfNoWireType, ListOfNone])
def test_declarations_that_contradict_themselves(cls: type) -> None:
    with pytest.raises(TypeError, match=cls.__name__):
        fields_of(cls)


def test_tagged_fields_need_a_flexible_version_and_a_plain_type() -> None:
    with pytest.raises(TypeError, match=r"TaggedRecords.records cannot be a tagged field"):
        codec_for(TaggedRecords, 0, True)
    with pytest.raises(TypeError, match=r"Sample.inner cannot be a tagged field in version 3"):
        codec_for(Sample, 3, False)


def test_the_first_version_with_a_field_is_the_one_it_is_declared_for():
    assert first_version_with(TopicProduceData, "topic_id") == 13
    assert first_version_with(TopicProduceData, "partition_data") == 0
    with pytest.raises(TypeError, match="TopicProduceData has no field topic"):
        first_version_with(TopicProduceData, "topic")


def test_the_epochs_of_a_fetch_session_begin_at_1_again_and_skip_0():
    assert FetchRequest.next_epoch(FetchRequest.INITIAL_EPOCH) == 1
    assert FetchRequest.next_epoch(1) == 2
    assert FetchRequest.next_epoch(2**31 - 1) == 1


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 2), (13, 2)])
def test_the_message_format_that_a_version_of_produce_takes(version: int, magic: int):
    assert ProduceRequest.newest_magic(version) == magic


def test_a_struct_may_be_null_behind_a_mark() -> None:
    inner = written(Inner(), 1, True)
    assert written(WithOptional(inner=Inner(), number=3), 1, True) == b"\x01" + inner + b"\x00\x03\x00"
    assert written(WithOptional(number=3), 1, True) == b"\xff\x00\x03\x00"
    assert read(WithOptional, 1, True, b"\xff\x00\x03\x00") == WithOptional(number=3)
    assert read(WithOptional, 1, True, b"\x01" + inner + b"\x00\x03\x00") == WithOptional(inner=Inner(), number=3)
    with pytest.raises(
        MalformedMessageError, match=r"WithOptional\.inner: 7 is neither 1 \(present\) nor 255 \(null\)"
    ):
        read(WithOptional, 1, True, b"\x07\x00\x03\x00")


def test_the_table_of_modules_is_the_files() -> None:
    folder = Path(messages.__file__).parent
    files = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert set(MODULES.values()) == files
    assert [requests[key].api_key for key in MODULES] == list(MODULES)
    assert list(requests) == list(MODULES)
    assert len(requests) == len(MODULES)


def test_an_api_without_messages() -> None:
    assert ApiKey.VOTE not in requests
    assert requests.get(ApiKey.VOTE) is None
    with pytest.raises(KeyError):
        requests[ApiKey.VOTE]


def test_a_message_needs_each_value_once() -> None:
    with pytest.raises(TypeError, match="DeleteTopicsRequest needs values for timeout_ms"):
        DeleteTopicsRequest(topic_names=["t"])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="DeleteTopicsRequest has no fields topic_nmaes"):
        DeleteTopicsRequest(topic_nmaes=["t"], timeout_ms=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="DeleteTopicsRequest has no fields more"):
        DeleteTopicsRequest(topics=[], topic_names=["t"], timeout_ms=1, more=1)  # type: ignore[call-arg]
