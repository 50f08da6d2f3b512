# The C declarations of sends_cy.py.

from headrace.network.time_cy cimport Clock
from headrace.producer.accumulator.batch_cy cimport RecordFuture
from headrace.producer.aio.futures_cy cimport AsyncRecordFuture, Completions

cdef class LoopSends:
    cdef readonly object loop
    cdef readonly Completions completions
    cdef Clock _clock
    cdef object _send
    cdef object _waiting
    cdef bint _is_direct
    cdef Py_ssize_t _left
    cdef double _turn_began_ms
    cdef readonly bint turn_is_over
    cdef public object serialized

    cdef RecordFuture _append(
        self, object topic, object value, object key, object headers, object partition, object timestamp_ms
    )

cdef class AwaitedSend(AsyncRecordFuture):
    cdef LoopSends _sends
    cdef object _producer
    cdef object _topic
    cdef object _value
    cdef object _key
    cdef object _headers
    cdef object _partition
    cdef object _timestamp_ms
    cdef bint _is_scheduled
    cdef bint _has_begun
    cdef bint _is_watched
    cdef object _steps
    cdef object _awaits
    cdef object _error

    cdef object _schedule(self)
    cdef object _forget_record(self)
    cdef object _begin(self, bint is_scheduled)
    cdef object _appended(self, RecordFuture record)
    cdef object _fail(self, object error)
