"""Frames: a message with its header, as sent between client and broker.

A frame is a 4-byte length, a header and the message. Encoding returns a gather list that includes the length. Decoding
takes a frame without its length, which the channel has consumed. Requests and responses have two header versions each,
which depend on the version of the message. The newer one has a section of tagged fields (KIP-482).
"""

import struct
from typing import Any, Final, NamedTuple

from .api import ApiKey, requests
from .codec import decode, gather, write_message
from .errors import EncodeError, MalformedMessageError, UnsupportedVersionError
from .message import Request, Response
from .messages.api_versions import ApiVersionsResponse
from .types import MAX_STRING_BYTES, Cursor, read_uvarint, size_of

__all__ = [
    "MAX_REQUEST_ELEMENTS",
    "RequestHeader",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
]

MAX_REQUEST_ELEMENTS: Final = 30_000
"""The limit of array elements in a request to a broker. A decoded element may take a hundred times the memory of its
bytes, and a garbage collection stops every thread while it traverses them."""

_UNSUPPORTED_VERSION: Final = UnsupportedVersionError.code
_MAX_FRAME_BYTES: Final = 0x7FFFFFFF

_length = struct.Struct(">i")
_request_start = struct.Struct(">ihhi")  # the frame's length, then key, version and correlation id
_request_header = struct.Struct(">hhi")
_response_start = struct.Struct(">ii")
_correlation_id = struct.Struct(">i")
_error_code = struct.Struct(">h")
_text_size = struct.Struct(">h")


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(message: Request, *, version: int, correlation_id: int, client_id: str | None) -> list[Any]:
    """Encode a request as a gather list that includes its length prefix. Any thread.

    Raises `EncodeError` for a value that the version cannot represent, `UnsupportedVersionError` for an unsupported
    version.
    """
    out = bytearray(_request_start.pack(0, message.api_key, version, correlation_id))
    # The client id has the older form even in the newer header, so that a broker can read the header of any version.
    if client_id is None:
        out += b"\xff\xff"
    else:
        try:
            text = client_id.encode()
        except UnicodeEncodeError as error:
            raise EncodeError(f"client_id {client_id!r:.80} cannot be encoded in UTF-8: {error.reason}") from None
        if len(text) > MAX_STRING_BYTES:
            raise EncodeError(f"client_id has {len(text)} bytes; the protocol allows at most {MAX_STRING_BYTES}")
        out += _text_size.pack(len(text))
        out += text
    if version in message.flexible:
        out.append(0)
    return _frame(out, message, version)


def encode_response(message: Response, *, version: int, correlation_id: int) -> list[Any]:
    """Encode a response as a gather list that includes its length prefix. Any thread. Raises as `encode_request`."""
    out = bytearray(_response_start.pack(0, correlation_id))
    if _has_newer_response_header(message.api_key, version in message.flexible):
        out.append(0)
    return _frame(out, message, version)


def _frame(out: bytearray, message: Request | Response, version: int) -> list[Any]:
    references = write_message(out, message, version)
    size = len(out) - _length.size + sum(size_of(value) for _, value in references)
    if size > _MAX_FRAME_BYTES:
        raise EncodeError(f"{type(message).__name__} has {size} bytes, more than a frame can hold")
    _length.pack_into(out, 0, size)
    return gather(out, references)


def _has_newer_response_header(api_key: ApiKey, flexible: bool) -> bool:
    # A client that sends ApiVersions cannot know yet which version the broker will answer in (KIP-511).
    return flexible and api_key is not ApiKey.API_VERSIONS


def decode_request_header(buffer: Any) -> tuple[RequestHeader, int]:
    """Decode the header of a request. Returns it with the position after it. Any thread.

    Works for every version of an API in the registry, including unsupported versions, so that ApiVersions can be
    answered in version 0. Raises `UnsupportedVersionError` for other APIs, and `MalformedMessageError`.
    """
    view = memoryview(buffer)
    try:
        key, version, correlation_id = _request_header.unpack_from(view)
        (text_bytes,) = _text_size.unpack_from(view, _request_header.size)
    except struct.error:
        raise MalformedMessageError("the bytes end within a request header") from None
    try:
        api_key = ApiKey(key)
    except ValueError:
        raise MalformedMessageError(f"a request header names the API {key}, which does not exist") from None
    request_class = requests.get(api_key)
    if request_class is None:
        raise UnsupportedVersionError(f"the API {api_key.name} is not supported")
    position = _request_header.size + _text_size.size
    client_id = None
    if text_bytes != -1:
        stop = position + text_bytes
        if text_bytes < 0 or stop > len(view):
            raise MalformedMessageError(f"a request header's client id has size {text_bytes}")
        try:
            client_id = str(view[position:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"a request header's client id is not valid UTF-8: {error.reason}") from None
        position = stop
    if version >= request_class.flexible.min:
        position = _skip_tags(view, position)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def decode_response(request_class: type[Request], version: int, buffer: Any) -> tuple[int, Response]:
    """Decode the response to a request of `version`. Returns its correlation id and its message. Any thread.

    If a broker does not support the version of an ApiVersions request, it answers in version 0 with
    UNSUPPORTED_VERSION, which is recognized. Bytes after the message are ignored, as in the Java client: librdkafka's
    mock broker sends one. Raises `MalformedMessageError` and `UnsupportedVersionError`.
    """
    view = memoryview(buffer)
    try:
        (correlation_id,) = _correlation_id.unpack_from(view)
    except struct.error:
        raise MalformedMessageError("the bytes end within a response header") from None
    position = _correlation_id.size
    if _has_newer_response_header(request_class.api_key, version in request_class.flexible):
        position = _skip_tags(view, position)
    body = view[position:]
    if (
        request_class.api_key is ApiKey.API_VERSIONS
        and len(body) >= _error_code.size
        and _error_code.unpack_from(body)[0] == _UNSUPPORTED_VERSION
    ):
        try:
            return correlation_id, decode(request_class.response_class, 0, body)
        except MalformedMessageError:
            # librdkafka's mock broker mixes two versions in this response; its meaning is clear nevertheless
            return correlation_id, ApiVersionsResponse(error_code=_UNSUPPORTED_VERSION, api_keys=[])
    return correlation_id, decode(request_class.response_class, version, body, exact=False)


def _skip_tags(view: memoryview, position: int) -> int:
    """The position after a header's tagged fields. None of them are known."""
    cursor = Cursor(view, 0)
    cursor.position = position
    try:
        for _ in range(read_uvarint(cursor)):
            read_uvarint(cursor)
            size = read_uvarint(cursor)
            if size > cursor.end - cursor.position:
                raise MalformedMessageError(f"a header's tagged field has size {size}, more than there is")
            cursor.position += size
    except IndexError:
        raise MalformedMessageError("the bytes end within a header's tagged fields") from None
    return cursor.position
