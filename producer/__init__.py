"""The Kafka producer: what a user imports, and its engine."""
