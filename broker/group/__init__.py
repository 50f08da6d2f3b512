"""Classic consumer groups: membership, rebalances, committed offsets (the protocol that all clients speak)."""
