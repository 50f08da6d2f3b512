"""Messages about topics."""
