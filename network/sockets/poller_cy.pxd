# The C declarations of poller_cy.py: system calls that keep the GIL as long as they do not wait.

from headrace.network.latch_cy cimport LateWakes, PyThread_type_lock

cdef extern from *:
    """
    #include <Python.h>
    #include <errno.h>
    #include <stdint.h>
    #include <unistd.h>
    #if defined(__linux__)
    #include <sys/epoll.h>
    #define HEADRACE_MAX_EVENTS 256
    /* The readable (1) and writable (2) descriptors. Releases the GIL only if it has to wait for them. Releases the
       held locks without the GIL if it gives that away, and else at the end. */
    static inline int headrace_epoll_events(int epoll, int *fds, int *events, int max_events, int timeout_ms,
                                            PyThread_type_lock *held, int held_count) {
        struct epoll_event found[HEADRACE_MAX_EVENTS];
        int index, count;
        if (max_events > HEADRACE_MAX_EVENTS) max_events = HEADRACE_MAX_EVENTS;
        count = epoll_wait(epoll, found, max_events, 0);
        if (count == 0 && timeout_ms != 0) {
            Py_BEGIN_ALLOW_THREADS
            for (; held_count > 0; held_count--) PyThread_release_lock(held[held_count - 1]);
            count = epoll_wait(epoll, found, max_events, timeout_ms);
            Py_END_ALLOW_THREADS
        }
        for (index = 0; index < count; index++) {
            fds[index] = found[index].data.fd;
            events[index] = (found[index].events & ~EPOLLOUT ? 1 : 0) | (found[index].events & ~EPOLLIN ? 2 : 0);
        }
        for (; held_count > 0; held_count--) PyThread_release_lock(held[held_count - 1]);
        return count;
    }
    #else
    static inline int headrace_epoll_events(int epoll, int *fds, int *events, int max_events, int timeout_ms,
                                            PyThread_type_lock *held, int held_count) {
        errno = ENOSYS;
        return -1;
    }
    #endif
    #if defined(_MSC_VER)
    #include <windows.h>
    #define headrace_full_fence() MemoryBarrier()
    #else
    #define headrace_full_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #endif
    static inline void headrace_wake(int fd) {
        uint64_t one = 1;
        /* it fails only if the counter would overflow */
        if (write(fd, &one, sizeof one) < 0) return;
    }
    """
    int epoll_events "headrace_epoll_events"(int epoll, int *fds, int *events, int max_events, int timeout_ms,
                                             PyThread_type_lock *held, int held_count)
    void wake "headrace_wake"(int fd)
    void full_fence "headrace_full_fence"()

cdef extern from "sys/socket.h":
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    ssize_t send(int fd, const void *buffer, size_t size, int flags)

cdef class Poller:
    cdef dict _data
    cdef object _lock
    cdef bint _waiting
    cdef bint _requested
    cdef bint _closed
    cdef object _epoll
    cdef object _selector
    cdef object _reader
    cdef object _writer
    cdef int _epoll_fd
    cdef int _wakeup_fd
    cdef int[256] _fds
    cdef int[256] _events
    cdef LateWakes _late_wakes
    cdef PyThread_type_lock[64] _held

    cpdef list wait(self, double timeout_ms)
    cdef object _collect(self, double timeout_ms, list ready)
    cdef int _held_locks(self, list turns)
    cdef object _add(self, list ready, int fd, int events)
    cpdef object wakeup(self)
    cdef object _request(self)
