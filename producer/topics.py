"""The topics a producer sends to: their partitions, and waiting for their metadata."""

from __future__ import annotations

from collections.abc import Callable, Generator

from ..network.clock import Clock
from ..network.metadata import Metadata
from ..network.protocol.errors import KafkaError, KafkaTimeoutError, RetriableError, UnknownTopicOrPartitionError
from ..network.topic_names import validate_topic_name
from .accumulator.accumulator_cy import RecordAccumulator
from .accumulator.queues_cy import TopicQueues
from .config import ProducerConfig
from .metrics import ProducerMetrics
from .record_errors import no_such_partition
from .threads import check_may_wait


class Topics:
    """Requests metadata from the sender thread and waits for it on callers' threads. Thread-safe.

    Source: `waitOnMetadata` in Kafka's KafkaProducer.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        metrics: ProducerMetrics,
        wakeup: Callable[[], object],
        is_own_thread: Callable[[], bool],
    ) -> None:
        """Create the topics of one producer.

        `config`: the producer's configuration.
        `clock`: the time source.
        `metadata`: the cluster's metadata.
        `accumulator`: the queues of each topic.
        `metrics`: the producer's metrics.
        `wakeup`: wakes the sender thread.
        `is_own_thread`: whether the calling thread is one of the producer's.
        """
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._accumulator = accumulator
        self._metrics = metrics
        self._wakeup = wakeup
        self._is_own_thread = is_own_thread

    def partitions_of(self, topic: str, partition: int) -> tuple[TopicQueues, int]:
        """Return a topic's queues and number of partitions, waiting at most ``max.block.ms`` for metadata.

        Requests fresh metadata if `partition` (-1: none) isn't known. Any thread that may wait. Raises what `send`
        raises for the topic, but not for the partition.
        """
        topic = validate_topic_name(topic)
        queues = self._accumulator.topics.get(topic)
        if queues is None or queues.partition_count <= max(partition, 0):
            try:
                queues = self.await_partitions(topic, partition, float(self._config.max_block_ms))
            except UnknownTopicOrPartitionError:
                queues = self._accumulator.topics.get(topic)
                if queues is None or queues.partition_count == 0:
                    raise
        else:
            self._metadata.add_topic(topic, self._clock.now_ms())
        return queues, queues.partition_count or len(queues.queues)

    def await_partitions(self, topic: str, partition: int, budget_ms: float) -> TopicQueues:
        """Wait at most `budget_ms` until the topic's partitions are known and include `partition` (-1: none).

        Raises KafkaTimeoutError after the timeout, UnknownTopicOrPartitionError if fresh metadata has no such
        partition, and the brokers' error for the topic if it is not retriable.
        """
        check_may_wait("a call that needs a topic's metadata")
        clock, metadata = self._clock, self._metadata
        deadline_ms = clock.now_ms() + budget_ms
        steps = self.steps(topic, partition)
        while True:
            try:
                version = next(steps)
            except StopIteration as found:
                return found.value
            started_ms = clock.now_ms()
            try:
                metadata.await_update(version, max(deadline_ms - started_ms, 0.0))
            except KafkaTimeoutError as timeout:
                raise self.no_metadata(topic, budget_ms, timeout)  # noqa: B904 - it has its cause
            finally:
                self._metrics.waited_for_metadata(clock.now_ms() - started_ms)

    def steps(self, topic: str, partition: int) -> Generator[int, None, TopicQueues]:
        """The steps of `await_partitions`: each item is a version of the metadata to wait past before the next one.

        Requests the metadata and returns the topic's queues. Raises what `await_partitions` raises, but for the
        timeout. Any thread.
        """
        clock, metadata = self._clock, self._metadata
        fresh_request = 0
        while True:
            # read before the queues are checked: a response that arrives after the check ends the wait below
            version = metadata.version
            metadata.add_topic(topic, clock.now_ms())
            queues = self._accumulator.topic_queues(topic, lambda: metadata.cluster, max(partition, 0))
            count = queues.partition_count
            if count > 0 and partition < count:
                return queues
            if count == 0:
                metadata.request_update_for_topic(topic, version)
            elif fresh_request == 0:
                # a response to an earlier request doesn't count: the partition may just have been added
                fresh_request = metadata.request_fresh()
            elif metadata.is_answered(fresh_request):
                raise no_such_partition(topic, partition, count)
            self._wakeup()
            yield version
            error = metadata.topic_error(topic)
            if error is not None and not isinstance(error, RetriableError):
                raise error

    def no_metadata(self, topic: str, budget_ms: float, timeout: KafkaTimeoutError) -> KafkaTimeoutError:
        """The error, with its cause, of a wait for metadata of a topic that ended with `timeout` after `budget_ms`."""
        # what the brokers said of the topic, if they said anything
        told = self._metadata.topic_error(topic)
        error = self._no_metadata(topic, budget_ms, timeout, told)
        error.__cause__ = told or timeout.__cause__ or timeout
        return error

    def _no_metadata(
        self, topic: str, budget_ms: float, timeout: KafkaTimeoutError, told: KafkaError | None
    ) -> KafkaTimeoutError:
        if self._is_own_thread():
            return KafkaTimeoutError(
                f"the metadata of topic {topic!r} isn't known yet, and a callback can't wait for it: send from another "
                f"thread, or send to the topic elsewhere first"
            )
        if isinstance(told, UnknownTopicOrPartitionError):
            return KafkaTimeoutError(
                f"topic {topic!r} did not appear within max.block.ms ({budget_ms:.0f} ms): the brokers don't have it "
                f"and don't create it automatically. Create the topic, or check its name."
            )
        servers = ", ".join(f"{host}:{port}" for host, port in self._config.bootstrap_servers)
        return KafkaTimeoutError(
            f"no metadata of topic {topic!r} within max.block.ms ({budget_ms:.0f} ms) from {servers}: {timeout}"
        )
