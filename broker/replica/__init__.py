"""Replicas: partitions with their leaders and followers, the requests that wait for them, and the fetchers between
brokers."""
