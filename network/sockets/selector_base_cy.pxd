# The C declarations of selector_base_cy.py, for the selector, its client and the client's metrics.

cdef class SelectorCounters:
    cdef public long long connections_created
    cdef public long long connections_closed
    cdef public long long operations
    cdef public double waited_ms

cdef class ClientSelector:
    cdef public list connected
    cdef public list completed_sends
    cdef public list completed_receives
    cdef public dict disconnected

    cpdef bint is_channel_ready(self, str channel_id)
    cpdef object send(self, str channel_id, object buffers)
    cpdef list take_completed_sends(self)
    cpdef object poll(self, double timeout_ms)
