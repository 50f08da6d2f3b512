"""The security of an embedded cluster: TLS of its listeners, principals, access control lists and the authorizer."""
