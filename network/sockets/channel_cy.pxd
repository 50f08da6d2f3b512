# The C declarations of channel_cy.py, for the selector.

cdef class FrameAssembler:
    cdef object _channel_id
    cdef object _frame
    cdef Py_ssize_t _filled
    cdef Py_ssize_t _length
    cdef long long _max_receive_bytes
    cdef bytes _rest
    cdef bytearray _scratch
    cdef object _scratch_view
    cdef readonly long long frames_begun

    cpdef object target(self)
    cpdef object received(self, Py_ssize_t count, list receives)
    cdef object _cut(self, Py_ssize_t position, Py_ssize_t end, list receives)

cdef class NetworkReceive:
    cdef readonly object channel_id
    cdef readonly object payload

cdef class NetworkSend:
    cdef object __weakref__
    cdef Py_ssize_t _index
    cdef list _items
    cdef long long _start
    cdef readonly object channel_id
    cdef readonly long long remaining_bytes
    cdef readonly long long size_bytes

    cpdef bint write_to(self, object transport)

cdef class KafkaChannel:
    cdef object __weakref__
    cdef FrameAssembler _assembler
    cdef readonly object _max_receive_bytes
    cdef object _socket
    cdef object _transport
    cdef readonly int fd
    cdef readonly object id
    cdef readonly bint initiated
    cdef public double last_active_ms
    cdef public bint muted
    cdef readonly object peer
    cdef readonly object sends
    cdef public object state
    cdef public int watched_events

    cpdef int wanted_events(self)
    cpdef Py_ssize_t read(self, list receives)
    cpdef object write(self, list completed)
