"""What a session may see of what the cluster reports of itself (the kvorum views): the rights are
those of the other surfaces.

    procedures, versions         of types that it may read, submit or operate on
    nodes, transactions, links   whoever reads or operates the cluster
    queues, schedules, pauses,   whoever reads the cluster
    workers, retention
    partitions, locks, jobs      of tables of its database, and of others that it may read; keys,
                                 and errors, which quote them, only of tables that it may read
    tables                       the same; their names are in pg_class, too
    the last value of a sequence of one that it may read or use

Whoever reads or operates the cluster sees all tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kv.base.rights import CLUSTER, Action, Kind, Resource, table, with_sight
from sqlproxy.declared.database import Declared
from sqlproxy.pgcatalog.contents import Sees
from sqlproxy.session.state.permits import Permits

Row = Mapping[str, Any]
_OPERATORS: Final = frozenset({"nodes", "transactions", "site_links"})
_READERS: Final = frozenset({"queues", "schedules", "pauses", "workers", "retention"})
_OF_TYPES: Final = frozenset({"procedures", "versions"})
_OF_TABLES: Final = frozenset({"partitions", "locks", "jobs", "tables"})
_OF_ROWS: Final = ("start", "end", "key", "error")


def sees(permits: Permits, declared: Declared) -> Sees | None:
    """None: everything."""
    if permits.free:
        return None
    user, members = permits.acting, permits.members
    at_large = members.granted(user, CLUSTER)
    whole = bool(at_large & {Action.READ, Action.OPERATE})
    rights = permits.rights(declared)

    def visible(view: str, row: Row) -> Row | None:
        if view in _OF_TYPES:
            kind = Resource(Kind.PROCEDURE_TYPE, str(row.get("name", "")))
            seen = with_sight(members.granted(user, kind), kind)
            return row if Action.READ in seen else None
        if view == "sequences":
            one = declared.sequence(row["name"])
            return row if one is not None and rights.allows(user, one, "rU") else None
        if view in _OPERATORS:
            return row if whole else None
        if view in _READERS:
            return row if Action.READ in at_large else None
        return row if whole or view not in _OF_TABLES else of_table(row)

    def of_table(row: Row) -> Row | None:
        database = row.get("ns") or row.get("database") or ""
        name = str(row.get("table") or row.get("name") or "")
        here = database == declared.database
        one = (declared.table(name) or declared.view(name)) if here else None
        if not name:
            return None  # the cluster's own
        if one is not None and rights.allows(user, one, "r"):
            return row
        if Action.READ in members.granted(user, table(database, name)):
            return row
        return {**row, **dict.fromkeys(_OF_ROWS)} if here else None

    return visible
