# The C declarations of batch_memory_cy.py, for the accumulator.

from headrace.network.time_cy cimport Clock
from headrace.producer.accumulator.batch_cy cimport ProducerBatch
from headrace.producer.accumulator.buffer_pool_cy cimport BufferPool, Lease
from headrace.producer.accumulator.compression_estimate_cy cimport CompressionEstimate
from headrace.producer.accumulator.queues_cy cimport PartitionQueue, TopicQueues

cdef class BatchMemory:
    cdef readonly BufferPool pool
    cdef readonly CompressionEstimate estimate
    cdef readonly Py_ssize_t max_batch_size
    cdef double max_open_ms
    cdef Clock clock

    cdef Py_ssize_t full_bytes(self, TopicQueues topic_queues) noexcept
    cdef Py_ssize_t first_bytes(self, TopicQueues topic_queues, PartitionQueue queue, Py_ssize_t size)
    cdef ProducerBatch new_batch(self, TopicQueues topic_queues, PartitionQueue queue, Py_ssize_t size, Lease lease)
    cdef bint make_room(self, PartitionQueue queue, Py_ssize_t size)
