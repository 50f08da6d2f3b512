"""Messages of consumer groups."""
