# cython: language_level=3
# cython: freethreading_compatible=True
"""The transport without security. Each request and each response is one call of it, or a few."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import _cython as cython
from .poller_cy import receive, transmit
from .transport import MSG_MORE, MSG_NOSIGNAL, FileRegion

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

_FILE_CHUNK_BYTES = 64 * 1024
_SENDFILE_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK})


@cython.cclass
class PlaintextTransport:
    """The transport for `security.protocol=PLAINTEXT`. Owns its socket and makes it non-blocking."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._fd = sock.fileno()
        self._sendfile = hasattr(os, "sendfile")

    @property
    def ready(self) -> bool:
        return True

    @property
    def has_pending_writes(self) -> bool:
        return False

    @property
    def has_buffered_reads(self) -> bool:
        return False

    def handshake(self) -> int:
        return 0

    def read_into(self, buffer: memoryview) -> int | None:
        return receive(self._socket, self._fd, buffer)

    def write(self, buffers: Sequence[memoryview], *, more: bool = False) -> int:
        return transmit(self._socket, self._fd, buffers, MSG_NOSIGNAL | MSG_MORE if more else MSG_NOSIGNAL)

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
                # the file system or the kind of file does not support sendfile: copy from now on
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
        # the number may be that of another file from now on
        self._fd = -1
        self._socket.close()


def plaintext_transport(sock: socket.socket, _host: str) -> PlaintextTransport:
    """The `TransportFactory` for `security.protocol=PLAINTEXT`."""
    return PlaintextTransport(sock)
