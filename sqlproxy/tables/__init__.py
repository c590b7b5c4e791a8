"""What runs without DuckDB: reads of one table by its keys and indexes, and all changes of rows.

    access      conjuncts → how to reach the rows: points, ranges, which index. Pure.
    spans       such a way with its values → keys and ranges of bytes. Pure.
    tables      one table's codecs: row ↔ key, value and index entries
    reading     rows of a table by such a way, in batches, from a transaction's snapshot
    selecting   SELECT over one table; ends: min() and max() of what a key begins with
    changing    rows in, rows out: constraints, index entries, what a change does to other tables
    writing     INSERT, UPDATE, DELETE, MERGE; single: one new row, straight to bytes
    rules       defaults, generated columns, NOT NULL, CHECK; ruling: compiled
    referring   foreign keys; deferring: those that are checked at the commit
    predicates  of partial indexes; implying: whether a WHERE says that all rows meant are in one
    sorting listing conditions    ORDER BY in memory; VALUES; what Spark's `where` says
    short_statements              what one partition can answer in one request

A way only narrows what is read: every row still passes the whole WHERE, so a way that is too wide
costs time and never answers. Deliberately missing: statistics of values (a unique index beats an
equality, that a range, that the whole table), the intersection of several indexes.
"""
