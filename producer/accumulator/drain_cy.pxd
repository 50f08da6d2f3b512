# The C declarations of drain_cy.py, for the accumulator.

from headrace.producer.accumulator.batch_cy cimport ProducerBatch
from headrace.producer.accumulator.buffer_pool_cy cimport BufferPool
from headrace.producer.accumulator.queues_cy cimport PartitionQueue, WaitingQueues

cdef class ReadyCheck:
    cdef readonly dict nodes
    cdef readonly double next_check_ms
    cdef readonly set leaderless_topics

cdef class Drain:
    cdef WaitingQueues waiting
    cdef BufferPool pool
    cdef object stash
    cdef object transactions
    cdef double linger_ms
    cdef double delivery_timeout_ms
    cdef double max_open_ms
    cdef readonly object given_up
    cdef dict sendable
    cdef list found
    cdef readonly bint more
    cdef double later_ms
    cdef readonly double expiry_look_ms
    cdef public double packed_share

    cpdef ReadyCheck ready(self, double now_ms, object busy, bint hurry, bint again)
    cdef double _take_soon(self, double now_ms, dict ready)
    cpdef list drain(self, object node_id, long long max_bytes, double now_ms, double answer_ms, bint probe)
    cpdef list expired(self, double now_ms)
    cpdef object note_deadline(self, ProducerBatch batch)
    cdef double _packed_bytes(self, ProducerBatch batch)
    cdef ProducerBatch _take(self, PartitionQueue queue, ProducerBatch wanted)
