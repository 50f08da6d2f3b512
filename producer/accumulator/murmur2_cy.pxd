cdef unsigned int murmur2_of(bytes data) noexcept
cdef unsigned int murmur2_at(const unsigned char *source, Py_ssize_t length) noexcept
