"""The PostgreSQL front end: wire protocol, catalog, planning, execution.

    wire ─────────── session ─┬─ front ── catalog      what a statement means
                                ├─ tables                one table by its keys; all changes of rows
                                ├─ analytic              everything else, by DuckDB
                                ├─ pgcatalog             what clients ask about the database
                                └─ a procedure of ddl    definitions

    values pg rows      types, PostgreSQL's formats, rows as bytes: clients use them, too
    declared            what statements are bound with: one database as of one moment
    sinking             a batch of Spark's into a declared table
    loop                long work beside the event loop, and turns of it for long answers

A change of declarations writes the row SCHEMAS of its namespace: who remembers a namespace knows by
reading one row whether that still holds (docs/decisions/1005).
"""
