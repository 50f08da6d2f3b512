"""The wire protocol: messages, errors and frames. Bytes to messages and back, no I/O."""
