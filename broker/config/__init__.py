"""Configuration of brokers and topics, and the Kafka releases that a cluster can act as."""
