"""What moves a channel's bytes to and from its socket: one non-blocking class per security protocol.

A transport is independent of frames and of Kafka. It performs the handshake, reads into a buffer of the channel's and
writes a gather list (Kafka's `TransportLayer`). `plaintext_transport_cy` and `tls_transport_cy` have one each.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

IOV_MAX = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024
"""The number of buffers the kernel takes per sendmsg."""

# A broken connection must not call the program's SIGPIPE handler; the errno suffices.
MSG_NOSIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
# More bytes of the frame follow at once. Otherwise TCP_NODELAY would send its header in a packet of its own.
MSG_MORE = getattr(socket, "MSG_MORE", 0)


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class FileRegion:
    """A range of bytes of an open file, as an item of a gather list. It goes from the page cache to the socket.

    The file belongs to the caller. It must remain open, and this region unchanged, until the send is completed or
    reported as failed. Any number of regions can share one descriptor, because reads use explicit offsets.
    """

    __slots__ = ("file", "offset", "size_bytes")

    def __init__(self, file: int | HasFileno, offset: int, size_bytes: int) -> None:
        if offset < 0 or size_bytes < 0:
            raise ValueError(f"a file region needs an offset and a size >= 0, got offset={offset} size={size_bytes}")
        self.file = file
        self.offset = offset
        self.size_bytes = size_bytes

    def __repr__(self) -> str:
        return f"FileRegion(file={self.file!r}, offset={self.offset}, size_bytes={self.size_bytes})"


class Transport(Protocol):
    """The transport of a channel. Every method is non-blocking and runs on the selector's thread.

    Connection errors are raised as OSError (ssl.SSLError is a subclass) or as a KafkaError with more detail.
    """

    @property
    def ready(self) -> bool:
        """Whether the handshake is complete and frames can be sent and received."""
        ...

    @property
    def has_pending_writes(self) -> bool:
        """Whether bytes taken by `write` are still buffered. The channel calls `write(())` until they are sent."""
        ...

    @property
    def has_buffered_reads(self) -> bool:
        """Whether bytes read from the socket are still buffered. The selector does not report those again."""
        ...

    def handshake(self) -> int:
        """Continue the handshake. Returns the selector events it waits for, 0 if `ready`."""
        ...

    def read_into(self, buffer: memoryview) -> int | None:
        """Read up to `len(buffer)` bytes. Returns the count, 0 at the end of the stream, None if none are available."""
        ...

    def write(self, buffers: Sequence[memoryview], *, more: bool = False) -> int:
        """Write the buffers in order. Returns the number of bytes taken.

        `more` means that another write of the same frame follows at once.
        """
        ...

    def write_file(self, region: FileRegion, start: int) -> int | None:
        """Write the region from `start`, which is relative to the region.

        Returns the number of bytes taken, 0 if the file ends before the region does, None if the socket takes none
        now.
        """
        ...

    def close(self) -> None:
        """Close the socket. Idempotent."""
        ...


#: Called with a socket and the host name it is connected to, or "" for an accepted one.
TransportFactory = Callable[[socket.socket, str], Transport]
