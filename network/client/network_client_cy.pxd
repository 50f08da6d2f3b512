# The C declarations of network_client_cy.py.

from headrace.network.client.client_metrics_cy cimport ClientMetrics
from headrace.network.client.connection_states_cy cimport ClusterConnectionStates
from headrace.network.client.in_flight_cy cimport InFlightRequests
from headrace.network.client.request_cy cimport ClientRequest, KafkaClient
from headrace.network.sockets.selector_base_cy cimport ClientSelector
from headrace.network.time_cy cimport Clock

cdef class NetworkClient(KafkaClient):
    cdef object __weakref__
    cdef ClientSelector _selector
    cdef object _metadata
    cdef Clock _clock
    cdef object _client_id
    cdef double _request_timeout_ms
    cdef int _send_buffer_bytes
    cdef int _receive_buffer_bytes
    cdef object _random_unit
    cdef ClientMetrics _metrics
    cdef object _repeats
    cdef ClusterConnectionStates _states
    cdef InFlightRequests _in_flight
    cdef object _updater
    cdef dict _api_versions
    cdef dict _connection_errors
    cdef list _aborted
    cdef public long long _next_correlation_id
    cdef set _unproven
    cdef dict _handshakes
    cdef bint _closed
    cdef object _credentials
    cdef object _authentications

    cdef bint _metadata_is_quiet(self, double now_ms)
    cpdef bint can_send(self, object node_id, double now_ms)
    cdef object _send(self, ClientRequest request, double now_ms, bint is_internal=*, object version=*)
    cdef object _handle_completed_sends(self, object sends, list responses, double now_ms)
    cdef object _handle_completed_receives(self, list responses, double now_ms)
    cdef object _handle_receive(self, object node_id, object payload, list responses, double now_ms)
    cdef object _ensure_open(self)
