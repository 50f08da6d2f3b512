# The C declarations of request_cy.py, for the client and the sender.

cdef class ClientResponse

cdef class ClientRequest:
    cdef readonly object node_id
    cdef readonly object message
    cdef readonly long long correlation_id
    cdef readonly double created_ms
    cdef readonly double timeout_ms
    cdef readonly bint expect_response
    cdef readonly object callback
    cdef readonly object min_version
    cdef readonly object max_version

    cpdef ClientResponse ended(
        self,
        double now_ms,
        object message=*,
        object version=*,
        object error=*,
        bint disconnected=*,
        bint timed_out=*
    )

cdef class ClientResponse:
    cdef readonly ClientRequest request
    cdef readonly object message
    cdef readonly object version
    cdef readonly object error
    cdef readonly bint disconnected
    cdef readonly bint timed_out
    cdef readonly double received_ms

cpdef object call_back(list responses)

cdef class KafkaClient:
    cpdef bint ready(self, object node, double now_ms)
    cpdef bint is_ready(self, object node, double now_ms)
    cpdef object send(self, ClientRequest request, double now_ms)
    cpdef list poll(self, double timeout_ms, double now_ms)
    cpdef object api_versions(self, object node_id)
