"""The Kafka broker embedded in Python."""
