# The C interface of builder_cy.py: the per-record path calls it without a Python call.

from headrace.network.records.columns_cy cimport Columns

cdef class RecordBatchBuilder:
    cdef readonly object buffer
    cdef unsigned char[::1] view
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t max_record_bytes
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp

    cdef bint try_append(self, long long timestamp, bytes key, bytes value, bytes headers) noexcept
    cdef Py_ssize_t append_rows(
        self, Columns columns, long long[::1] order, Py_ssize_t place, Py_ssize_t end
    ) noexcept

cdef Py_ssize_t record_size(Py_ssize_t count, long long delta, bytes key, bytes value, bytes headers) noexcept
