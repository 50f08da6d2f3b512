"""The controller: the cluster's metadata, and the interface through which brokers reach it."""
