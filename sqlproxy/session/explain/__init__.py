"""EXPLAIN: how a statement reaches its rows, as text and as JSON."""
