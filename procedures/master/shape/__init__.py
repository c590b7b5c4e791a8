"""Partitions are split and merged: when, where, and how.

splitter           the master's loop; deciding: what, and why (pure)
splitting merging  the procedures
reshape_methods    what leaders do for them
"""
