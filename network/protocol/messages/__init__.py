"""The messages of the wire protocol, one file an API."""
