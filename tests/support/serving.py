"""A server that handles each connection with a function of the test, on its own threads."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

Serve = Callable[[Callable[[socket.socket], None]], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts a server, which handles each connection on its own thread, and returns the port."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def spawn(target: Callable[..., None], *args: object) -> None:
        threads.append(threading.Thread(target=target, args=args, daemon=True))
        threads[-1].start()

    def handle(connection: socket.socket, treat: Callable[[socket.socket], None]) -> None:
        with connection:
            connection.settimeout(30)
            treat(connection)

    def start(treat: Callable[[socket.socket], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                spawn(handle, connection, treat)

        spawn(run)
        return listener.getsockname()[1]

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(30)
