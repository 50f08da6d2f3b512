# The C types of the attributes in columns_cy.py.

cdef class BytesColumn:
    cdef readonly Py_ssize_t length
    cdef readonly long long total_bytes
    cdef object items
    cdef const unsigned char[::1] data
    cdef long long[::1] starts
    cdef long long[::1] sizes
    cdef const int[::1] offsets32
    cdef const long long[::1] offsets64
    cdef const unsigned char[::1] validity

    cdef Py_ssize_t _locate(
        self, Py_ssize_t offset_bytes, Py_ssize_t width, bint nulls, Py_ssize_t first
    )

cdef class ListColumn:
    cdef readonly Py_ssize_t length
    cdef const long long[::1] bounds
    cdef bint has_nulls
    cdef const unsigned char[::1] validity
    cdef Py_ssize_t first

    cdef long long size_at(self, Py_ssize_t row) noexcept

cdef class Columns:
    cdef readonly Py_ssize_t length
    cdef readonly long long total_bytes
    cdef BytesColumn key
    cdef BytesColumn value
    cdef BytesColumn headers
    cdef bint has_timestamps
    cdef const long long[::1] timestamps
    cdef bint has_partitions
    cdef const long long[::1] partitions
    cdef long long now_ms

    cdef long long size_bound(self, long long row) noexcept
