"""What the handlers in `broker.api` work with: one broker without its sockets."""
