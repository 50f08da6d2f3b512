"""The caller's side of a send: partition queues, batches, their memory, and the futures of records."""
