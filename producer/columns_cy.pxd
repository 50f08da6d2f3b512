# What columns_cy.py keeps, in C types.

from headrace.producer.queues_cy cimport PartitionQueue, TopicQueues
from headrace.producer.batch_cy cimport ProducerBatch, Run

cdef class BytesColumn:
    cdef readonly Py_ssize_t length
    cdef readonly long long total_bytes
    cdef const unsigned char[::1] data
    cdef long long[::1] starts
    cdef long long[::1] sizes
    cdef const int[::1] offsets32
    cdef const long long[::1] offsets64
    cdef const unsigned char[::1] validity

    cdef object _locate(self, Py_ssize_t offset_bytes, Py_ssize_t width, bint nulls, Py_ssize_t first)

cdef class Columns:
    cdef readonly Py_ssize_t length
    cdef readonly long long total_bytes
    cdef BytesColumn key
    cdef BytesColumn value
    cdef BytesColumn headers
    cdef bint has_timestamps
    cdef const long long[::1] timestamps
    cdef bint has_partitions
    cdef const long long[::1] partitions
    cdef long long now_ms

    cdef long long size_bound(self, long long row) noexcept

cdef class Rows:
    cdef Columns columns
    cdef readonly object order_array
    cdef long long[::1] order
    cdef long long[::1] groups
    cdef Py_ssize_t partition_count

    cdef Py_ssize_t _fill_open(
        self, PartitionQueue queue, TopicQueues topic_queues, object target, Py_ssize_t place, Py_ssize_t end
    )
    cdef Py_ssize_t _fill_new(
        self, object accumulator, TopicQueues topic_queues, Py_ssize_t partition, object target, Py_ssize_t place,
        Py_ssize_t end, object max_block_ms
    )
    cdef Py_ssize_t _fill(self, ProducerBatch batch, Run run, Py_ssize_t place, Py_ssize_t end)
