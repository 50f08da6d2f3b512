# The C declarations of listeners_cy.py, for batches and columnar sends.

cdef class Run:
    cdef object target
    cdef Py_ssize_t start
    cdef Py_ssize_t count
    cdef Py_ssize_t place
    cdef Run next

cdef class Listener:
    cdef object callback
    cdef object future
    cdef int kind

cdef Listener new_listener(object callback, object future, int kind)
