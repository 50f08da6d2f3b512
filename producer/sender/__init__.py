"""The sender thread: produce requests, their responses, retries, and the order of idempotent batches."""
