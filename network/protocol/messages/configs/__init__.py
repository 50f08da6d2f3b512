"""Messages about configurations."""
