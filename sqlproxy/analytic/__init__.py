"""Joins, aggregates and large sorts: DuckDB over the rows that one transaction sees.

    forms       how values of PostgreSQL's types are held in DuckDB and Arrow, and back. Pure.
    folding     bound expressions taken apart and rebuilt. Pure.
    expressions a bound expression → DuckDB SQL, or a Python function that DuckDB calls
    aggregates  aggregates and window functions → DuckDB SQL
    selects     a bound SELECT → one DuckDB statement over sources
    sources     the tables of a statement as Arrow, out of the transaction's snapshot
    engine      the DuckDB of the process: cursors, threads, errors
    analytic    what sessions ask

Rendered from the bound tree, in which all types are decided. What DuckDB does exactly as
PostgreSQL is rendered; what it does otherwise is the closure of `sqlproxy.front.compiling`, called
by DuckDB; what neither can is refused (0A000). Deliberately missing: locking of the rows of a join.
"""
