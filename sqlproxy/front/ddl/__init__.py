"""Statements that define, bound: CREATE, ALTER, DROP and COMMENT as definitions."""
