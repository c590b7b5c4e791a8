"""Values of SQL: the column types, how one comes in and goes out, and the errors in which that
ends."""
