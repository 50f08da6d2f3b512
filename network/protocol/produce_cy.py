# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
# pyright: reportIndexIssue=false, reportOptionalSubscript=false
"""The usual produce requests and responses, without the general codec: a producer sends little else.

`frame_of` encodes a request and `response_in` decodes a response, in versions 3 to 13. Each returns None for whatever
it does not handle: a value that cannot be encoded, a partition with an error, tagged fields, damage. The general codec
then does the work again, and raises the errors. A property test holds both to the same result.

The layout is that of the declarations in `messages/records/produce.py`.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from .messages.records.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from .types import MAX_STRING_BYTES, ZERO_UUID, size_of

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if cython.compiled and not TYPE_CHECKING:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
    from cython.cimports.cpython.object import PyObject, PyTypeObject

FIRST_VERSION = 3
LAST_VERSION = 13
_API_KEY = int(ProduceRequest.api_key)
_MAX_FRAME_BYTES = 0x7FFFFFFF
_MAX_INT16 = 0x7FFF
# What a request, a topic and a partition take at most, without their strings, ids and records.
_REQUEST_BYTES = 64
_TOPIC_BYTES = 32
_PARTITION_BYTES = 16
# Ids of topics as UUIDs, which are slow to create; emptied when it has this many.
_MAX_IDS = 4096
_ids: dict[bytes, uuid.UUID] = {}
#: The bytes of an id, by its number.
_id_bytes: dict[int, bytes] = {}
#: What responses refer to that name no leader. Nobody changes it.
_NO_LEADER = LeaderIdAndEpoch()
_NO_ID = ZERO_UUID
_NOTHING = ()


@cython.cfunc
@cython.inline
def _new(kind: Any) -> Any:
    """An instance without attributes, without the call of its constructor, which takes those of any message."""
    if cython.compiled:
        nothing = cython.cast(cython.pointer(PyObject), _NOTHING)  # pyright: ignore
        return cython.cast(cython.pointer(PyTypeObject), kind).tp_new(kind, nothing, cython.NULL)  # pyright: ignore
    return kind.__new__(kind)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int16(
    view: cython.p_uchar,
    position: cython.Py_ssize_t,
    value: cython.longlong,
) -> cython.Py_ssize_t:
    view[position] = (value >> 8) & 0xFF
    view[position + 1] = value & 0xFF
    return position + 2


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int32(
    view: cython.p_uchar,
    position: cython.Py_ssize_t,
    value: cython.longlong,
) -> cython.Py_ssize_t:
    view[position] = (value >> 24) & 0xFF
    view[position + 1] = (value >> 16) & 0xFF
    view[position + 2] = (value >> 8) & 0xFF
    view[position + 3] = value & 0xFF
    return position + 4


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_size(
    view: cython.p_uchar,
    position: cython.Py_ssize_t,
    value: cython.longlong,
    flexible: cython.bint,
) -> cython.Py_ssize_t:
    """A count or a size of records: a varint of one more in the flexible versions (KIP-482)."""
    if not flexible:
        return _put_int32(view, position, value)
    value += 1
    while value > 0x7F:
        view[position] = (value & 0x7F) | 0x80
        value >>= 7
        position += 1
    view[position] = value & 0x7F
    return position + 1


@cython.cfunc
def _put_text(
    view: cython.p_uchar,
    position: cython.Py_ssize_t,
    data: bytes,
    flexible: cython.bint,
) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = len(data)
    index: cython.Py_ssize_t
    position = _put_size(view, position, size, True) if flexible else _put_int16(view, position, size)
    for index in range(size):
        view[position + index] = data[index]
    return position + size


@cython.ccall
def partition_data(index: cython.int, records: Any) -> Any:
    """`PartitionProduceData`, without its constructor for any message."""
    data = _new(PartitionProduceData)
    data.index = index
    data.records = records
    return data


@cython.ccall
def topic_data(name: str, topic_id: Any, partitions: list) -> Any:
    """`TopicProduceData`, without its constructor for any message."""
    data = _new(TopicProduceData)
    data.name = name
    data.topic_id = _NO_ID if topic_id is None else topic_id
    data.partition_data = partitions
    return data


@cython.ccall
def produce_request(transactional_id: Any, acks: Any, timeout_ms: Any, topics: list) -> Any:
    """`ProduceRequest`, without its constructor for any message."""
    request = _new(ProduceRequest)
    request.transactional_id = transactional_id
    request.acks = acks
    request.timeout_ms = timeout_ms
    request.topic_data = topics
    return request


@cython.cfunc
def _size_of(records: Any) -> cython.Py_ssize_t:
    """The size of a partition's records; of a list of memoryviews, which a sealed batch is, without more ado."""
    total: cython.Py_ssize_t = 0
    if type(records) is not list:
        return size_of(records)
    for part in records:
        if type(part) is memoryview:
            if cython.compiled:
                total += PyMemoryView_GET_BUFFER(part).len  # pyright: ignore
            else:
                total += part.nbytes
        else:
            total += size_of(part)
    return total


