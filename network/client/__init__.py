"""The client's side of Kafka connections: requests, responses, metadata refreshes."""
