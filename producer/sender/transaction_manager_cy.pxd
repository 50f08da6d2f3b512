# The C declarations of transaction_manager_cy.py, for the sender.

from headrace.producer.accumulator.batch_cy cimport ProducerBatch

cdef class _Sequences:
    cdef public long long producer_id
    cdef public int producer_epoch
    cdef public long long next_sequence
    cdef public long long last_acked_sequence
    cdef readonly list in_flight

cdef class TransactionManager:
    cdef readonly object state
    cdef public long long producer_id
    cdef public int producer_epoch
    cdef readonly object fatal_error
    cdef readonly dict _partitions
    cdef public object gate
    cdef set _unresolved
    cdef set _to_rewrite

    cpdef _Sequences _sequences(self, object partition)
    cpdef bint has_unsettled(self) noexcept
    cpdef bint needs_producer_id(self) noexcept
    cpdef bint may_drain(self, ProducerBatch batch)
    cpdef object take_sequence(self, ProducerBatch batch)
    cpdef object completed(self, ProducerBatch batch)
