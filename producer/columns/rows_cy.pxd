# The C declarations of rows_cy.py.

from headrace.network.records.columns_cy cimport Columns
from headrace.producer.accumulator.batch_cy cimport ProducerBatch
from headrace.producer.accumulator.queues_cy cimport PartitionQueue, TopicQueues
from headrace.producer.accumulator.accumulator_cy cimport RecordAccumulator
from headrace.producer.accumulator.listeners_cy cimport Run

cdef class Rows:
    cdef Columns columns
    cdef readonly object order_array
    cdef long long[::1] order
    cdef long long[::1] groups
    cdef Py_ssize_t partition_count

    cdef object _append_to(self, RecordAccumulator accumulator, TopicQueues topic_queues, object target, object max_block_ms)
    cdef Py_ssize_t _fill_open(
        self, PartitionQueue queue, TopicQueues topic_queues, bint free, object target, Py_ssize_t place, Py_ssize_t end
    )
    cdef Py_ssize_t _fill_new(
        self, RecordAccumulator accumulator, TopicQueues topic_queues, Py_ssize_t partition, object target, Py_ssize_t place,
        Py_ssize_t end, object max_block_ms
    )
    cdef Py_ssize_t _fill(
        self, ProducerBatch batch, TopicQueues topic_queues, bint free, Run run, Py_ssize_t place, Py_ssize_t end
    )
