"""What every surface of a database speaks: the values, the protocols of a backend, names, and what
an outcome means."""
