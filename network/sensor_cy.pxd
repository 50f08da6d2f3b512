# The C declarations of sensor_cy.py, for those who record.

from headrace.network.time_cy cimport Clock

cdef class Sensor:
    cdef Clock _clock
    cdef double _window_ms
    cdef Py_ssize_t _samples
    cdef double _start_ms
    cdef double _last_ms
    cdef long long _count
    cdef double _total
    cdef double _greatest
    cdef list _finished
    cdef long long _earlier_count
    cdef double _earlier_total
    cdef object _lock

    cpdef object record(self, double value, double now_ms)
    cpdef object record_all(self, long long count, double total, double greatest, double now_ms)
    cdef object _begin_sample(self, double now_ms)
    cdef object _current(self)
