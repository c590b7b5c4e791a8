"""From a statement's text to what it means: split, parse, bind, type, compile. Pure: no clock, no
store.

    types       PostgreSQL's types, casts, operators and functions; which of them is meant
    syntax      text → trees of PostgreSQL's own grammar; errors with its words and position
    bound       what a statement is when its names are known: expressions, queries, definitions
    functions   what each function of PostgreSQL does
    closures    bound expressions → Python functions of a row
    stages      bound queries taken apart, if a part must be computed before
    binding     trees → bound statements: `binder` expressions, `query` SELECT, `dml` changes
    ddl         trees → bound definitions

Above them `front.py` is the way in; `session_commands` binds SET and its like, `blocks` reads DO.

The grammar is that of PostgreSQL 18 (libpg_query), a superset of 15's. Deliberately missing:
planning (`sqlproxy.tables`), and everything that 0A000 names (docs/reference/sql.md).
"""
