# The C declarations of accumulator_cy.py, for columnar sends.

from headrace.network.time_cy cimport Clock
from headrace.producer.accumulator.batch_cy cimport ProducerBatch, RecordFuture
from headrace.producer.accumulator.batch_memory_cy cimport BatchMemory
from headrace.producer.accumulator.buffer_pool_cy cimport BufferPool
from headrace.producer.accumulator.compression_estimate_cy cimport CompressionEstimate
from headrace.producer.accumulator.drain_cy cimport Drain, ReadyCheck
from headrace.producer.accumulator.queues_cy cimport PartitionQueue, TopicQueues, WaitingQueues

cdef class RecordAccumulator:
    cdef readonly dict topics
    cdef readonly BufferPool pool
    cdef readonly Py_ssize_t batch_size
    cdef CompressionEstimate estimate
    cdef BatchMemory memory
    cdef readonly Drain drainer
    cdef readonly object bounds
    cdef object busy
    cdef public double next_look_ms
    cdef double linger_ms
    cdef object retry_backoff
    cdef double max_open_ms
    cdef bint adaptive
    cdef readonly object availability
    cdef object rack
    cdef Clock clock
    cdef public object wakeup
    cdef readonly WaitingQueues waiting
    cdef dict incomplete
    cdef readonly object stash
    cdef bint keys_choose
    cdef object updating
    cdef readonly dict flushes
    cdef bint closed

    cdef RecordFuture _open(
        self, TopicQueues topic_queues, PartitionQueue queue, long long timestamp, bytes key, bytes value,
        bytes headers, object callback, Py_ssize_t size, double max_block_ms, object turn
    )
    cdef bint _note_full(self, TopicQueues topic_queues, PartitionQueue queue, Py_ssize_t size)
    cdef object _wake_for(self, PartitionQueue queue, ProducerBatch batch)
    cpdef ReadyCheck ready(self, double now_ms, object busy=*, bint again=*)
    cpdef list drain(self, object node_id, long long max_bytes, double now_ms, double answer_ms=*, bint probe=*)
    cpdef list expired(self, double now_ms)
    cpdef double next_expiry_ms(self, double now_ms)
    cpdef object release(self, ProducerBatch batch)
    cpdef bint make_room(self, TopicQueues topic_queues, PartitionQueue queue, Py_ssize_t size, bint is_sticky)
    cdef PartitionQueue _switched(self, TopicQueues topic_queues)
    cpdef RecordFuture append_now(
        self, TopicQueues topic_queues, Py_ssize_t partition, long long timestamp, bytes key, bytes value,
        bytes headers, object callback
    )
    cpdef bint adopt(self, PartitionQueue queue, ProducerBatch batch)
    cdef RecordFuture _append(
        self, TopicQueues topic_queues, Py_ssize_t partition, long long timestamp, bytes key, bytes value,
        bytes headers, object callback, double max_block_ms, object turn
    )
    cdef RecordFuture _put_aside(
        self, TopicQueues topic_queues, Py_ssize_t partition, long long timestamp, bytes key, bytes value,
        bytes headers, object callback
    )
    cdef object _take_up(self, object record, TopicQueues topic_queues, Py_ssize_t count)
    cdef PartitionQueue _sticky_queue(self, TopicQueues topic_queues, Py_ssize_t size)
