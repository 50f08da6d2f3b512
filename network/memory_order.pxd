# The order in which other threads see this thread's writes, for compiled code that runs without the GIL.
#
# With the GIL every hand-over of it is such an order already: there all of this compiles to nothing.

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define HEADRACE_FREE_THREADED 1
    #define headrace_release_fence() __atomic_thread_fence(__ATOMIC_RELEASE)
    #define headrace_acquire_fence() __atomic_thread_fence(__ATOMIC_ACQUIRE)
    #define headrace_store_load_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #else
    #define HEADRACE_FREE_THREADED 0
    #define headrace_release_fence() ((void)0)
    #define headrace_acquire_fence() ((void)0)
    #define headrace_store_load_fence() ((void)0)
    #endif
    """
    const bint FREE_THREADED "HEADRACE_FREE_THREADED"
    void release_fence "headrace_release_fence"() noexcept nogil
    void acquire_fence "headrace_acquire_fence"() noexcept nogil
    void store_load_fence "headrace_store_load_fence"() noexcept nogil
