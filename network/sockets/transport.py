"""How the bytes of a channel reach its socket: one class a security protocol, all of them non-blocking.

A transport knows nothing of frames or of Kafka. It says when its handshake is over, reads into a buffer the channel
gives it and writes a gather list. TLS and SASL are further classes of the same shape (`TransportLayer` in Kafka).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import Protocol

IOV_MAX = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024
"""How many buffers the kernel takes in one sendmsg."""

# Nobody's SIGPIPE handler is to hear of a broken connection; the errno says it.
_MSG_NOSIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
# More bytes of this frame follow at once: with TCP_NODELAY the header of a frame would travel in a packet of its own.
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_FILE_CHUNK_BYTES = 64 * 1024
_SENDFILE_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK})


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class FileRegion:
    """A run of bytes of an open file, an item of a gather list that goes from the page cache to the socket.

    The file stays the owner's: it must remain open, and this region of it unchanged, until the send is completed or
    reported as failed. Written at explicit offsets, so that any number of regions can share one descriptor.
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
    """What a channel asks of its transport. Every method is non-blocking and runs on the selector's thread.

    Errors of the connection are raised as OSError (ssl.SSLError is one) or as a KafkaError that says more.
    """

    @property
    def ready(self) -> bool:
        """Whether the handshake is over and frames may pass."""
        ...

    @property
    def has_pending_writes(self) -> bool:
        """Whether bytes taken by `write` are still held here: the channel calls `write(())` until they are gone."""
        ...

    @property
    def has_buffered_reads(self) -> bool:
        """Whether bytes taken from the socket are held here, so that the selector would not report them again."""
        ...

    def handshake(self) -> int:
        """Go on with the handshake; the selector events it waits for, 0 when `ready`."""
        ...

    def read_into(self, buffer: memoryview) -> int | None:
        """Read up to `len(buffer)` bytes: how many, 0 when the peer will send no more, None when none are there now."""
        ...

    def write(self, buffers: Sequence[memoryview], *, more: bool = False) -> int:
        """Write the buffers in order: how many bytes were taken. `more`: a write of the same frame follows at once."""
        ...

    def write_file(self, region: FileRegion, start: int) -> int | None:
        """Write the region from `start` (relative to it): how many bytes were taken, 0 when the file ends before
        the region does, None when none can be taken now."""
        ...

    def close(self) -> None:
        """Close the socket. Any number of times."""
        ...


class PlaintextTransport:
    """The bytes as they are (`security.protocol=PLAINTEXT`). Owns its socket, which it makes non-blocking."""

    __slots__ = ("_sendfile", "_socket")

    ready = True
    has_pending_writes = False
    has_buffered_reads = False

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._sendfile = hasattr(os, "sendfile")

    def handshake(self) -> int:
        return 0

    def read_into(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except BlockingIOError:
            return None

    def write(self, buffers: Sequence[memoryview], *, more: bool = False) -> int:
        try:
            return self._socket.sendmsg(buffers, (), _MSG_NOSIGNAL | _MSG_MORE if more else _MSG_NOSIGNAL)
        except BlockingIOError:
            return 0

    def write_file(self, region: FileRegion, start: int) -> int | None:
        file = region.file if isinstance(region.file, int) else region.file.fileno()
        offset = region.offset + start
        count = region.size_bytes - start
        if self._sendfile:
            try:
                return os.sendfile(self._socket.fileno(), file, offset, count)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno not in _SENDFILE_UNSUPPORTED:
                    raise
                # this file system or this kind of file has no sendfile: copy, here and for what follows
                self._sendfile = False
        return self._copy_file(file, offset, count)

    def _copy_file(self, file: int, offset: int, count: int) -> int | None:
        copied = 0
        while copied < count:
            data = os.pread(file, min(count - copied, _FILE_CHUNK_BYTES), offset + copied)
            written = self.write((memoryview(data),)) if data else 0
            copied += written
            if written < len(data) or not data:
                return copied if copied or not data else None
        return copied

    def close(self) -> None:
        self._socket.close()
