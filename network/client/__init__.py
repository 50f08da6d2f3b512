"""The client side of Kafka connections: requests, responses and metadata refreshes."""
