# The C declarations of in_flight_cy.py, for the client.

from headrace.network.client.request_cy cimport ClientRequest

cdef class InFlightRequest:
    cdef readonly ClientRequest request
    cdef readonly int version
    cdef readonly double sent_ms
    cdef readonly object send
    cdef readonly bint is_internal
    cdef public double deadline_ms

cdef class InFlightRequests:
    cdef readonly Py_ssize_t max_per_connection
    cdef dict _nodes
    cdef double _no_deadline_before_ms

    cpdef bint can_send_more(self, object node_id)
    cpdef object add(self, InFlightRequest request)
    cpdef InFlightRequest oldest(self, object node_id)
    cpdef InFlightRequest complete_next(self, object node_id)
    cpdef InFlightRequest complete_sent(self, object node_id, object send)
    cdef object _forget_if_idle(self, object node_id, object queue)
    cpdef bint may_have_timed_out(self, double now_ms) noexcept
    cpdef double next_timeout_ms(self, double now_ms)
    cdef object _find_next_deadline(self)
