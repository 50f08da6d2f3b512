# The C interface of builder_cy.py: the per-record path calls it without a Python call.

from headrace.network.records.columns_cy cimport Columns

cdef class RecordBatchBuilder:
    cdef readonly list chunks
    cdef list used
    cdef unsigned char* view
    cdef Py_ssize_t place
    cdef Py_ssize_t position
    cdef Py_ssize_t earlier_bytes
    cdef Py_ssize_t limit_bytes
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t capacity_bytes
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t max_record_bytes
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp

    cpdef object attach(self, bytearray buffer)
    cpdef object raise_limit(self, Py_ssize_t limit_bytes)
    cpdef bytes first_records(self, Py_ssize_t max_bytes)
    cpdef list finish(
        self,
        int compression=*,
        long long base_offset=*,
        long long producer_id=*,
        int producer_epoch=*,
        long long base_sequence=*,
        int attributes=*
    )
    cdef bint next_chunk(self, Py_ssize_t size) noexcept
    cdef bint try_append(self, long long timestamp, bytes key, bytes value, bytes headers) noexcept
    cdef Py_ssize_t append_rows(
        self, Columns columns, long long[::1] order, Py_ssize_t place, Py_ssize_t end
    ) noexcept

cpdef Py_ssize_t encoded_size(bytes key, bytes value, bytes headers)
cdef Py_ssize_t record_size(Py_ssize_t count, long long delta, bytes key, bytes value, bytes headers) noexcept
