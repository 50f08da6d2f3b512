"""Configuration of brokers and topics, and the Kafka releases a cluster can act as."""
