"""What rights are decided on, read from the catalog: `kv.base.rights.Book` as of one moment.

SQL's letters are actions here. CREATE on a database or on its schema is DEFINE there; USAGE of a
schema, which everybody has unless it was revoked, opens nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kv.base import system
from kv.base.keys import table_prefix, table_range
from kv.base.rights import Action, Book, Kind, Owned, Resource, Role, table
from sqlproxy.catalog import catalog, grants, roles
from sqlproxy.catalog.catalog import Reader, scan_all
from sqlproxy.catalog.privileges import OWNER
from sqlproxy.rows.records import decode_table
from sqlproxy.rows.schema import Acl

ACTIONS: Final[Mapping[str, Action]] = {
    "r": Action.READ,
    "a": Action.INSERT,
    "w": Action.UPDATE,
    "d": Action.DELETE,
    "D": Action.TRUNCATE,
    "x": Action.REFERENCES,
    "U": Action.USAGE,
    "C": Action.DEFINE,
    "c": Action.CONNECT,
}
"""By PostgreSQL's letter; triggers and temporary tables are nothing that is done here."""


async def read(t: Reader) -> Book:
    """Of the transaction's moment. Raises KvorumError."""
    known = await roles.all_roles(t)
    tokens = (await t.scan(*table_range(system.TOKENS), limit=1)).items
    owned: dict[Resource, Owned] = {}
    for space in await catalog.list_namespaces(t):
        held = _held((space.acl, space.schema_acl))
        owned[Resource(Kind.NAMESPACE, space.name)] = Owned(space.owner or OWNER, held)
    for key, value in await scan_all(t, table_prefix(system.TABLES)):
        one = decode_table(key, value)
        owned[table(one.namespace, one.name)] = Owned(one.owner or OWNER, _held((one.acl,)))
    return Book(
        {role.name: Role(role.superuser, role.member_of) for role in known},
        owned,
        await grants.all_grants(t),
        closed=bool(tokens) or any(role.verifier is not None for role in known),
    )


def _held(lists: Iterable[Acl | None]) -> dict[str, frozenset[Action]]:
    """Without the USAGE and CONNECT that everybody has by default."""
    held: dict[str, frozenset[Action]] = {}
    for acl in lists:
        for grantee, letters in acl or ():
            actions = frozenset(ACTIONS[one] for one in letters if one in ACTIONS)
            held[grantee] = held.get(grantee, frozenset()) | actions
    return held
