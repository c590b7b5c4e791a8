"""Transactions whose rows are not in memory: streamed by a client, by a load, or by a procedure."""
