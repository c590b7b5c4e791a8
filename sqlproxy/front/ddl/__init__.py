"""Definitions, bound: CREATE, ALTER, DROP, COMMENT, GRANT."""
