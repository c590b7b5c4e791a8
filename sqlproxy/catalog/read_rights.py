"""What rights are decided on, read from the catalog: `kv.base.rights.Book` as of one moment.

SQL's letters are actions here. CREATE on a database or on its schema is DEFINE there; USAGE of a
schema, which everybody has unless it was revoked, opens nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from kv.base import system
from kv.base.keys import table_prefix
from kv.base.rights import OWNER, Action, Book, Kind, Owned, Resource, table
from sqlproxy.catalog import catalog, grants, roles
from sqlproxy.catalog.catalog import Reader, scan_all
from sqlproxy.catalog.privileges import ACTIONS
from sqlproxy.rows.records import decode_table
from sqlproxy.rows.schema import Acl


async def read(t: Reader) -> Book:
    """Of the transaction's moment. Raises KvorumError."""
    known = await roles.all_roles(t)
    owned: dict[Resource, Owned] = {}
    ids: dict[int, Resource] = {}
    for space in await catalog.list_namespaces(t):
        held = _held((space.acl, space.schema_acl))
        owned[Resource(Kind.NAMESPACE, space.name)] = Owned(space.owner or OWNER, held)
    for key, value in await scan_all(t, table_prefix(system.TABLES)):
        one = decode_table(key, value)
        resource = table(one.namespace, one.name)
        owned[resource] = Owned(one.owner or OWNER, _held((one.acl,)))
        ids.update(dict.fromkeys(one.storage_ids, resource))
    return Book(
        roles.counting(known),
        owned,
        await grants.all_grants(t),
        closed=await roles.closed(t, known),
        tables=ids,
    )


def _held(lists: Iterable[Acl | None]) -> dict[str, frozenset[Action]]:
    """Without the USAGE and CONNECT that everybody has by default."""
    held: dict[str, frozenset[Action]] = {}
    for acl in lists:
        for grantee, letters in acl or ():
            actions = frozenset(ACTIONS[one] for one in letters if one in ACTIONS)
            held[grantee] = held.get(grantee, frozenset()) | actions
    return held
