"""pg_catalog, information_schema and the kvorum views: what clients ask about the database
itself.
"""
