"""The PostgreSQL port of a node or a proxy: its socket, sessions, and processes of their own."""
