"""Replicas: partitions with their leaders and followers, the requests that wait for them, the fetchers between
brokers."""
