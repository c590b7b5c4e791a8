"""Two clusters in sync (R3): each takes over what the other commits (docs/decisions/1490).

    site (a procedure) ──▶ Pull ──▶ the other cluster's change feed over the linked tables
                            │
                            ▼ rules: what becomes of a key that both wrote
                    one transaction here: rows, conflicts, and the mark (marks)

`links` has what a link is, `sites_file` how its other end is reached, `rules` decides, and is pure.

Deliberately missing: more than two clusters per table, tables with indexes or constraints, and the
shipping of definitions.
"""
