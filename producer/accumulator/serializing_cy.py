# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The call of a serializer for one record's key or value, with the check of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.protocol.errors import SerializationError

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython


@cython.final
@cython.cclass
class SerializeFunction:
    """A function (topic, headers, data) -> bytes or None that calls a serializer.

    It raises SerializationError if the serializer raises, or if it returns something that is not bytes. The threads
    that send call it, outside sections and locks, because serializers are user code.
    """

    if not cython.compiled:
        # for type checkers; serializing_cy.pxd has the C types
        call: Any

    def __init__(
        self, part: str, name: str, call: Callable[..., Any], *, takes_data: bool = False, encodes_text: bool = False
    ) -> None:
        """Wrap `call`, which takes (topic, headers, data), or only the data if `takes_data`; then never None.

        `part`: "key" or "value", for messages. `name`: the serializer's name, for messages.
        `encodes_text`: a str is encoded as UTF-8 without the call.
        """
        self.part = part
        self.name = name
        self.call = call
        self.takes_data = takes_data
        self.encodes_text = encodes_text

    def __call__(self, topic: str, headers: Any, data: Any) -> bytes | None:
        """Serialize `data`; for callers outside the send path."""
        return self.serialized(topic, headers, data)

    @cython.cfunc
    def serialized(self, topic: object, headers: object, data: Any) -> bytes | None:
        """Serialize `data`. Raises SerializationError."""
        output: Any
        try:
            if self.takes_data:
                output = None if data is None else self.call(data)
            elif self.encodes_text and type(data) is str:
                output = cython.cast(str, data).encode()
            else:
                output = self.call(topic, headers, data)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(
                f"the {self.part} serializer {self.name} failed on data of type {type(data).__name__} for topic "
                f"{topic}: {type(error).__name__}: {error}"
            ) from error
        if output is None or type(output) is bytes:
            return output
        if isinstance(output, (bytes, bytearray, memoryview)):
            return bytes(output)
        raise SerializationError(
            f"the {self.part} serializer {self.name} returned {type(output).__name__} for topic {topic}; it has to "
            f"return bytes" + (": encode the text" if isinstance(output, str) else "")
        )
