# The C declarations of futures_cy.py.

from headrace.network.time_cy cimport Clock
from headrace.producer.accumulator.batch_cy cimport RecordFuture

cdef class Completions:
    cdef readonly object loop
    cdef Clock _clock
    cdef dict _waiting
    cdef object _completed
    cdef list _settling
    cdef bint _scheduled

    cpdef AsyncRecordFuture future_of(self, RecordFuture record)
    cdef object _await_batch(self, AsyncRecordFuture future)

cdef class LoopSends:
    cdef readonly object loop
    cdef readonly Completions completions
    cdef Clock _clock
    cdef object _send
    cdef object _waiting
    cdef Py_ssize_t _left
    cdef double _turn_began_ms
    cdef readonly bint turn_is_over
    cdef public object serialized

cdef class AsyncRecordFuture:
    cdef public bint _asyncio_future_blocking
    cdef readonly RecordFuture record
    cdef Completions completions
    cdef list callbacks
    cdef bint is_cancelled
    cdef object cancel_message
    cdef object found

    cdef object _settle(self)
    cdef object _outcome(self)
