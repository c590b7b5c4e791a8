"""PostgreSQL's types as clients see them: OIDs, text and binary formats, the formats of COPY."""
