"""The messages of the wire protocol, one file per API. `api.requests` imports each on first use."""
