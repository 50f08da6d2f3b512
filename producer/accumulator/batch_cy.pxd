# The C declarations of batch_cy.py, for the send path.

from headrace.network.latch_cy cimport Latch
from headrace.network.records.builder_cy cimport RecordBatchBuilder
from headrace.producer.accumulator.buffer_pool_cy cimport Lease
from headrace.producer.accumulator.listeners_cy cimport Run
from headrace.producer.accumulator.record_metadata_cy cimport RecordMetadata

cdef class ProducerBatch:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly RecordBatchBuilder builder
    cdef Py_ssize_t full_bytes
    cdef Py_ssize_t max_bytes
    cdef public bint full
    cdef Lease lease
    cdef Py_ssize_t first_index
    cdef list callbacks
    cdef list wakers
    cdef readonly double created_ms
    cdef public double last_attempt_ms
    cdef public double retry_at_ms
    cdef public double drained_ms
    cdef public Py_ssize_t attempts
    cdef public int leader_epoch
    cdef public object last_error
    cdef public object maybe_persisted_error
    cdef public bint closed
    cdef public object records
    cdef public object compression
    cdef public long long producer_id
    cdef public int producer_epoch
    cdef public long long base_sequence
    cdef public bint in_flight
    cdef readonly bint done
    cdef readonly bint settled
    cdef readonly object exception
    cdef readonly object record_errors
    cdef readonly long long base_offset
    cdef readonly long long log_append_time
    cdef readonly object children
    cdef readonly Latch latch
    cdef Latch settled_latch
    cdef public Py_ssize_t raw_bytes
    cdef Run runs

    cpdef bint complete(self, long long base_offset, long long log_append_time=*)
    cdef bint complete_quietly(self, long long base_offset, long long log_append_time)
    cdef object _wake_waiters(self)
    cpdef Lease take_lease(self)
    cpdef bint listen(self, RecordFuture future, object callback, bint waker=*, int kind=*)
    cpdef bint wait(self, object timeout=*)
    cdef bint _finish(
        self, long long base_offset, long long log_append_time, object exception, dict record_errors
    )
    cdef RecordFuture try_append(self, long long timestamp, bytes key, bytes value, bytes headers, object callback)
    cdef object _run_callbacks(self, list callbacks)
    cdef object _settle_runs(self)
    cdef object _split_runs(self, list children)

cdef class RecordFuture:
    cdef readonly ProducerBatch batch
    cdef Py_ssize_t index
    cdef long long timestamp
    cdef Py_ssize_t key_size
    cdef Py_ssize_t value_size
    cdef Py_ssize_t headers_size

    cdef ProducerBatch _first_batch(self)
    cdef ProducerBatch _live_batch(self)
    cdef bint _is_done(self) noexcept
    cdef RecordMetadata _metadata(self)
    cdef object _error(self)
    cpdef object _listen(self, object callback, bint waker=*, int kind=*)
    cdef object _call(self, object callback, int kind)
