"""Trees → bound statements: whose names they are, and which functions, operators and casts."""
