"""pg_catalog, information_schema and the kvorum views: what clients ask about the database
itself.

    catalog       the way in: is it about the system, and its answer
    translation   a SELECT → DuckDB's text; model, expressions, calls, coercion, kinds: its parts
    functions     functions as texts of DuckDB; special, rights: those that are more than one text
    relations     what may be named; static: what PostgreSQL says of itself (data/)
    contents      what there is of ours, as plain values
    rows          → rows of the system tables; row_bases, row_indexes, row_types, row_cluster,
                  fixed_rows (PostgreSQL's own), definitions, oids
    snapshot      the same rows, as functions of `front` ask them
    views         the schema `kvorum`: what the cluster reports
    store         the DuckDB in which all this lies
"""
