"""Messages about the cluster itself."""
