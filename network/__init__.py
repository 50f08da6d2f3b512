"""Shared by both ends of a Kafka connection: the wire protocol, record batches, sockets, time and configuration."""

from . import _build

_build.install()
