# The C declarations of connection_states_cy.py, for the client.

cdef class _NodeConnection:
    cdef readonly object host
    cdef readonly object port
    cdef public object state
    cdef public double last_attempt_ms
    cdef public int failed_attempts
    cdef public int failed_connect_attempts
    cdef public double reconnect_backoff_ms
    cdef public double setup_timeout_ms
    cdef public double throttled_until_ms
    cdef object _addresses
    cdef Py_ssize_t _address_index
    cdef object _last_address

cdef class ClusterConnectionStates:
    cdef object _reconnect_backoff
    cdef object _setup_timeout
    cdef object _resolver
    cdef dict _nodes
    cdef set _connecting
    cdef set _resolving

    cpdef object state(self, object node_id)
    cpdef bint is_ready(self, object node_id, double now_ms)
    cpdef bint is_connecting(self) noexcept
    cdef _NodeConnection _node(self, object node_id)
