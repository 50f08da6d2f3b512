"""The security of an embedded cluster: TLS, users and SASL, principals, access control lists and the authorizer."""
