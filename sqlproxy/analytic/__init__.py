"""Joins, aggregates and large sorts: DuckDB over the rows that one transaction sees.

    forms       how values of PostgreSQL's types are held in DuckDB and Arrow, and back. Pure.
    expressions a bound expression → DuckDB SQL, or a Python function that DuckDB calls
    functions   the Python functions that DuckDB calls
    aggregates  aggregates and window functions → DuckDB SQL
    statistics  aggregates over the list of all values, as PostgreSQL computes them. Pure.
    pieces      sets by way of lists, GROUPING SETS, which conditions are about one table. Pure.
    selects     a bound SELECT → one DuckDB statement over sources
    sources     the tables of a statement as Arrow, out of the transaction's snapshot
    engine      the DuckDB of the process: cursors, threads, errors
    changing    UPDATE … FROM, DELETE … USING, MERGE, subqueries in changes
    analytic    what sessions ask

Rendered from the bound tree, in which all types are decided. What DuckDB does exactly as
PostgreSQL is rendered; what it does otherwise is the closure of
`sqlproxy.front.closures.compiling`, called by DuckDB; what neither can is refused
(0A000). Deliberately missing: locking of the rows of a join.
"""
