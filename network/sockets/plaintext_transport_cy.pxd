# The C declarations of plaintext_transport_cy.py.

cdef class PlaintextTransport:
    cdef object _socket
    cdef int _fd
    cdef public bint _sendfile
