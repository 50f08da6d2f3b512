# The C declarations of serializing_cy.py, for the send path.

cdef class SerializeFunction:
    cdef object part
    cdef object name
    cdef object call
    cdef bint takes_data
    cdef bint encodes_text

    cdef bytes serialized(self, object topic, object headers, object data)
