"""TLS, the SASL mechanisms, and the authentication of a connection on either end."""
