"""Grants on what is not a table of SQL's: namespaces as a whole, procedure types, pools, locks,
places of transfers, the cluster. Tables and namespaces keep their owners and lists themselves
(`sqlproxy.catalog.privileges`). Functions of a transaction `t`.

    GRANTS    esc(role)          sealed [1, role, [grant, …]]; role "" is PUBLIC
              a grant            [kind, namespace, name, [action, …]]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kv.base import system
from kv.base.errors import Corruption, TooLarge
from kv.base.keys import escape, table_prefix
from kv.base.limits import GRANTS_PER_ROLE_MAX
from kv.base.rights import Action, Grant, Kind, Resource
from kv.base.wire_row import WireRow
from sqlproxy.catalog.catalog import Reader, Writer, scan_all
from sqlproxy.rows import records


def grants_key(role: str) -> bytes:
    return table_prefix(system.GRANTS) + escape(role.encode())


async def of(t: Reader, role: str) -> tuple[Grant, ...]:
    """What was granted to that role itself."""
    key = grants_key(role)
    value, _ = await t.get(key)
    return () if value is None else _granted(key, value)[1]


async def all_grants(t: Reader) -> dict[str, tuple[Grant, ...]]:
    """By role."""
    return dict(_granted(*row) for row in await scan_all(t, table_prefix(system.GRANTS)))


async def give(t: Writer, role: str, granted: Grant) -> None:
    """Raises TooLarge."""
    held = {one.resource: one for one in await of(t, role)}
    before = held.get(granted.resource, replace(granted, actions=frozenset()))
    held[granted.resource] = replace(granted, actions=before.actions | granted.actions)
    if len(held) > GRANTS_PER_ROLE_MAX:
        raise TooLarge(
            f"{role!r} has grants on {GRANTS_PER_ROLE_MAX} things: use a pattern (NAME*), a "
            "namespace, or a group",
            details={"what": "grants", "limit": GRANTS_PER_ROLE_MAX, "actual": len(held)},
        )
    _put(t, role, tuple(held.values()))


async def take(t: Writer, role: str, granted: Grant) -> None:
    """What was not granted is not there afterwards either."""
    held = []
    for one in await of(t, role):
        if one.resource == granted.resource:
            one = replace(one, actions=one.actions - granted.actions)
        if one.actions:
            held.append(one)
    _put(t, role, tuple(held))


async def moved(t: Writer, namespace: str, to: str) -> bool:
    """What was granted in a namespace, or on it, is granted in `to`; whether there was something.
    Patterns of names stay as they are.
    """
    found = False
    for role, granted in (await all_grants(t)).items():
        held: dict[Resource, Grant] = {}
        for one in granted:
            at = one.resource
            if at.namespace == namespace:
                at = replace(at, namespace=to)
            if at.kind is Kind.NAMESPACE and at.name == namespace:
                at = replace(at, name=to)
            before = held.get(at, replace(one, resource=at, actions=frozenset()))
            held[at] = replace(before, actions=before.actions | one.actions)
        if tuple(held.values()) != granted:
            _put(t, role, tuple(held.values()))
            found = True
    return found


async def forget(t: Writer, role: str) -> None:
    """Of a role that is dropped."""
    t.delete(grants_key(role))


def to_row(granted: Grant) -> list[object]:
    """As it is stored; actions in a fixed order."""
    one = granted.resource
    return [one.kind.value, one.namespace, one.name, sorted(granted.actions)]


def shown(granted: Grant) -> dict[str, Any]:
    """For people and programs."""
    kind, namespace, name, actions = to_row(granted)
    return {"actions": actions, "kind": kind, "name": name, "namespace": namespace}


def from_row(row: WireRow) -> Grant:
    """Raises ValueError: of a later version."""
    kind, namespace, name, actions = row
    return Grant(frozenset(map(Action, actions)), Resource(Kind(kind), name, namespace))


def _granted(key: bytes, value: bytes) -> tuple[str, tuple[Grant, ...]]:
    _, role, rows = records.opened(key, value)[:3]
    try:
        return role, tuple(map(from_row, rows))
    except ValueError as error:
        raise Corruption(f"grants of {role!r}: {error}; a later version wrote them") from error


def _put(t: Writer, role: str, held: tuple[Grant, ...]) -> None:
    key = grants_key(role)
    if not held:
        t.delete(key)
        return
    t.put(key, records.sealed(key, [records.FORMAT, role, [to_row(one) for one in held]]))
