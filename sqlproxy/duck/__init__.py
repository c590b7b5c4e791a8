"""What both of our DuckDBs share: SQL that is printed for them, and their errors in PostgreSQL's
words."""
