"""What is declared, in the system tables: namespaces, tables, views, sequences, roles and
privileges."""
