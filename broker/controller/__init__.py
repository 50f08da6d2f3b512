"""The controller: the cluster's metadata, and the interface that brokers call."""
