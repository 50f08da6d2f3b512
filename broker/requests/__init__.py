"""A request on its way through the broker, and the faults a test injects into it."""
