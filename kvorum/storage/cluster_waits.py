"""Waits and locks of the whole cluster: what a node answers (WAITS, REFUSE_WAIT), how it asks the
others for circles of waits (txn/intents/lock_waits.py), and the list for people (GET /v1/locks).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kv.base.config import split_address
from kv.base.errors import KvorumError, from_wire, to_wire
from kv.base.limits import LOCKS_REPORTED_MAX
from kv.base.node_methods import NodesAt, NodesById
from kv.base.timestamps import physical_ms
from kv.base.waits import PROCEDURE, Held, Wait, Waits
from kv.base.wire_row import WireRow
from kvorum.api.verbs import REFUSE_WAIT, WAITS
from procedures.engine.plain_data import Plain
from procedures.master.map.nodes import NodeRow, NodeState
from sqlproxy.rows.schema import Table
from txn.intents.lock_waits import circling
from txn.shared.wait_terms import NAMES

_ASK_MS: Final = 500  # a node that needs longer may have no part in a circle found now
_ASK_PEOPLE_MS: Final = 1_500
_PREFIX_BYTES: Final = 4  # the table's id

HeldHere = Callable[[int, Collection[tuple[int, bytes]], bool], tuple[list[Held], bool]]
"""held(most, waited, every): intents and guards of this node's leaders, and whether there are more
(kv/replica/intents_held.py).
"""


class WaitMethods:
    """The node methods WAITS and REFUSE_WAIT."""

    def __init__(self, waits: Waits, held: HeldHere) -> None:
        self._waits, self._held = waits, held

    def waits(self, _context: object, args: WireRow) -> WireRow:
        if not args[0]:
            return [[wait.to_wire() for wait in circling(self._waits)], [], False]
        waits = self._waits.all(LOCKS_REPORTED_MAX + 1)
        waited = {(wait.holder, wait.held) for wait in waits}
        held, more = self._held(LOCKS_REPORTED_MAX, waited, args[0] == "all")
        more = more or len(waits) > LOCKS_REPORTED_MAX
        shown = [wait.to_wire() for wait in waits[:LOCKS_REPORTED_MAX]]
        return [shown, [one.to_wire() for one in held], more]

    def refuse(self, _context: object, args: WireRow) -> list[object]:
        *edge, error = args
        return [self._waits.refuse(edge, from_wire(error))]


class Everywhere:
    """txn.intents.lock_waits.Others over the nodes that this one knows. Who does not answer is left
    out: its partitions get other leaders, and those know.
    """

    def __init__(self, waits: Waits, calls: NodesById, others: Callable[[], Sequence[int]]) -> None:
        self._waits, self._calls, self._others = waits, calls, others

    async def all(self) -> Sequence[Wait]:
        found = circling(self._waits)
        for waits in await asyncio.gather(*(self._ask(node) for node in self._others())):
            found += waits
        return found

    async def _ask(self, node: int) -> list[Wait]:
        try:
            waits, *_ = await self._calls.call_at(node, WAITS, False, budget_ms=_ASK_MS)
        except KvorumError:
            return []
        return [Wait.from_wire(row) for row in waits]

    async def refuse(self, wait: Wait, error: KvorumError) -> bool:
        if wait.node == self._waits.node:
            return self._waits.refuse(wait.edge, error)
        (done,) = await self._calls.call_at(
            wait.node, REFUSE_WAIT, *wait.edge, to_wire(error), budget_ms=_ASK_MS
        )
        return bool(done)


# -- for people


@dataclass(slots=True)
class Found:
    """What all nodes together know."""

    waits: list[Wait] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)  # members that did not answer
    more: bool = False  # a node cut its lists

    def owners(self) -> dict[int, str]:
        """By transaction, as far as anybody knows."""
        known = {one.txn: one.owner for one in self.held if one.owner}
        for wait in self.waits:
            if wait.holder_owner and wait.kind != PROCEDURE:
                known[wait.holder] = wait.holder_owner
            if wait.waiter_owner and wait.kind != PROCEDURE:
                known[wait.waiter] = wait.waiter_owner
        return known

    def waiting(self) -> dict[tuple[int, bytes], int]:
        """How many wait for what a transaction holds at a key."""
        return Counter((wait.holder, wait.held) for wait in self.waits)


async def ask(kv: NodesAt, members: Iterable[NodeRow], *, every: bool = False) -> Found:
    """Ask every member at once. `every`: for a row of each key."""
    asked = [member for member in members if member.state is not NodeState.GONE]
    found = Found()
    answers = await asyncio.gather(
        *(_ask_one(kv, member, "all" if every else True) for member in asked)
    )
    for member, answer in zip(asked, answers, strict=True):
        if answer is None:
            found.missing.append(member.id)
            continue
        waits, held, more = answer
        found.waits += [Wait.from_wire(row) for row in waits]
        found.held += [Held.from_wire(row) for row in held]
        found.more = found.more or more
    return found


async def _ask_one(kv: NodesAt, member: NodeRow, people: bool | str) -> WireRow | None:
    try:
        if member.address:
            address = split_address(member.address)
            return await kv.call_at(address, WAITS, people, budget_ms=_ASK_PEOPLE_MS)
        return await kv.call_node(WAITS, people, budget_ms=_ASK_PEOPLE_MS)
    except KvorumError:
        return None


Tables = Mapping[bytes, Table | None]
"""By key prefix; None: dropped, or one of the system's."""


