# The C declarations of selector_cy.py.

from headrace.network.sockets.channel_cy cimport KafkaChannel
from headrace.network.sockets.selector_base_cy cimport ClientSelector, SelectorCounters
from headrace.network.sockets.poller_cy cimport Poller
from headrace.network.time_cy cimport Clock

cdef class Selector(ClientSelector):
    cdef object __weakref__
    cdef readonly list failed_sends
    cdef readonly SelectorCounters counters
    cdef Clock _clock
    cdef object _max_receive_bytes
    cdef object _max_idle_ms
    cdef object _max_unfinished_bytes
    cdef long long _unfinished_bytes
    cdef object _transport
    cdef dict _channels
    cdef dict _listeners
    cdef list _paused_listeners
    cdef object _repeats
    cdef double _idle_look_ms
    cdef list _immediately_connected
    cdef list _early_sends
    cdef list _late_sends
    cdef dict _early_failures
    cdef list _broken
    cdef object _scratch
    cdef Poller _poller
    cdef bint _closed

    cdef list _select(self, double timeout_ms)
    cdef double _next_deadline_in_ms(self, double now_ms)
    cdef object _handle(self, KafkaChannel channel, int events, double now_ms)
    cdef Py_ssize_t _read(self, KafkaChannel channel)
    cdef object _update_watch(self, KafkaChannel channel)
    cdef object _watch(self, KafkaChannel channel, int events)
