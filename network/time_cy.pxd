# The C declarations of time_cy.py.

cdef class Clock:
    cpdef double now_ms(self)
    cpdef long long wall_ms(self)
