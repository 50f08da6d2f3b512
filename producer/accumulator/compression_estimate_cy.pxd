# The C declarations of compression_estimate_cy.py, for the accumulator.

from headrace.producer.accumulator.queues_cy cimport PartitionQueue, TopicQueues

cdef class CompressionEstimate:
    cdef bint compresses
    cdef readonly double packed_share
    cdef object compression
    cdef Py_ssize_t batch_size
    cdef Py_ssize_t largest_bytes

    cdef Py_ssize_t capacity(self, TopicQueues topic_queues) noexcept
    cdef object sample(self, TopicQueues topic_queues, PartitionQueue queue)
