# The C declarations of futures_cy.py.

from headrace.producer.accumulator.batch_cy cimport RecordFuture

cdef class Completions:
    cdef readonly object loop
    cdef object _clock
    cdef dict _waiting
    cdef object _completed
    cdef list _settling
    cdef bint _scheduled

    cdef object _await_batch(self, AsyncRecordFuture future)

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
