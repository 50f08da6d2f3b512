# The C declarations of tls_transport_cy.py.

cdef class TlsTransport:
    cdef object __weakref__
    cdef object _context
    cdef object _explain
    cdef object _failure
    cdef int _fd
    cdef bint _has_ended
    cdef object _incoming
    cdef bint _is_established
    cdef object _object
    cdef object _outgoing
    cdef object _server_name
    cdef bint _server_side
    cdef object _socket
    cdef object _unsent
    cdef readonly bint ready

    cdef int _shake_hands(self)
    cdef Py_ssize_t _receive(self)
    cdef bint _encrypt(self, object piece, bint more)
    cdef bint _flush(self, int flags)
