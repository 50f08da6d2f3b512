"""SASL with Apache Kafka over a socket, without the authenticators of the code under test.

The frames are encoded by hand: SaslHandshake version 1 and SaslAuthenticate version 1.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from support.apache_kafka.cluster import HOST, JVM_OPTIONS, ApacheKafka, free_ports


class WithSasl(ApacheKafka):
    """A broker with a further listener, SASL, on `sasl_port`: SASL_PLAINTEXT with the given settings."""

    sasl_port = 0

    def __init__(self, settings: Mapping[str, str], jvm_options: Sequence[str] = ()) -> None:
        super().__init__(jvm_options=(*JVM_OPTIONS, *jvm_options))
        self._settings = settings

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        [self.sasl_port] = free_ports(1)
        for broker in self._brokers.values():
            text = broker.config.read_text()
            text = re.sub(r"(?m)^(listeners|advertised.listeners)=.*", rf"\g<0>,SASL://{HOST}:{self.sasl_port}", text)
            text = re.sub(r"(?m)^listener.security.protocol.map=.*", r"\g<0>,SASL:SASL_PLAINTEXT", text)
            text += "".join(f"listener.name.sasl.{name}={value}\n" for name, value in self._settings.items())
            broker.config.write_text(text)


class Answer(NamedTuple):
    """A SaslAuthenticate response."""

    error_code: int
    error_message: str
    auth_bytes: bytes
    session_lifetime_ms: int


class Conversation:
    """A connection to Apache Kafka that has chosen a mechanism."""

    def __init__(self, port: int, mechanism: str) -> None:
        self._socket = socket.create_connection((HOST, port), 20)
        name = mechanism.encode()
        assert self._ask(17, 1, struct.pack(">h", len(name)) + name)[:2] == b"\x00\x00"

    def close(self) -> None:
        self._socket.close()

    def authenticate(self, message: bytes) -> Answer:
        body = self._ask(36, 1, struct.pack(">i", len(message)) + message)
        code, size = struct.unpack_from(">hh", body)
        text, rest = body[4 : 4 + max(size, 0)], body[4 + max(size, 0) :]
        (length,) = struct.unpack_from(">i", rest)
        (lifetime_ms,) = struct.unpack_from(">q", rest, 4 + length)
        return Answer(code, text.decode(), rest[4 : 4 + length], lifetime_ms)

    def _ask(self, api_key: int, version: int, body: bytes) -> bytes:
        request = struct.pack(">hhih", api_key, version, 1, -1) + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        with self._socket.makefile("rb") as file:
            (size,) = struct.unpack(">i", file.read(4))
            return file.read(size)[4:]
