"""Ordered bytes on disk or in memory: the engine protocol and its two implementations."""
