"""Non-blocking sockets: the selector, its channels, and the resolution of host names."""
