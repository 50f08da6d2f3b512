# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""TLS over a non-blocking socket, for clients and brokers: an `ssl.SSLObject` between two memory BIOs.

The SSL object never sees the socket. Ciphertext moves between the BIOs and the socket here, so a call into OpenSSL
never blocks, and one call encrypts many records:

- A write joins small pieces of the gather list (headers next to the first bytes of a batch) up to PIECE_BYTES, encrypts
  them in one call and sends all their records at once. A large piece is encrypted where it is. What the socket does
  not take is kept in `_unsent`. No more is encrypted until that has been sent, so `_unsent` never exceeds the records
  of one piece.
- A read takes what the kernel has buffered, and decrypts all complete records of it.

Only `_flush` writes to the socket, and only bytes that came out of the outgoing BIO, where nothing but OpenSSL writes.

Renegotiation (TLS 1.2) is rejected, as by Kafka. Key updates and session tickets are OpenSSL's business: they arrive
with reads, and their answers leave with the next write.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..protocol.errors import DisconnectedError, IllegalStateError
from .poller_cy import EVENT_READ, EVENT_WRITE, receive, transmit
from .transport import MSG_MORE, MSG_NOSIGNAL, FileRegion

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

# `ssl` encodes server names with idna and imports it on first use, which fails in a forked child that is exiting
codecs.lookup("idna")

PIECE_BYTES = 256 * 1024
"""The most plaintext per encryption. Each one releases the GIL, and memory for its records is kept per connection."""

_JOINED_BYTES = 32 * 1024  # a buffer of at least this size is encrypted where it is, instead of being joined to others
_RECEIVE_BYTES = 64 * 1024

#: Called with an error of the SSL object, that object, or None if it could not be made, and whether the handshake was
#: complete. Returns what to raise.
Explain = Callable[[Exception, Any, bool], Exception]


