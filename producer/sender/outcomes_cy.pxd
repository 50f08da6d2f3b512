# The C declarations of outcomes_cy.py, for the sender.

from headrace.network.client.request_cy cimport KafkaClient
from headrace.network.latch_cy cimport LateWakes
from headrace.network.time_cy cimport Clock
from headrace.producer.accumulator.accumulator_cy cimport RecordAccumulator
from headrace.producer.accumulator.batch_cy cimport ProducerBatch
from headrace.producer.sender.transaction_manager_cy cimport TransactionManager

cdef class Outcomes:
    cdef KafkaClient _client
    cdef object _metadata
    cdef RecordAccumulator _accumulator
    cdef TransactionManager _transactions
    cdef object _transaction
    cdef Clock _clock
    cdef object _compressors
    cdef double _delivery_timeout_ms
    cdef object _retries
    cdef object _metrics
    cdef object _callbacks
    cdef LateWakes _late_wakes
    cdef object _repeats
    cdef public bint retries_end
    cdef readonly object recent_errors

    cdef object complete(self, ProducerBatch batch, long long base_offset, long long log_append_time)
