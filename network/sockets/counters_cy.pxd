# The C declarations of counters_cy.py, for the selector and the client's metrics.

cdef class SelectorCounters:
    cdef public long long connections_created
    cdef public long long connections_closed
    cdef public long long operations
    cdef public double waited_ms
