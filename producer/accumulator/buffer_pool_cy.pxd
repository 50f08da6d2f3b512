# The C declarations of buffer_pool_cy.py, for batches and the accumulator.

cimport cython
from headrace.network.time_cy cimport Clock

cdef class Lease:
    cdef public object buffer
    cdef list more
    cdef readonly Py_ssize_t size_bytes
    cdef public Py_ssize_t holders
    cdef object reference
    cdef object __weakref__

    cpdef object share(self)
    cdef bint is_returned(self)

cdef class Turn:
    cdef Lease lease
    cdef bint granted
    cdef bint queued
    cdef double start_ms
    cdef object latch

    cpdef bint has_granted(self, Py_ssize_t size_bytes)

cdef class BufferPool:
    cdef readonly Py_ssize_t total_bytes
    cdef readonly Py_ssize_t poolable_bytes
    cdef readonly double wait_time_ms
    cdef readonly Py_ssize_t exhausted_count
    cdef public object wait_sensor
    cdef public object exhausted_sensor
    cdef Clock _clock
    cdef cython.pymutex _lock
    cdef public object on_wait
    cdef Py_ssize_t _smallest_bytes
    cdef Py_ssize_t _largest_bytes
    cdef Py_ssize_t _kept_bytes
    cdef dict _free
    cdef dict _leases
    cdef Py_ssize_t _leased_bytes
    cdef object _dropped
    cdef object _line
    cdef bint _closed
    cdef object _cause

    cpdef Py_ssize_t chunk_bytes(self, Py_ssize_t size_bytes)
    cpdef Lease allocate(self, Py_ssize_t size_bytes, double max_block_ms, Turn turn=*)
    cpdef object deallocate(self, Lease lease)
    cpdef bytearray extend(self, Lease lease, Py_ssize_t size_bytes)
    cdef object _drop_kept(self, Py_ssize_t size_bytes)
    cdef object _keep(self, bytearray buffer)
    cdef Lease _new_lease(self, Py_ssize_t size_bytes)
    cdef object _queue_up(self, Lease lease, double max_block_ms)
    cdef bint _has_room(self, Py_ssize_t size_bytes)
    cdef bint is_awaited(self) noexcept
    cdef object _give(self, Lease lease)
    cdef object _take_back(self, Lease lease)
    cdef object _collect_dropped(self)
    cdef object _serve(self)
    cdef object _closed_error(self, str message)
