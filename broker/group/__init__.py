"""Classic consumer groups: membership, rebalances and committed offsets (the protocol that all clients support)."""