class _Scratch(threading.local):
    """The buffer that all transports of a thread receive ciphertext into."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_RECEIVE_BYTES))


_scratch = _Scratch()


@cython.final
@cython.cclass
class TlsTransport:
    """The transport for `security.protocol` SSL and SASL_SSL. Owns its socket and makes it non-blocking."""

    if not cython.compiled:
        # for type checkers; tls_transport_cy.pxd has the C types
        _object: Any
        _unsent: memoryview | None
        _failure: Exception | None

    def __init__(
        self, sock: socket.socket, context: Any, *, server_side: bool, server_name: str | None, explain: Explain
    ) -> None:
        """Store the settings. The handshake begins with the first call of `handshake`.

        `context` is an `ssl.SSLContext` or has its `wrap_bio`.
        `server_name` is the name or address that a client expects in the server's certificate, and sends as SNI.
        `explain` turns an error of the SSL object into the error to raise.
        """
        sock.setblocking(False)
        self._socket = sock
        self._fd = sock.fileno()
        self._context = context
        self._server_side = server_side
        self._server_name = server_name
        self._explain = explain
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = None
        self._unsent = None
        self._failure = None
        self._is_established = False
        self._has_ended = False
        self.ready = False

    @property
    def has_pending_writes(self) -> bool:
        """Whether ciphertext waits for the socket."""
        return self._unsent is not None

    @property
    def has_buffered_reads(self) -> bool:
        """Whether decrypted bytes, records, the end of the stream or an error may be buffered."""
        return (
            self._has_ended
            or self._failure is not None
            or self._incoming.pending > 0
            or (self.ready and self._object.pending() > 0)
        )

    @property
    def ssl_object(self) -> Any:
        """The SSL object, for the peer's certificate, the version and the cipher; None before the handshake."""
        return self._object

    # --- Handshake ---

    def handshake(self) -> int:
        """Continue the handshake. Returns the selector events it waits for, 0 if `ready`.

        Raises what `explain` returns. It gets an EOFError if the peer closes the connection.
        """
        try:
            return self._shake_hands()
        except (OSError, ValueError, EOFError) as error:
            self._send_alert()
            raise self._explain(error, self._object, False) from error

    @cython.cfunc
    def _shake_hands(self) -> cython.int:
        while not self._is_established:
            try:
                if self._object is None:
                    self._object = self._context.wrap_bio(
                        self._incoming,
                        self._outgoing,
                        server_side=self._server_side,
                        server_hostname=self._server_name,
                    )
                self._object.do_handshake()
                self._is_established = True
            except ssl.SSLWantReadError:
                if not self._flush(0):
                    return EVENT_WRITE
                count = self._receive()
                if count < 0:
                    return EVENT_READ
                if count == 0:
                    raise EOFError from None
        if not self._flush(0):
            return EVENT_WRITE
        self.ready = True
        return 0

    def _send_alert(self) -> None:
        """Send the alert that says why the handshake failed, as far as the socket takes it."""
        with contextlib.suppress(OSError):  # the handshake's error says more
            self._flush(0)

    # --- Reading ---

    def read_into(self, buffer: memoryview) -> int | None:
        """Read up to `len(buffer)` bytes. Returns the count, 0 at the end of the stream, None if none are available.

        Raises what `explain` returns.
        """
        total: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = len(buffer)
        count: cython.Py_ssize_t
        if self._failure is not None:
            raise self._failure
        may_decrypt: cython.bint = self._incoming.pending > 0 or self._object.pending() > 0
        while total < size and not self._has_ended:
            if may_decrypt:
                try:
                    count = self._object.read(size - total, buffer[total:] if total else buffer)
                except ssl.SSLWantReadError:
                    may_decrypt = False
                    continue
                except OSError as error:
                    self._send_alert()
                    self._failure = self._explain(error, self._object, True)
                    if total:
                        break  # it is raised once these bytes are processed
                    raise self._failure from error
                if count == 0:
                    self._has_ended = True  # the peer's close_notify
                total += count
                # spares the exception for the usual read, which ends with a record
                may_decrypt = self._incoming.pending > 0 or self._object.pending() > 0
                continue
            if total:
                break
            count = self._receive()
            if count < 0:
                return None
            if count == 0:
                self._has_ended = True
            may_decrypt = True
        if self._outgoing.pending:
            self._flush(0)  # an alert, for instance one that rejects a renegotiation
        return total

    @cython.cfunc
    def _receive(self) -> cython.Py_ssize_t:
        """Move ciphertext from the socket to the incoming BIO. Returns the count, 0 at the end, -1 if there is none."""
        scratch = _scratch
        received = receive(self._socket, self._fd, scratch.view)
        if received is None:
            return -1
        count: cython.Py_ssize_t = received
        if count:
            self._incoming.write(scratch.view[:count])
        return count

    # --- Writing ---

    def write(self, buffers: Sequence[memoryview], *, more: bool = False) -> int:
        """Encrypt the buffers in order and send them. Returns the number of bytes taken.

        All of them are taken unless the socket is full. Then `has_pending_writes` is true.
        """
        total: cython.Py_ssize_t = 0
        index: cython.Py_ssize_t = 0
        start: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = len(buffers)
        size: cython.Py_ssize_t
        room: cython.Py_ssize_t
        if not self._flush(0):
            return 0
        while index < end:
            piece = buffers[index]
            size = len(piece) - start
            if size >= _JOINED_BYTES:
                size = min(size, PIECE_BYTES)
                piece = piece[start : start + size]
                start += size
                if start == len(buffers[index]):
                    index, start = index + 1, 0
            else:
                parts: list = []
                room = PIECE_BYTES
                while index < end and room:
                    piece = buffers[index][start:] if start else buffers[index]
                    size = len(piece)
                    if size > room:
                        parts.append(piece[:room])
                        start += room
                        room = 0
                    else:
                        parts.append(piece)
                        room -= size
                        index, start = index + 1, 0
                piece = parts[0] if len(parts) == 1 else b"".join(parts)
            total += len(piece)
            if not self._encrypt(piece, more or index < end):
                break
        return total

    def write_file(self, region: FileRegion, start: int) -> int | None:
        """Read, encrypt and send the region from `start`.

        Returns the number of bytes taken, 0 if the file ends before the region does, None if the socket takes none
        now.
        """
        if not self._flush(0):
            return None
        file = region.file if isinstance(region.file, int) else region.file.fileno()
        count = region.size_bytes - start
        taken = 0
        while taken < count:
            data = os.pread(file, min(count - taken, PIECE_BYTES), region.offset + start + taken)
            taken += len(data)
            if not data or not self._encrypt(data, taken < count):
                break
        return taken

    @cython.cfunc
    def _encrypt(self, piece: Any, more: cython.bint) -> cython.bint:
        """Encrypt a piece, all of which is taken, and send it. Returns whether the socket has taken all records."""
        if not self.ready:
            raise IllegalStateError("nothing can be sent before the TLS handshake is complete")
        try:
            written = self._object.write(piece)
        except ssl.SSLWantReadError:
            raise DisconnectedError(
                "the peer began a TLS renegotiation, which is not supported: disable it there, or use TLS 1.3"
            ) from None
        except OSError as error:
            raise self._explain(error, self._object, True) from error
        if written != len(piece):
            raise IllegalStateError(f"TLS took {written} of {len(piece)} bytes, but a memory BIO takes all")
        return self._flush(MSG_MORE if more else 0)

    @cython.cfunc
    def _flush(self, flags: cython.int) -> cython.bint:
        """Send the ciphertext. Returns whether none is left."""
        unsent = self._unsent
        while True:
            if unsent is None:
                if not self._outgoing.pending:
                    return True
                unsent = memoryview(self._outgoing.read())
            sent = transmit(self._socket, self._fd, (unsent,), MSG_NOSIGNAL | flags)
            if sent < len(unsent):
                self._unsent = unsent[sent:]
                return False
            self._unsent = unsent = None

    def close(self) -> None:
        """Send close_notify, if the socket takes it, and close the socket. Idempotent."""
        if self._fd < 0:
            return
        if self.ready:
            self.ready = False
            with contextlib.suppress(OSError, ValueError):  # the peer's close_notify is not waited for
                self._object.unwrap()
            self._send_alert()
        # the number may be that of another file from now on
        self._fd = -1
        self._socket.close()
