"""Messages with or about records."""