def table_prefixes(found: Found) -> set[bytes]:
    """Of the tables that a list will name."""
    keys = [wait.resource for wait in found.waits if isinstance(wait.resource, bytes)]
    return {key[:_PREFIX_BYTES] for key in [*keys, *(one.key for one in found.held)]}


def shown(found: Found, tables: Tables, now_ms: int, *, every: bool = False) -> Plain:
    """`/v1/locks`: what somebody waits for, then the oldest; LOCKS_REPORTED_MAX of each."""
    owners, waiting = found.owners(), found.waiting()
    # A leader that was deposed and did not hear of it answers the same.
    once = {(one.txn, one.partition, one.kind, one.key): one for one in found.held}.values()
    rows = list(once) if every else _folded(once, waiting)
    held = sorted(rows, key=lambda one: ((one.txn, one.key) not in waiting, one.txn, one.key))
    waits = sorted(found.waits, key=lambda wait: -wait.waited_ms)
    return {
        "locks": [
            _lock(one, owners, tables) | {"waiting": waiting.get((one.txn, one.key), 0)}
            for one in held[:LOCKS_REPORTED_MAX]
        ],
        "waits": [_wait(wait, owners, tables, now_ms) for wait in waits[:LOCKS_REPORTED_MAX]],
        "missing": found.missing,
        "more": found.more or max(len(held), len(waits)) > LOCKS_REPORTED_MAX,
    }


def of_procedure(found: Found, procedure: str, keys: Collection[bytes]) -> list[Wait]:
    """What the commit of one procedure waits for: by its name, or (a single write has none) by the
    keys that it writes.
    """
    return [
        wait
        for wait in found.waits
        if isinstance(wait.resource, bytes)
        and (wait.waiter_owner == procedure or (not wait.waiter and wait.resource in keys))
    ]


def _folded(held: Iterable[Held], waiting: Mapping[tuple[int, bytes], int]) -> list[Held]:
    """A holder's keys of one table in one row, with their number; each that is waited for has its
    own. Partition and node are those of the first key.
    """
    rows: list[Held] = []
    folds: dict[tuple[int, str, bytes], Held] = {}
    for one in held:
        if (one.txn, one.key) in waiting:
            rows.append(one)
            continue
        of = one.txn, one.kind, one.key[:_PREFIX_BYTES]
        other = folds.get(of)
        if other is not None:
            first = min(one, other, key=lambda row: row.key)
            one = replace(first, keys=one.keys + other.keys)
        folds[of] = one
    return rows + list(folds.values())


def _named(key: bytes, tables: Tables) -> dict[str, object]:
    """A storage key as its user knows it; of what is no user's table, as it is."""
    table = tables.get(key[:_PREFIX_BYTES])
    if table is None:
        return {"ns": None, "table": None, "key": key}
    return {"ns": table.namespace, "table": table.name, "key": key[_PREFIX_BYTES:]}


def _lock(one: Held, owners: Mapping[int, str], tables: Tables) -> dict[str, object]:
    row: dict[str, object] = {"kind": one.kind, **_named(one.key, tables)}
    if one.end is not None:
        row["end"] = _named(one.end, tables)["key"]
    if one.strength:
        row["strength"] = one.strength
    return row | {
        "keys": one.keys,
        "txn": str(one.txn),
        "owner": owners.get(one.txn, ""),
        "age_ms": one.age_ms,
        "ttl_ms": one.ttl_ms,
        "partition": one.partition,
        "node": one.node,
    }


def _wait(wait: Wait, owners: Mapping[int, str], tables: Tables, now_ms: int) -> dict[str, object]:
    row: dict[str, object] = {"kind": wait.kind, "waited_ms": wait.waited_ms, "node": wait.node}
    if isinstance(wait.resource, str):
        id_, resource = str(wait.waiter), wait.resource
        row |= {"procedure": id_, "owner": wait.waiter_owner, "resource": resource}
        if wait.holder:  # of a lock: another procedure
            row |= {"holder": str(wait.holder), "holder_owner": wait.holder_owner}
        return row
    return row | {
        **_named(wait.resource, tables),
        "txn": str(wait.waiter) if wait.waiter else None,
        "owner": owners.get(wait.waiter, ""),
        "priority": NAMES[wait.priority],
        "partition": wait.source,
        "holder": str(wait.holder) if wait.holder else None,
        "holder_owner": owners.get(wait.holder, ""),
        "holder_age_ms": max(0, now_ms - physical_ms(wait.holder)) if wait.holder else 0,
    }
