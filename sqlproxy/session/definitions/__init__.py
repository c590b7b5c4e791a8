"""DDL: bound definitions as procedures of the master, waited for."""
