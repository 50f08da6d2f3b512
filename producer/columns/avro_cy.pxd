# The C types of the attributes in avro_cy.py.

cdef int IS_NULL, OUT_OF_RANGE, NO_SYMBOL, WRONG_LENGTH, TOO_WIDE

cdef class Node:
    cdef readonly str path
    cdef readonly str avro_type
    cdef readonly int problem
    cdef bint has_nulls
    cdef bint takes_null
    cdef int branch_bytes
    cdef int null_bytes
    cdef unsigned char null_branch
    cdef unsigned char value_branch
    cdef const unsigned char[::1] validity
    cdef Py_ssize_t first

    cdef bint is_null(self, Py_ssize_t row) noexcept nogil
    cdef long long size(self, Py_ssize_t row) noexcept nogil
    cdef Py_ssize_t put(self, Py_ssize_t row, unsigned char *out, Py_ssize_t at) noexcept nogil
    cdef long long value_size(self, Py_ssize_t row) noexcept nogil
    cdef Py_ssize_t put_value(self, Py_ssize_t row, unsigned char *out, Py_ssize_t at) noexcept nogil

cdef class BooleanNode(Node):
    cdef const unsigned char[::1] bits
    cdef Py_ssize_t first_bit

cdef class LongNode(Node):
    cdef const long long[::1] values
    cdef long long factor
    cdef long long divisor
    cdef long long least
    cdef long long most
    cdef int out_of_range

    cdef long long converted(self, Py_ssize_t row) noexcept nogil

cdef class WidthNode(Node):
    cdef const unsigned char[::1] data
    cdef Py_ssize_t width
    cdef Py_ssize_t stride

cdef class BytesNode(Node):
    cdef const unsigned char[::1] data
    cdef const long long[::1] starts
    cdef const long long[::1] sizes
    cdef bint has_length
    cdef Py_ssize_t exact

cdef class UuidNode(Node):
    cdef const unsigned char[::1] data

cdef class DecimalNode(Node):
    cdef const unsigned char[::1] data
    cdef Py_ssize_t width
    cdef Py_ssize_t fixed

    cdef Py_ssize_t needed(self, Py_ssize_t start) noexcept nogil

cdef class RecordNode(Node):
    cdef Node left
    cdef Node right

cdef class ListNode(Node):
    cdef const long long[::1] bounds
    cdef Node items

cdef class CheckedNode(Node):
    cdef Node values
    cdef const unsigned char[::1] bad
