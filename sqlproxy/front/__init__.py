"""From a statement's text to what it means: split, parse, bind, type, compile. Pure: no clock, no
store.

    syntax      text → syntax trees of PostgreSQL's own grammar; errors with PostgreSQL's words and
                position
    dialect     what MySQL's users and AS OF add to that grammar
    classify    what kind a statement is and which relations it names, before anything is looked up
    registry    PostgreSQL's tables of types, casts, operators and functions
    resolve     which operator or function is meant; which casts are implied
    exprs       bound expressions
    binder      trees of expressions → bound expressions; `query` for SELECT, `dml`,
                `ddl/`, `commands`
    statements  bound statements: what executors get
    compiling   bound expressions → closures; `functions/` has what each function of PostgreSQL does

The grammar is that of PostgreSQL 18 (libpg_query), a superset of 15's. Deliberately missing:
planning (`sqlproxy.tables`), and everything that 0A000 names (docs/reference/sql.md).
"""
