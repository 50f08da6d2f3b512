# The C declarations of latch_cy.py: locks that are released without the GIL.

cdef extern from *:
    """
    #include <Python.h>
    #include <math.h>
    #include <time.h>
    static inline double headrace_seconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    }
    static inline PyThread_type_lock headrace_held_lock(void) {
        PyThread_type_lock lock = PyThread_allocate_lock();
        if (lock == NULL) PyErr_NoMemory();
        else PyThread_acquire_lock(lock, WAIT_LOCK);
        return lock;
    }
    static inline void headrace_free_lock(PyThread_type_lock lock) {
        if (lock == NULL) return;
        /* where a lock is a mutex, it must not be destroyed while it is held */
        PyThread_acquire_lock(lock, NOWAIT_LOCK);
        PyThread_release_lock(lock);
        PyThread_free_lock(lock);
    }
    /* 1: acquired, 0: not within the time, -1: a signal handler raised. Negative seconds: no limit. */
    static inline int headrace_sleep_on(PyThread_type_lock lock, double seconds) {
        double end = seconds < 0 ? 0 : headrace_seconds() + seconds;
        PyLockStatus status = PyThread_acquire_lock_timed(lock, 0, 0);
        while (status != PY_LOCK_ACQUIRED && seconds != 0) {
            long long microseconds = seconds < 0 ? -1 : (long long)ceil(seconds * 1e6);
            Py_BEGIN_ALLOW_THREADS
            status = PyThread_acquire_lock_timed(lock, microseconds, 1);
            Py_END_ALLOW_THREADS
            if (status != PY_LOCK_INTR) break;
            if (Py_MakePendingCalls() < 0) return -1;
            if (seconds > 0) {
                seconds = end - headrace_seconds();
                if (seconds <= 0) return 0;
            }
        }
        return status == PY_LOCK_ACQUIRED;
    }
    """
    ctypedef void *PyThread_type_lock
    PyThread_type_lock held_lock "headrace_held_lock"() except NULL
    void free_lock "headrace_free_lock"(PyThread_type_lock lock)
    int sleep_on "headrace_sleep_on"(PyThread_type_lock lock, double seconds) except -1
    void release_lock "PyThread_release_lock"(PyThread_type_lock lock) nogil

cdef class ThreadTurn:
    cdef PyThread_type_lock _lock

    cpdef bint sleep(self, double seconds)
    cpdef object release(self)

cdef class Latch:
    cdef public bint is_set
    cdef list _turns

    cpdef object set(self)
    cpdef object wake(self)
    cpdef ThreadTurn join(self)
    cpdef object leave(self, object turn)
    cpdef bint wait(self, object timeout=*)

cdef class LateWakes:
    cdef list _latches

    cpdef object add(self, Latch latch)
    cpdef list take(self, Py_ssize_t most)
    cpdef object wake(self)