@cython.cfunc
def _bytes_of(topic_id: uuid.UUID) -> bytes:
    """The bytes of an id, which it computes on each access."""
    number = topic_id.int
    known = _id_bytes.get(number)
    if known is None:
        if len(_id_bytes) >= _MAX_IDS:
            _id_bytes.clear()
        known = _id_bytes[number] = topic_id.bytes
    return known


@cython.ccall
def frame_of(request: Any, version: cython.longlong, correlation_id: cython.longlong, client_id: Any) -> Any:
    """A ProduceRequest as a gather list that includes its length; None if the general codec has to encode it."""
    try:
        return _frame_of(request, version, correlation_id, client_id)
    except (AttributeError, OverflowError, TypeError, ValueError):
        return None


@cython.cfunc
def _frame_of(request: Any, version: cython.longlong, correlation_id: cython.longlong, client_id: str | None) -> Any:
    if not FIRST_VERSION <= version <= LAST_VERSION or request.transactional_id is not None:
        return None
    given_acks = request.acks
    given_timeout_ms = request.timeout_ms
    if not isinstance(given_acks, int) or not isinstance(given_timeout_ms, int):
        return None
    flexible: cython.bint = version >= 9
    by_id: cython.bint = version >= 13
    acks: cython.longlong = given_acks
    timeout_ms: cython.longlong = given_timeout_ms
    topics: list = request.topic_data
    partitions: list
    if not -0x8000 <= acks <= _MAX_INT16 or not _fits_int32(timeout_ms) or not _fits_int32(correlation_id):
        return None
    client: bytes = b"" if client_id is None else client_id.encode()
    if len(client) > MAX_STRING_BYTES:
        return None
    names: list = []
    name: bytes
    bound: cython.Py_ssize_t = _REQUEST_BYTES + len(client)
    for topic in topics:
        partitions = topic.partition_data
        name = _bytes_of(topic.topic_id) if by_id else topic.name.encode()
        if len(name) > MAX_STRING_BYTES:
            return None
        names.append(name)
        bound += _TOPIC_BYTES + len(name) + _PARTITION_BYTES * len(partitions)

    if cython.compiled:
        # not zeroed: every byte up to `position` is written
        out = PyByteArray_FromStringAndSize(cython.NULL, bound)  # pyright: ignore
        view: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(out))  # pyright: ignore
    else:
        view = bytearray(bound)
    position: cython.Py_ssize_t = _put_int16(view, 4, _API_KEY)
    position = _put_int16(view, position, version)
    position = _put_int32(view, position, correlation_id)
    # the client id has the older form in every version
    position = _put_int16(view, position, -1) if client_id is None else _put_text(view, position, client, False)
    if flexible:
        view[position] = 0  # tagged fields of the header
        view[position + 1] = 0  # the transactional id: null
        position += 2
    else:
        position = _put_int16(view, position, -1)
    position = _put_int16(view, position, acks)
    position = _put_int32(view, position, timeout_ms)
    position = _put_size(view, position, len(topics), flexible)

    parts: list = [None]  # the first part begins with the length of all
    first_end: cython.Py_ssize_t = -1
    start: cython.Py_ssize_t = 0  # of the bytes that are not in `parts` yet
    by_reference: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    index: cython.longlong
    for topic, name in zip(topics, names):  # noqa: B905  (equally long, and slower with `strict`)
        if by_id:
            for index in range(16):
                view[position + index] = name[index]
            position += 16
        else:
            position = _put_text(view, position, name, flexible)
        partitions = topic.partition_data
        position = _put_size(view, position, len(partitions), flexible)
        for data in partitions:
            number = data.index
            if not isinstance(number, int):
                return None
            index = number
            if not _fits_int32(index):
                return None
            position = _put_int32(view, position, index)
            records = data.records
            if records is None:
                position = _put_size(view, position, -1, flexible)
            else:
                size = _size_of(records)
                position = _put_size(view, position, size, flexible)
                if size > 0:
                    if first_end < 0:
                        first_end = position
                    else:
                        parts.append(view[start:position])
                    start = position
                    by_reference += size
                    if isinstance(records, (list, tuple)):
                        parts.extend(records)
                    else:
                        parts.append(records)
            if flexible:
                view[position] = 0
                position += 1
        if flexible:
            view[position] = 0
            position += 1
    if flexible:
        view[position] = 0
        position += 1
    if position - 4 + by_reference > _MAX_FRAME_BYTES:
        return None
    _put_int32(view, 0, position - 4 + by_reference)
    if first_end < 0:
        first_end = position
    elif start < position:
        parts.append(view[start:position])
    parts[0] = view[:first_end]
    return parts


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _fits_int32(value: cython.longlong) -> cython.bint:
    return -0x80000000 <= value <= 0x7FFFFFFF


