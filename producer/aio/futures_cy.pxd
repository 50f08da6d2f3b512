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

cdef class AsyncRecordFuture:
    cdef bint is_blocking
    cdef readonly RecordFuture record
    cdef Completions completions
    cdef object callback
    cdef object context
    cdef list callbacks
    cdef bint is_waiting
    cdef bint is_cancelled
    cdef object cancel_message
    cdef object found

    cdef bint _is_over(self) noexcept
    cdef object _failure(self)
    cdef object _call_back_soon(self)
    cdef object _add_callback(self, object fn, object context)
    cdef object _settle(self)
    cdef object _call_back(self, object callback, object context)
    cdef object _outcome(self)
