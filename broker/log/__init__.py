"""The log subsystem: partitions as Kafka's own segment and index files on disk."""
