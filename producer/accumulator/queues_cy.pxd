# The C declarations of queues_cy.py, for the accumulator and the send paths.

cimport cython
from headrace.producer.accumulator.batch_cy cimport ProducerBatch, RecordFuture

cdef class PartitionQueue:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly list batches
    cdef ProducerBatch open
    cdef cython.pymutex lock
    cdef public object leader
    cdef readonly int leader_id
    cdef public int leader_epoch
    cdef public bint muted
    cdef double lingers_until_ms
    cdef readonly Py_ssize_t usual_bytes

    cdef RecordFuture try_append(self, long long timestamp, bytes key, bytes value, bytes headers, object callback)
    cdef ProducerBatch first_to_send(self, double linger_ms)
    cpdef ProducerBatch first(self)
    cdef double open_since_ms(self)
    cdef object leading_node(self)
    cpdef Py_ssize_t depth(self) noexcept
    cdef Py_ssize_t _depth(self) noexcept
    cpdef ProducerBatch first_in_time(self, double created_from_ms)
    cpdef ProducerBatch take_first(self, dict active)
    cdef object close_open(self)
    cdef bint fill(self, Py_ssize_t size) noexcept
    cdef Py_ssize_t bytes_wanted(self, Py_ssize_t size, double created_after_ms) noexcept
    cpdef object add(self, ProducerBatch batch, dict active)
    cdef double backoff_left_ms(self, ProducerBatch batch, double now_ms)

cdef class TopicQueues:
    cdef readonly str topic
    cdef object rack
    cdef readonly list queues
    cdef list _former_queues
    cdef readonly Py_ssize_t partition_count
    cdef readonly PartitionQueue sticky
    cdef Py_ssize_t sticky_bytes
    cdef public double compression_ratio
    cdef public Py_ssize_t max_batch_bytes
