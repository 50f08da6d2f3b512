# The C declarations of latch_cy.py.

cdef class Latch:
    cdef public bint is_set
    cdef list _turns

    cpdef object set(self)
    cpdef object wake(self)
    cpdef object join(self)
    cpdef object leave(self, object turn)
    cpdef bint wait(self, object timeout=*)
