# The C declarations of record_metadata_cy.py, for batches, which create one object per record that is read.

cdef class RecordMetadata:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly long long offset
    cdef readonly long long timestamp
    cdef readonly Py_ssize_t serialized_key_size
    cdef readonly Py_ssize_t serialized_value_size
    cdef readonly Py_ssize_t serialized_header_size
