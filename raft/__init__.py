"""Consensus: many Raft groups on one event loop. Knows nothing of keys; usable on its own."""
