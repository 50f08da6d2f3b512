"""The wire protocol: messages, errors and frames. Encodes and decodes without I/O."""
