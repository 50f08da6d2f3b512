"""Record batches: encoding and decoding of records, compression and CRC. No I/O."""
