"""Queries and changes run: what expressions ask, numbers, reads, the commit."""
