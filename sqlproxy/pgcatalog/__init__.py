"""pg_catalog, information_schema and the kvorum views: what clients ask about the database
itself. Statements over them are bound and run as any others; this is where their rows come from.

    catalog       what a statement reads of them
    snapshot      the system tables as of one moment
    static        what PostgreSQL says of itself (data/); relations: which of it is reported
    contents      what there is of ours, as plain values
    rows          → rows of the system tables; row_bases, row_indexes, row_types, row_cluster,
                  fixed_rows (PostgreSQL's own), definitions, rights, oids
    views         the schema `kvorum`: what the cluster reports
"""