@cython.final
@cython.cclass
class _Reader:
    """The position in a response. `failed` once anything was found that the general codec has to decode."""

    @cython.cfunc
    def begin(self, payload: Any) -> object:
        self.payload = payload
        if cython.compiled:
            self.view = cython.cast(cython.p_const_uchar, PyMemoryView_GET_BUFFER(payload).buf)  # pyright: ignore
        else:
            self.view = payload
        self.position = 0
        self.end = len(payload)
        self.failed = False
        return None

    @cython.cfunc
    @cython.exceptval(check=False)
    def has(self, size: cython.longlong) -> cython.bint:
        if size < 0 or size > self.end - self.position:
            self.failed = True
        return not self.failed

    @cython.cfunc
    @cython.exceptval(check=False)
    def number(self, size: cython.Py_ssize_t) -> cython.longlong:
        """A signed big-endian integer of `size` bytes."""
        if not self.has(size):
            return 0
        view = self.view
        position: cython.Py_ssize_t = self.position
        value: cython.longlong = view[position]
        index: cython.Py_ssize_t
        if value >= 0x80:
            value -= 0x100
        for index in range(position + 1, position + size):
            value = value * 0x100 + view[index]
        self.position = position + size
        return value

    @cython.cfunc
    @cython.exceptval(check=False)
    def varint(self) -> cython.longlong:
        """An unsigned varint of at most three bytes: no usual response has longer ones."""
        value: cython.longlong = 0
        byte: cython.longlong
        shift: cython.Py_ssize_t
        for shift in range(0, 21, 7):
            if not self.has(1):
                return 0
            byte = self.view[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        self.failed = True
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def no_tags(self) -> cython.bint:
        if self.varint() != 0:
            self.failed = True
        return not self.failed

    @cython.cfunc
    @cython.exceptval(check=False)
    def count(self, flexible: cython.bint, element_bytes: cython.Py_ssize_t) -> cython.longlong:
        """The count of an array whose elements take at least `element_bytes` each."""
        value: cython.longlong = self.varint() - 1 if flexible else self.number(4)
        if value < 0 or value * element_bytes > self.end - self.position:
            self.failed = True
            return 0
        return value

    @cython.cfunc
    def taken(self, size: cython.longlong) -> bytes:
        """The next `size` bytes; none after a failure."""
        if not self.has(size):
            return b""
        view = self.view
        start: cython.Py_ssize_t = self.position
        self.position = start + size
        return view[start : start + size] if cython.compiled else bytes(view[start : start + size])


@cython.ccall
def response_in(version: cython.longlong, payload: Any) -> Any:
    """The ProduceResponse in a frame without its length; None if the general codec has to decode it.

    `payload`: a contiguous memoryview of bytes.
    """
    if not FIRST_VERSION <= version <= LAST_VERSION:
        return None
    reader: _Reader = _Reader.__new__(_Reader)
    reader.begin(payload)
    try:
        return _response_in(version, reader)
    except UnicodeDecodeError:
        return None


@cython.cfunc
def _response_in(version: cython.longlong, reader: _Reader) -> Any:
    flexible: cython.bint = version >= 9
    by_id: cython.bint = version >= 13
    topics: list = []
    partitions: list
    name: str = ""
    topic_id: Any = _NO_ID
    size: cython.longlong
    reader.position = 4  # the correlation id, which the caller has checked
    if flexible:
        reader.no_tags()
    topics_left: cython.longlong = reader.count(flexible, 4)
    partitions_left: cython.longlong
    while topics_left > 0 and not reader.failed:
        topics_left -= 1
        if by_id:
            topic_id = _id_of(reader.taken(16))
        else:
            size = reader.varint() - 1 if flexible else reader.number(2)
            if size > _MAX_INT16:
                return None
            name = reader.taken(size).decode()
        partitions = []
        partitions_left = reader.count(flexible, 14)
        while partitions_left > 0 and not reader.failed:
            partitions_left -= 1
            partitions.append(_partition_in(version, reader, flexible))
        if flexible:
            reader.no_tags()
        if reader.failed:
            return None
        topics.append(_topic_response(name, topic_id, partitions))
    throttle_time_ms: cython.longlong = reader.number(4)
    if flexible:
        reader.no_tags()
    if reader.failed:
        return None
    response = _new(ProduceResponse)
    response.responses = topics
    response.throttle_time_ms = throttle_time_ms
    response.node_endpoints = []
    return response


@cython.cfunc
def _topic_response(name: str, topic_id: Any, partitions: list) -> Any:
    topic = _new(TopicProduceResponse)
    topic.name = name
    topic.topic_id = topic_id
    topic.partition_responses = partitions
    return topic


@cython.cfunc
def _partition_in(version: cython.longlong, reader: _Reader, flexible: cython.bint) -> Any:
    answer = _new(PartitionProduceResponse)
    answer.index = reader.number(4)
    if reader.number(2) != 0:
        reader.failed = True
    answer.error_code = 0
    answer.base_offset = reader.number(8)
    answer.log_append_time_ms = reader.number(8)
    answer.log_start_offset = reader.number(8) if version >= 5 else -1
    answer.record_errors = []
    answer.error_message = None
    answer.current_leader = _NO_LEADER
    if version >= 8:
        # no record errors, no message
        if flexible:
            if reader.varint() != 1 or reader.varint() != 0:
                reader.failed = True
        elif reader.number(4) != 0 or reader.number(2) != -1:
            reader.failed = True
    if flexible:
        reader.no_tags()
    return answer


@cython.cfunc
def _id_of(data: bytes) -> Any:
    known = _ids.get(data)
    if known is None and len(data) == 16:
        if len(_ids) >= _MAX_IDS:
            _ids.clear()
        known = _ids[data] = uuid.UUID(bytes=data)
    return known
