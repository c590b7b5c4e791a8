"""Settings that sessions begin with: ALTER ROLE … SET, ALTER DATABASE … SET. Functions of a
transaction `t`, as those of `sqlproxy.catalog.catalog` are.

    ROLE_SETTINGS   esc(role) esc(database)     sealed [1, role, database, {setting: value}]

"" is every role, or every database. Rows of their own, not of the role: an older node that writes
a role's row knows nothing of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from kv.base import system
from kv.base.keys import escape, table_prefix
from kv.base.limits import SQL_ROLE_SETTINGS_MAX
from sqlproxy.catalog.catalog import Reader, Writer, scan_all
from sqlproxy.rows import records
from sqlproxy.values.errors import LIMIT_EXCEEDED, SqlError


class RoleSettings(NamedTuple):
    """Of a role in a database; "": of every one."""

    role: str
    database: str
    values: dict[str, str]


def settings_key(role: str, database: str) -> bytes:
    return table_prefix(system.ROLE_SETTINGS) + escape(role.encode()) + escape(database.encode())


async def of(t: Reader, role: str, database: str) -> dict[str, str]:
    """Of exactly these."""
    key = settings_key(role, database)
    value, _ = await t.get(key)
    return {} if value is None else _decoded(key, value).values


async def beginning(t: Reader, role: str, database: str) -> dict[str, str]:
    """What a session of that role in that database begins with: what is said of both counts more
    than what is said of the role, and that more than what is said of the database.
    """
    whose = (("", ""), ("", database), (role, ""), (role, database))
    found: dict[str, str] = {}
    for values in await asyncio.gather(*(of(t, *one) for one in whose)):
        found |= values
    return found


async def every(t: Reader) -> list[RoleSettings]:
    """All there are."""
    rows = await scan_all(t, table_prefix(system.ROLE_SETTINGS))
    return [_decoded(key, value) for key, value in rows]


async def change(t: Writer, role: str, database: str, given: Mapping[str, str | None]) -> None:
    """Set these; None: no more. Raises SqlError (54000)."""
    held = {**await of(t, role, database)}
    for name, value in given.items():
        held.pop(name, None)
        if value is not None:
            held[name] = value
    if len(held) > SQL_ROLE_SETTINGS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED, f"a role has at most {SQL_ROLE_SETTINGS_MAX} settings in a database"
        )
    await put(t, role, database, held)


async def put(t: Writer, role: str, database: str, values: Mapping[str, str]) -> None:
    """These and no others."""
    key = settings_key(role, database)
    if values:
        t.put(key, records.sealed(key, [records.FORMAT, role, database, dict(values)]))
    else:
        t.delete(key)


async def forget(t: Writer, *, role: str = "", database: str = "") -> None:
    """Of a role, or of a database, that is dropped."""
    for one in await every(t):
        if (role and one.role == role) or (database and one.database == database):
            t.delete(settings_key(one.role, one.database))


def _decoded(key: bytes, value: bytes) -> RoleSettings:
    _, role, database, values = records.opened(key, value)[:4]
    return RoleSettings(role, database, dict(values))
