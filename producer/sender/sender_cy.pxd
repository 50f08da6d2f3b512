# The C declarations of sender_cy.py.

from headrace.network.client.request_cy cimport ClientResponse, KafkaClient
from headrace.network.latch_cy cimport LateWakes
from headrace.network.time_cy cimport Clock
from headrace.producer.accumulator.accumulator_cy cimport RecordAccumulator
from headrace.producer.accumulator.batch_cy cimport ProducerBatch
from headrace.producer.sender.answer_times_cy cimport TimesByNode
from headrace.producer.sender.outcomes_cy cimport Outcomes
from headrace.producer.sender.transaction_manager_cy cimport TransactionManager

cdef class Sender

cdef class _Sent:
    cdef Sender sender
    cdef dict batches
    cdef dict names

cdef class Sender:
    cdef object __weakref__
    cdef KafkaClient _client
    cdef object _metadata
    cdef RecordAccumulator _accumulator
    cdef TransactionManager _transactions
    cdef object _transaction
    cdef int _attributes
    cdef Clock _clock
    cdef int _acks
    cdef object _compressors
    cdef object _max_request_bytes
    cdef double _request_timeout_ms
    cdef double _delivery_timeout_ms
    cdef bint _keep_order
    cdef double _retry_backoff_ms
    cdef object _metrics
    cdef object _callbacks
    cdef object _telemetry
    cdef double _telemetry_at_ms
    cdef object _repeats
    cdef dict _in_flight
    cdef LateWakes _late_wakes
    cdef Outcomes _outcomes
    cdef bint _polls_wake
    cdef object _checked_versions
    cdef bint _converts
    cdef set _touched
    cdef double _next_touch_ms
    cdef double _next_in_flight_expiry_ms
    cdef TimesByNode _answer_times
    cdef double _producer_id_retry_at_ms
    cdef object _aborts
    cdef bint _closing
    cdef bint _force_close
    cdef readonly object recent_errors
    cdef public object death

    cdef bint _prepare_producer_id(self, TransactionManager transactions, double now_ms)
    cdef double _send_ready(self, double now_ms)
    cdef object _send_batches(self, object node, list batches, double now_ms)
    cdef object _seal(self, ProducerBatch batch)
    cdef bint _expire(self, double now_ms)
    cdef object _poll(self, double timeout_ms, double now_ms)
    cdef object _on_produced(self, dict batches, dict names, ClientResponse response)
    cdef object _return_memory(self)
