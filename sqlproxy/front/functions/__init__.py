"""What each function of PostgreSQL does, by the name of its C function."""
