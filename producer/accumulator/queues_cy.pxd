# The C declarations of queues_cy.py, for the accumulator and the send paths.

cimport cython
from headrace.producer.accumulator.batch_cy cimport ProducerBatch, RecordFuture

cdef class PartitionQueue

cdef class WaitingQueues:
    cdef double linger_ms
    cdef readonly dict active
    cdef readonly object lingering

    cpdef list all(self)
    cpdef PartitionQueue first_lingering(self)
    cpdef double take_lingered(self, double until_ms, list taken)
    cpdef bint any(self) noexcept

cdef class PartitionQueue:
    cdef readonly str topic
    cdef readonly int partition
    cdef WaitingQueues waiting
    cdef readonly list batches
    cdef ProducerBatch open
    cdef cython.pymutex lock
    cdef public object leader
    cdef readonly int leader_id
    cdef public int leader_epoch
    cdef public bint muted
    cdef readonly double lingers_until_ms
    cdef readonly Py_ssize_t usual_bytes

    cdef RecordFuture try_append(self, long long timestamp, bytes key, bytes value, bytes headers, object callback)
    cdef object look(self)
    cdef object end_lingering(self)
    cdef object _leave(self)
    cpdef ProducerBatch first(self)
    cdef double open_since_ms(self)
    cdef object leading_node(self)
    cpdef Py_ssize_t depth(self) noexcept
    cdef Py_ssize_t _depth(self) noexcept
    cpdef ProducerBatch first_in_time(self, double created_from_ms)
    cpdef ProducerBatch take_first(self)
    cdef object close_open(self)
    cdef bint fill(self, Py_ssize_t size)
    cdef Py_ssize_t bytes_wanted(self, Py_ssize_t size, double created_after_ms)
    cpdef object add(self, ProducerBatch batch)
    cdef double backoff_left_ms(self, ProducerBatch batch, double now_ms)

cdef class TopicQueues:
    cdef readonly str topic
    cdef object rack
    cdef WaitingQueues _waiting
    cdef readonly list queues
    cdef list _former_queues
    cdef list _led
    cdef object _turns
    cdef readonly Py_ssize_t partition_count
    cdef readonly PartitionQueue sticky
    cdef Py_ssize_t sticky_bytes
    cdef public double compression_ratio
    cdef public Py_ssize_t max_batch_bytes

    cpdef PartitionQueue next_in_turn(self)
