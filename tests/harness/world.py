"""A whole simulated cluster with one table in it, and what must hold in it after whatever was done
to a procedure.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from kv.base import system
from kv.base.errors import KvorumError
from kv.base.ids import META_PARTITION, TableId
from kv.base.keys import table_range, u32
from kvorum.api.model import ProcedureInfo
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.simulation.loop import SimLoop
from procedures.engine.grants import REIGN
from procedures.master.map.partitions import Placed, placed_partitions
from sqlproxy.catalog import catalog
from tests.kvorum.cluster.simulated import SimCluster

ROWS = {f"{letter}{i}": f"{letter}-{i}" for letter in "ahmt" for i in range(3)}
TABLE = ("default", "t")
END_S = 900  # virtual; the longest of the unhurt ones takes ten
NOT_OURS = ("kvorum.recover_node", "AddReplicas")  # a node submits them for itself when it starts


class Place:
    """The cluster, a client of whichever node lives, and the looks of the checks."""

    def __init__(self, loop: SimLoop, seed: int, count: int) -> None:
        self.cluster = SimCluster(loop, seed, count)
        self.chance = random.Random(seed)
        self.before: dict[str, Any] = {}  # what a scenario wants to remember
        self.off_limits: set[int] = set()  # nodes that are not to die

    async def start(self) -> None:
        await self.cluster.start()
        for name in ("balance.enabled", "placement.enabled", "partition.auto"):
            await self.run("kvorum.set_setting", {"name": name, "value": 0})

    async def table(self, **spec: Any) -> int:
        """Make the table, with its rows; its id."""
        made = await self.db.create_table(*TABLE, **{"replicas": 3, **spec})
        async with self.db.transaction() as t:
            for key, value in ROWS.items():
                await t.table(*TABLE).put(key, value)
        return made.id

    @property
    def db(self) -> AsyncDatabase:
        """A client at a node that lives and has started."""
        for number in sorted(self.cluster.nodes):
            node = self.cluster.nodes[number]
            if getattr(node, "backend", None) is not None and not node.fatal.done():
                return AsyncDatabase(node.backend, self.cluster._rng)
        raise AssertionError("no node lives")

    def at(self, number: int) -> AsyncDatabase:
        """A client at this node."""
        return AsyncDatabase(self.cluster.nodes[number].backend, self.cluster._rng)

    def victim(self, master: int) -> int:
        """Another node than the master, that may die."""
        return self.chance.choice(
            [n for n in sorted(self.cluster.nodes) if n != master and n not in self.off_limits]
        )

    # ------------------------------------------------------------------ procedures

    async def submit(self, name: str, args: Any, nonce: str) -> int:
        """However often the master is lost meanwhile, it is one procedure."""
        return await self.patiently(lambda: self.db.submit(name, args, nonce=nonce))

    async def end_of(self, id_: int) -> ProcedureInfo:
        """However it ends; one that does not within END_S is a failure of its own."""
        until = asyncio.get_running_loop().time() + END_S
        while True:
            info = await self.patiently(lambda: self.db.procedure(id_, wait_ms=1_000))
            if info.finished:
                return info
            if asyncio.get_running_loop().time() > until:
                live = [p for p in await self.db.procedures() if not p.finished]
                raise AssertionError(f"after {END_S} s still: {live}")

    async def run(self, name: str, args: Any) -> Any:
        """The result of one that must succeed."""
        info = await self.end_of(await self.submit(name, args, f"{name}-{self.chance.random()}"))
        assert info.state == "SUCCESS", (name, args, info.error)
        return info.result

    async def patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask again while no master is there. What is refused for good is raised."""
        async with asyncio.timeout(900):
            while True:
                with suppress(TimeoutError):
                    try:
                        async with asyncio.timeout(20):
                            return await ask()
                    except KvorumError as error:
                        if error.disposition == "no":
                            raise
                await asyncio.sleep(0.2)

    async def until(self, holds: Callable[[], Awaitable[Any]], seconds: float = 240) -> None:
        """Look until `holds` gives something that is not a complaint (text) or False."""
        found: Any = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        found = await holds()
                    except KvorumError as error:
                        found = repr(error)
                    if not found:
                        return
                    await asyncio.sleep(0.3)
        except TimeoutError:
            raise AssertionError(f"after {seconds} s still: {found}") from None

    # ------------------------------------------------------------------ looks

    @property
    def txn(self) -> Any:
        number = min(self.cluster.nodes)
        return self.cluster.nodes[number].store.txn

    async def map(self) -> dict[int, Placed]:
        """The rows of the partition map, without the meta partition's."""
        rows = await placed_partitions(self.txn)
        return {row.descriptor.id: row for row in rows if row.descriptor.id != META_PARTITION}

    async def only(self) -> Placed:
        (row,) = (await self.map()).values()
        return row

    async def rows(self) -> dict[str, str]:
        """The table's, as its name finds it."""
        found = self.db.table(*TABLE).rows()
        return {row.key.decode(): row.value.decode() async for row in found}

    async def settled(self, watched: set[int]) -> None:
        """Nothing is left of anything: procedures, locks, changes, replicas, partitions."""
        await self.until(lambda: self._procedures(watched), 400)
        await self.until(self._left)

    async def _procedures(self, watched: set[int]) -> Any:
        live = [
            (p.id, p.name, p.state, p.step)
            for p in await self.db.procedures()
            if not p.finished and (p.id in watched or p.name not in NOT_OURS)
        ]
        return f"procedures: {live}" if live else None

    async def _left(self) -> Any:
        grants = (await self.txn.scan(*table_range(TableId(system.LOCKS)), limit=100)).items
        if locks := [key for key, _, _ in grants if key != REIGN]:
            return f"locks: {locks}"
        rows = await self.map()
        if changing := {id_: row.change for id_, row in rows.items() if row.change}:
            return f"changes in the map: {changing}"
        for number, node in sorted(self.cluster.nodes.items()):
            here = {d.id: d for d in node.store.manager.descriptors() if d.id != META_PARTITION}
            named = {id_ for id_, row in rows.items() if number in row.nodes}
            if set(here) != named:
                return f"node {number} has replicas {sorted(here)}, the map says {sorted(named)}"
            for id_, d in here.items():
                if (d.start, d.end) != (rows[id_].descriptor.start, rows[id_].descriptor.end):
                    return f"node {number} has partition {id_} as {d}"
                replica = node.store.manager.replica(id_)
                if replica is not None and replica.state.frozen is not None:
                    return f"partition {id_} stands still at node {number}"
        led = {
            id_
            for node in self.cluster.nodes.values()
            for id_ in rows
            if (replica := node.store.manager.replica(id_)) is not None and replica.serving()
        }
        if led != set(rows):
            return f"nobody leads {sorted(set(rows) - led)}"
        return await self._tables(rows)

    async def _tables(self, rows: dict[int, Placed]) -> Any:
        """The partitions of the map are those of the tables, which they cover."""
        ids: set[int] = set()
        for namespace in await catalog.list_namespaces(self.txn):
            for table in await catalog.list_tables(self.txn, namespace.name):
                if table.state not in ("public", "disabled"):
                    return f"{table.path} is {table.state}"
                ids.update(table.storage_ids)
        for id_ in ids:
            low, high = u32(id_), u32(id_ + 1)
            of_it = [(r.descriptor.start, r.descriptor.end) for r in rows.values()]
            mine = sorted(d for d in of_it if low <= d[0] < high)
            borders = [low, *(end for _, end in mine)]
            if not mine or borders[-1] != high or [s for s, _ in mine] != borders[:-1]:
                return f"table {id_} is covered by {mine}"
            if any(end != start for (_, end), (start, _) in pairwise(mine)):
                return f"table {id_} has gaps: {mine}"
        ids |= self.before.get("loose", set())  # of ranges that a scenario is about
        strays = [i for i, r in rows.items() if int.from_bytes(r.descriptor.start[:4]) not in ids]
        return f"partitions of no table: {strays}" if strays else None
