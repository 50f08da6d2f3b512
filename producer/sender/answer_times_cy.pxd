# The C declarations of answer_times_cy.py, for the sender.

cdef class AnswerTimes:
    cdef double _half_timeout_ms
    cdef list _observed_ms
    cdef double _last_observed_at_ms
    cdef double _usual_ms
    cdef readonly double expected_ms
    cdef Py_ssize_t _in_flight
    cdef bint _is_probing

    cpdef object sent(self)
    cpdef object ended(self, double now_ms, object answer)
    cdef object _estimate(self)

cdef class TimesByNode:
    cdef double _delivery_timeout_ms
    cdef dict _nodes
    cdef readonly set busy

    cpdef AnswerTimes of(self, object node_id)
    cpdef object sent(self, object node_id, object nodes)
    cpdef object ended(self, object node_id, double now_ms, object answer)
