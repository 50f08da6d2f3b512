# The C declarations of produce_cy.py, for the sender and the client.

cpdef object frame_of(object request, long long version, long long correlation_id, object client_id)
cpdef object response_in(long long version, object payload)
cpdef object partition_data(int index, object records)
cpdef object topic_data(str name, object topic_id, list partitions)
cpdef object produce_request(object transactional_id, object acks, object timeout_ms, list topics)

cdef class _Reader:
    cdef object payload
    cdef const unsigned char* view
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef bint failed

    cdef object begin(self, object payload)
    cdef bint has(self, long long size) noexcept
    cdef long long number(self, Py_ssize_t size) noexcept
    cdef long long varint(self) noexcept
    cdef bint no_tags(self) noexcept
    cdef long long count(self, bint flexible, Py_ssize_t element_bytes) noexcept
    cdef bytes taken(self, long long size)
