"""What secures an embedded cluster: TLS of its listeners, and throw-away certificates."""
