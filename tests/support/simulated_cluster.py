"""Brokers and their network in virtual time, behind the methods of `Selector` that a client uses.

Theory of operation. `poll` is the only thing that moves the clock: to the next event within the timeout, or by the
whole timeout. Events are connections that are established or fail, requests that arrive, and responses that arrive;
each takes `LATENCY_MS`. A broker that is down rejects connections, and drops those that it has. The partitions that it
leads move to their first replica that is up, with a higher leader epoch, as a controller would move them.

`working_s` is the CPU time that all of this has taken, so that a measurement can leave it out.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, NamedTuple

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import DisconnectedError, IllegalStateError, KafkaError
from headrace.network.protocol.frames import encode_response
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.network.protocol.messages.records.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.network.protocol.messages.topics.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.network.records.batch import RecordBatch
from headrace.network.sockets.channel_cy import NetworkReceive
from headrace.network.sockets.selector_base_cy import ClientSelector
from support.client_harness import api_versions_response
from support.requests import decode_request

#: Milliseconds that a request, a response or a new connection takes in one direction.
LATENCY_MS = 1.0
#: Milliseconds that a poll takes at least, because time that stands still never passes the end of a backoff that was
#: rounded.
POLL_MS = 0.001
#: A broker's port is this number plus its id.
FIRST_PORT = 10_000
REPLICAS = 3
PRODUCER_ID = 4000
NOT_LEADER_OR_FOLLOWER = 6
UNKNOWN_TOPIC_OR_PARTITION = 3
OUT_OF_ORDER_SEQUENCE_NUMBER = 45


class Attempt(NamedTuple):
    """An attempt to connect."""

    at_ms: float
    channel_id: str
    broker_id: int


class FirstRequest(NamedTuple):
    """The first produce request that a broker received after its start."""

    at_ms: float
    started_ms: float


class _Connection:
    def __init__(self, channel_id: str, broker_id: int) -> None:
        self.channel_id = channel_id
        self.broker_id = broker_id
        self.is_open = False


class _Frame:
    """A request that is written at once."""

    remaining_bytes = 0

    def __init__(self, channel_id: str, data: bytes) -> None:
        self.channel_id = channel_id
        self.data = data
        self.size_bytes = len(data)


class Log:
    """What one partition has: the number of batches and records, and the values if they are kept."""

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.values: list[bytes] = []
        self._epoch = -1
        self._next_sequence = 0

    def append(self, batch: RecordBatch, keep_values: bool) -> int:
        """The error code for a batch of the only producer: its sequence numbers must leave no gap."""
        if batch.producer_epoch != self._epoch:
            self._epoch, self._next_sequence = batch.producer_epoch, 0
        if batch.base_sequence < self._next_sequence:
            # a duplicate: its first copy was appended
            return 0
        if batch.base_sequence > self._next_sequence:
            return OUT_OF_ORDER_SEQUENCE_NUMBER
        self._next_sequence += batch.count
        self.batches += 1
        self.records += batch.count
        if keep_values:
            self.values += [bytes(record.value) for record in batch.records()]
        return 0


class SimulatedCluster(ClientSelector):
    """A cluster, and the selector of its only client.

    `attempts`: every attempt to connect. `logs`: by topic and partition, for those that were written to.
    """

    def __init__(
        self,
        clock: MockClock,
        topics: dict[str, int],
        *,
        brokers: int,
        keep_values: bool = False,
        keep_logs: bool = True,
    ) -> None:
        """`topics`: their numbers of partitions. `keep_values`, `keep_logs`: whether to store what is produced."""
        self.clock = clock
        self.broker_count = brokers
        self.attempts: list[Attempt] = []
        self.first_requests: dict[int, FirstRequest] = {}
        self.logs: dict[tuple[str, int], Log] = {}
        self.requests: dict[str, int] = {}
        self.working_s = 0.0
        #: While True, polls return at once: the clock stands still and nothing arrives.
        self.frozen = False
        self._keep_values = keep_values
        self._keep_logs = keep_logs
        self._up = [True] * brokers
        self._started_ms = [clock.now_ms()] * brokers
        self._topic_ids = {name: uuid.UUID(int=number + 1) for number, name in enumerate(topics)}
        self._names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        #: Broker ids by topic and partition: the replicas, and the index of the leader among them (-1: none).
        self._replicas = {
            name: [[(number + part + each) % brokers for each in range(REPLICAS)] for part in range(count)]
            for number, (name, count) in enumerate(topics.items())
        }
        self._leaders = {name: [replicas[0] for replicas in self._replicas[name]] for name in topics}
        self._epochs = {name: [0] * count for name, count in topics.items()}
        self._metadata_bodies: dict[Any, bytes] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._connections: dict[str, _Connection] = {}
        self._woken = False
        self.connected: list[str] = []
        self.completed_sends: list[Any] = []
        self.completed_receives: list[Any] = []
        self.disconnected: dict[str, KafkaError] = {}
        self._written: list[Any] = []

    # --- For the client ---

    def connect(
        self,
        channel_id: str,
        family: int,
        address: Any,
        *,
        host: str = "",
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        if channel_id in self._connections:
            raise IllegalStateError(f"channel {channel_id} exists")
        connection = _Connection(channel_id, address[1] - FIRST_PORT)
        self.attempts.append(Attempt(self.clock.now_ms(), channel_id, connection.broker_id))
        self._connections[channel_id] = connection
        self._after(LATENCY_MS, lambda: self._establish(connection))

    def is_channel_ready(self, channel_id: str) -> bool:
        connection = self._connections.get(channel_id)
        return connection is not None and connection.is_open

    def send(self, channel_id: str, buffers: Iterable[Any]) -> _Frame:
        started_s = time.thread_time()
        connection = self._connections[channel_id]
        frame = _Frame(channel_id, b"".join(buffers))
        self._written.append(frame)
        self._after(LATENCY_MS, lambda: self._serve(connection, frame.data))
        self.working_s += time.thread_time() - started_s
        return frame

    def take_completed_sends(self) -> list[Any]:
        sends, self._written = self._written, []
        return sends

    def poll(self, timeout_ms: float) -> None:
        started_s = time.thread_time()
        self.connected, self.completed_receives, self.disconnected = [], [], {}
        self.completed_sends = self.take_completed_sends()
        if not self.frozen:
            self._run_events(0.0 if self._woken or self.completed_sends else timeout_ms)
        self._woken = False
        self.working_s += time.thread_time() - started_s

    def wakeup(self) -> None:
        self._woken = True

    def close_channel(self, channel_id: str) -> None:
        connection = self._connections.pop(channel_id, None)
        if connection is not None:
            connection.is_open = False

    def close(self) -> None:
        self._connections.clear()

    # --- For the test ---

    @property
    def connection_count(self) -> int:
        """The established connections."""
        return sum(connection.is_open for connection in self._connections.values())

    def leader(self, topic: str, partition: int) -> int:
        """The id of a partition's leader; -1 if it has none."""
        return self._leaders[topic][partition]

    def stop(self, broker_ids: Iterable[int]) -> None:
        """Stop these brokers now. Another replica takes over each of their partitions."""
        stopped = set(broker_ids)
        for broker_id in stopped:
            self._up[broker_id] = False
        for connection in [each for each in self._connections.values() if each.broker_id in stopped]:
            self._drop(connection, "closed the connection")
        self._elect(lambda leader: leader in stopped)

    def start(self, broker_ids: Iterable[int]) -> None:
        """Start these brokers now. The first replica of each partition leads it again if it is up."""
        for broker_id in broker_ids:
            self._up[broker_id] = True
            self._started_ms[broker_id] = self.clock.now_ms()
            self.first_requests.pop(broker_id, None)
        self._elect(lambda leader: True)

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        """Run `action` when the clock reaches `time_ms`."""
        heappush(self._events, (time_ms, next(self._order), action))

    def metadata(self, topics: Iterable[str]) -> MetadataResponse:
        """The response to a request for these topics."""
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host=f"broker-{number}", port=FIRST_PORT + number)
                for number in range(self.broker_count)
            ],
            cluster_id="simulated",
            controller_id=0,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    topic_id=self._topic_ids[name],
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=number,
                            leader_id=leader,
                            leader_epoch=epoch,
                            replica_nodes=replicas,
                            isr_nodes=[each for each in replicas if self._up[each]],
                        )
                        for number, (leader, epoch, replicas) in enumerate(
                            zip(self._leaders[name], self._epochs[name], self._replicas[name], strict=True)
                        )
                    ],
                )
                if name in self._leaders
                else MetadataResponseTopic(error_code=UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[])
                for name in topics
            ],
        )

    def prepare_metadata(self, topics: Iterable[str]) -> None:
        """Encode the response to a request for these topics in the newest version, before a measurement."""
        wanted = [MetadataRequestTopic(name=name) for name in sorted(topics)]
        self._metadata_body(MetadataRequest(topics=wanted), MetadataRequest.versions.max)

    # --- Events ---

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.at(self.clock.now_ms() + delay_ms, action)

    def _run_events(self, timeout_ms: float) -> None:
        end_ms = self.clock.now_ms() + max(timeout_ms, POLL_MS)
        if self._events and self._events[0][0] <= end_ms:
            end_ms = max(self._events[0][0], self.clock.now_ms())
        elif timeout_ms == float("inf"):
            raise AssertionError("the client waits for something that never happens")
        self.clock.advance(end_ms - self.clock.now_ms())
        while self._events and self._events[0][0] <= self.clock.now_ms():
            heappop(self._events)[2]()

    def _establish(self, connection: _Connection) -> None:
        if self._connections.get(connection.channel_id) is not connection:
            return
        if self._up[connection.broker_id]:
            connection.is_open = True
            self.connected.append(connection.channel_id)
        else:
            self._drop(connection, "rejected the connection")

    def _drop(self, connection: _Connection, what: str) -> None:
        self.close_channel(connection.channel_id)
        self._after(0.0, lambda: self._report(connection, f"broker {connection.broker_id} {what}"))

    def _report(self, connection: _Connection, reason: str) -> None:
        self.disconnected[connection.channel_id] = DisconnectedError(reason)

    def _serve(self, connection: _Connection, data: bytes) -> None:
        if not connection.is_open:
            return
        header, message = decode_request(memoryview(data)[4:])
        name = type(message).__name__
        self.requests[name] = self.requests.get(name, 0) + 1
        if isinstance(message, MetadataRequest):
            body = self._metadata_body(message, header.api_version)
        else:
            body = _body(self._answer(connection.broker_id, message), header.api_version)
        # the correlation id follows the length
        payload = bytearray(header.correlation_id.to_bytes(4, "big") + body)
        self._after(LATENCY_MS, lambda: self._deliver(connection, payload))

    def _deliver(self, connection: _Connection, payload: bytearray) -> None:
        if connection.is_open:
            self.completed_receives.append(NetworkReceive(connection.channel_id, memoryview(payload)))

    # --- Brokers ---

    def _elect(self, concerns: Callable[[int], bool]) -> None:
        self._metadata_bodies.clear()
        for name, leaders in self._leaders.items():
            for number, leader in enumerate(leaders):
                if concerns(leader):
                    replicas = self._replicas[name][number]
                    elected = next((each for each in replicas if self._up[each]), -1)
                    if elected != leader:
                        leaders[number] = elected
                        self._epochs[name][number] += 1

    def _metadata_body(self, message: MetadataRequest, version: int) -> bytes:
        names = tuple(topic.name for topic in message.topics or ())
        body = self._metadata_bodies.get((names, version))
        if body is None:
            body = self._metadata_bodies[names, version] = _body(self.metadata(names), version)
        return body

    def _answer(self, broker_id: int, message: Any) -> Any:
        if isinstance(message, ProduceRequest):
            if broker_id not in self.first_requests:
                self.first_requests[broker_id] = FirstRequest(self.clock.now_ms(), self._started_ms[broker_id])
            return ProduceResponse(responses=[self._append_topic(broker_id, topic) for topic in message.topic_data])
        if isinstance(message, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=0)
        assert isinstance(message, ApiVersionsRequest)
        return api_versions_response()

    def _append_topic(self, broker_id: int, topic: Any) -> TopicProduceResponse:
        name = topic.name or self._names[topic.topic_id]
        return TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[self._append(broker_id, name, data) for data in topic.partition_data],
        )

    def _append(self, broker_id: int, name: str, data: Any) -> PartitionProduceResponse:
        leader = self._leaders[name][data.index]
        if leader != broker_id:
            return PartitionProduceResponse(
                index=data.index,
                error_code=NOT_LEADER_OR_FOLLOWER,
                base_offset=-1,
                current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=self._epochs[name][data.index]),
            )
        if not self._keep_logs:
            return PartitionProduceResponse(index=data.index, base_offset=0)
        log = self.logs.get((name, data.index))
        if log is None:
            log = self.logs[name, data.index] = Log()
        offset = log.records
        error_code = log.append(RecordBatch(data.records), self._keep_values)
        return PartitionProduceResponse(
            index=data.index, error_code=error_code, base_offset=-1 if error_code else offset
        )


def _body(response: Any, version: int) -> bytes:
    """A response's bytes behind the correlation id."""
    return b"".join(encode_response(response, version=version, correlation_id=0))[8:]
