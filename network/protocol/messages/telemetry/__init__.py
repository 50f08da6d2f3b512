"""Messages about the metrics that brokers collect from clients (KIP-714)."""
