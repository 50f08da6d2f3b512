# The C declarations of client_metrics_cy.py, for the client.

from headrace.network.sensor_cy cimport Sensor
from headrace.network.sockets.selector_base_cy cimport SelectorCounters

cdef class _NodeSensors:
    cdef Sensor requests
    cdef Sensor responses
    cdef Sensor latency

cdef class ClientMetrics:
    cdef object _registry
    cdef SelectorCounters _counters
    cdef object _node_group
    cdef object _tags
    cdef Sensor _requests
    cdef Sensor _responses
    cdef Sensor _created
    cdef Sensor _closed
    cdef Sensor _operations
    cdef Sensor _wait
    cdef Sensor _io
    cdef dict _nodes
    cdef long long _seen_created
    cdef long long _seen_closed
    cdef long long _seen_operations
    cdef double _seen_waited_ms

    cpdef object polled(self, double duration_ms, double now_ms)
    cpdef object sent(self, object node_id, double size_bytes, double now_ms)
    cpdef object answered(self, object node_id, double size_bytes, double latency_ms, double now_ms)
    cdef _NodeSensors _node(self, object node_id)
