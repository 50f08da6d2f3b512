"""Record batches: bytes to records and back, compression and CRC, no I/O."""
