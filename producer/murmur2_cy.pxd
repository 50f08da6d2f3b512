cdef unsigned int murmur2_of(bytes data) noexcept
