# What record_metadata_cy.py looks like to batches, which make them by the million.

cdef class RecordMetadata:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly long long offset
    cdef readonly long long timestamp
    cdef readonly Py_ssize_t serialized_key_size
    cdef readonly Py_ssize_t serialized_value_size
    cdef readonly Py_ssize_t serialized_header_size
