"""Definitions as procedures: what creates, changes and drops what the catalog has."""
