"""Messages of authentication and authorization."""
