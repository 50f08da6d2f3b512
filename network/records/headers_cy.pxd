# The C declarations of headers_cy.py, for the send path.

cdef bytes pack_headers(object headers)
