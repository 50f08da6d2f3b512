"""Requests of a coordinator or a leader to other brokers, and to its own: one thread and connection per broker."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ...network.protocol.errors import KafkaConnectionError, KafkaError
from ...network.sections import section_thread
from ..metadata import BrokerEndpoint, ClusterImage
from ..replica.connection import UNREACHABLE, InterBrokerConnection, InterBrokerConnector

_log = logging.getLogger(__name__)

Item = TypeVar("Item")


class PeerRequests(ABC, Generic[Item]):
    """Collects items per broker and sends all that have collected in one request.

    `send` may be called from any thread, `close` once. `exchange` and `fail` run on the thread of one broker.
    """

    def __init__(
        self,
        name: str,
        broker_id: int,
        *,
        connector: InterBrokerConnector,
        image: Callable[[], ClusterImage],
    ) -> None:
        """`name` is part of the threads' names, `image` returns this broker's view of the cluster."""
        self._name = name
        self._broker_id = broker_id
        self._connector = connector
        self._image = image
        self._lock = threading.Lock()
        self._peers: dict[int, _Peer[Item]] = {}
        self._is_closed = False

    @abstractmethod
    def exchange(self, connection: InterBrokerConnection, items: Sequence[Item]) -> None:
        """Send items to a broker and handle its response. May raise the errors of `UNREACHABLE`; then `fail` is called
        for the same items."""

    @abstractmethod
    def fail(self, items: Sequence[Item], error: KafkaError) -> None:
        """Handle items that a broker could not be sent, or to which it did not respond."""

    def send(self, node_id: int, item: Item) -> None:
        """Queue an item for a broker. Dropped after `close`."""
        with self._lock:
            if self._is_closed:
                return
            peer = self._peers.get(node_id)
            if peer is None:
                peer = self._peers[node_id] = _Peer(self, node_id)
        peer.put(item)

    def thread_name(self, node_id: int) -> str:
        return f"broker-{self._broker_id}-{self._name}-{node_id}"

    def endpoint(self, node_id: int) -> BrokerEndpoint | None:
        return self._image().brokers.get(node_id)

    def connection_to(self, endpoint: BrokerEndpoint) -> InterBrokerConnection:
        return self._connector.connection_to(endpoint, self._image().broker_token)

    def close(self) -> None:
        """Interrupt all requests and wait until the threads have ended."""
        with self._lock:
            self._is_closed = True
            peers = list(self._peers.values())
        for peer in peers:
            peer.stop()
        for peer in peers:
            peer.thread.join()


class _Peer(Generic[Item]):
    """The thread for one broker."""

    def __init__(self, requests: PeerRequests[Item], node_id: int) -> None:
        self._requests = requests
        self._node_id = node_id
        self._condition = threading.Condition()
        self._items: list[Item] = []
        self._is_stopping = False
        self._connection: InterBrokerConnection | None = None
        self._endpoint: BrokerEndpoint | None = None
        self.thread = section_thread(self._run, requests.thread_name(node_id))
        self.thread.start()

    def put(self, item: Item) -> None:
        with self._condition:
            self._items.append(item)
            self._condition.notify()

    def stop(self) -> None:
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
            connection = self._connection
        if connection is not None:
            connection.interrupt()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._items and not self._is_stopping:
                    self._condition.wait()
                if self._is_stopping:
                    break
                items, self._items = self._items, []
            try:
                self._requests.exchange(self._connect(), items)
            except UNREACHABLE as failed:
                if not self._is_stopping:
                    _log.debug("broker %d can't be reached: %s", self._node_id, failed)
                    self._requests.fail(items, failed)
        if self._connection is not None:
            self._connection.close()

    def _connect(self) -> InterBrokerConnection:
        endpoint = self._requests.endpoint(self._node_id)
        if endpoint is None:
            raise KafkaConnectionError(f"broker {self._node_id} is not alive")
        with self._condition:
            if self._connection is None or endpoint != self._endpoint:
                if self._connection is not None:
                    self._connection.close()
                self._connection = self._requests.connection_to(endpoint)
                self._endpoint = endpoint
            return self._connection
