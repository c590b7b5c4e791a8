"""PostgreSQL's types: how their values are written and compared, which function or cast fits."""
