"""The PostgreSQL front end: wire protocol, catalog, planning, execution."""
