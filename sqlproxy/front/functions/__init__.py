"""What PostgreSQL's functions and operators do, by the names of its C functions."""
