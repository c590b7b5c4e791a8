"""Reads of the past at the nearest replica, so that leaders are left alone.

    call ─▶ nearest replica (Sites) ─▶ mark of its partition ─▶ there, with `applied`
      └──────────────── none, or it cannot answer ────────────────▶ KvClient.call: the leader

A mark (T, I) says that a replica that has applied I knows all versions at or below T, or an intent
in their place (kv/partition/replica_reads.py). The leader is asked for one when a read is above the
last: a reader that stays s seconds behind the present asks each leader once in s seconds, whatever
it reads. A replica that lags, or meets an intent, or is gone, costs the way to it; then the leader
answers as ever. So a read fails only where it would fail without this.

`Replicas` is a Kv (txn/shared/ports.py) for readers; what is no read of the past goes on as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    KeyLocked,
    KvorumError,
    TooLarge,
    Unavailable,
)
from kv.base.ids import PartitionId
from kv.base.limits import (
    LOCATIONS_MAX,
    REPLICA_ANSWER_MS,
    REPLICA_REST_MS,
    SITES_REST_MS,
)
from kv.base.methods import MARK, PARTITION_VERBS, PLACES
from kv.base.ports import Rng, Timers
from kv.client.client import KvClient
from kv.client.router import Address

_GONE: Final = (Busy, Unavailable, DeadlineExceeded)
_OWN, _FAR = -1, 3


class _Shape(NamedTuple):
    """Of a verb that replicas answer: where its timestamp is, and what goes before `applied` where
    a caller says less.
    """

    read_ts_at: int
    defaults: tuple[object, ...]
    fields: int


_SHAPES: Final[dict[int, _Shape]] = {
    one.number: _Shape(
        one.fields.index("read_ts"), one.request.__struct_defaults__, len(one.fields)
    )
    for one in PARTITION_VERBS
    if "applied" in one.fields  # the last of them
}


class Site(NamedTuple):
    """Where a node is. `domains`: what it fails together with, the widest first: datacenter, rack,
    machine; "": not said.
    """

    address: Address
    domains: tuple[str, ...]


class Mark(NamedTuple):
    """See the module; of the partition at this epoch."""

    epoch: int
    read_ts: int
    applied: int


class Sites:
    """How near the nodes are."""

    def __init__(
        self,
        here: tuple[str, ...],
        timers: Timers,
        rng: Rng,
        *,
        node: int = 0,
        load: Callable[[], Awaitable[Mapping[int, Site]]] | None = None,
    ) -> None:
        """`here`: the domains of this process. `node`: which node it is a part of. `load` is asked
        every SITES_REST_MS; None: somebody tells (`learn`).
        """
        self._load, self._here, self._node = load, here, node
        self._monotonic, self._rng = timers.monotonic, rng
        self._sites: Mapping[int, Site] = {}
        self._until_s = float("-inf") if load is not None else float("inf")

    def learn(self, sites: Mapping[int, Site]) -> None:
        """Where the nodes are now."""
        self._sites = sites

    def places(self, _context: object, _args: list[object]) -> list[object]:
        """The method PLACES."""
        return [[[n, *site.address, *site.domains] for n, site in sorted(self._sites.items())]]

    async def nearest(
        self, d: PartitionDescriptor, leader: Address | None, resting: Mapping[Address, float]
    ) -> Address | None:
        """The replica to ask; None: its leader. One of the nearest that do not lead, unless only
        the leader is so near.
        """
        now_s = self._monotonic()
        if now_s >= self._until_s and self._load is not None:
            self._until_s = now_s + SITES_REST_MS / 1000  # before: others go on meanwhile
            with suppress(KvorumError):  # what is known is used on
                self._sites = await self._load()
        by_distance: dict[int, list[Address]] = {}
        for node in d.data_voters:
            site = self._sites.get(node)
            if site is not None and resting.get(site.address, now_s) <= now_s:
                by_distance.setdefault(self._distance(node, site), []).append(site.address)
        if not by_distance:
            return None
        near = [one for one in by_distance[min(by_distance)] if one != leader]
        return near[int(self._rng.random() * len(near))] if near else None

    def _distance(self, node: int, site: Site) -> int:
        if node == self._node:
            return _OWN
        shared = _FAR
        for level, (here, there) in enumerate(zip(self._here, site.domains, strict=True)):
            if here and here != there:
                break  # racks of two datacenters may have one name
            if here:
                shared = _FAR - 1 - level
        return shared


class Replicas:
    """See the module. Counts what it `asked` replicas, which of that went on to the leader
    (`sent_on`), and the `marks` it asked for.
    """

    def __init__(self, kv: KvClient, sites: Sites, timers: Timers) -> None:
        self.asked = self.sent_on = self.marks = 0
        self._kv, self._sites, self._monotonic = kv, sites, timers.monotonic
        self._marks: dict[PartitionId, Mark] = {}
        self._asking: dict[PartitionId, asyncio.Event] = {}
        self._resting: dict[Address, float] = {}  # until when they are not asked
        self.locate, self.find_txn, self.call_node = kv.locate, kv.find_txn, kv.call_node

    async def call(self, method: int, key: bytes, *args: object, budget_ms: int = 0) -> Any:
        """`KvClient.call`, and raises what that raises."""
        shape = _SHAPES.get(method)
        if shape is not None and (at := args[shape.read_ts_at]):
            assert isinstance(at, int)
            budget_ms = budget_ms or self._kv.budget_ms
            began_s = self._monotonic()
            found = await self._at_replica(shape, method, key, at, args, budget_ms)
            if found is not None:
                return found
            budget_ms = max(1, budget_ms - int((self._monotonic() - began_s) * 1000))
        return await self._kv.call(method, key, *args, budget_ms=budget_ms)

    async def _at_replica(
        self,
        shape: _Shape,
        method: int,
        key: bytes,
        at: int,
        args: Sequence[object],
        budget_ms: int,
    ) -> list[object] | None:
        """The result; None: the leader is to be asked."""
        here = await self._kv.locate(key, budget_ms=budget_ms)
        patience_ms = min(REPLICA_ANSWER_MS, max(1, budget_ms // 4))
        address = await self._sites.nearest(here, self._kv.leader_of(key), self._resting)
        if address is None or (mark := await self._mark(here, key, at, patience_ms)) is None:
            return None
        missing = shape.fields - 1 - len(args)
        rest = shape.defaults[-1 - missing : -1] if missing else ()
        self.asked += 1
        try:
            return await self._kv.call_at(
                address,
                method,
                *(here.id, here.epoch, *args, *rest, mark.applied),
                budget_ms=patience_ms,
            )
        except (KeyLocked, TooLarge):  # it leads by now; the request is answered
            raise
        except KvorumError as error:  # the leader says so, too, if that is all that there is to say
            self.sent_on += 1
            if isinstance(error, _GONE):
                self._resting[address] = self._monotonic() + REPLICA_REST_MS / 1000
        return None

    async def _mark(
        self, here: PartitionDescriptor, key: bytes, at: int, patience_ms: int
    ) -> Mark | None:
        """A mark at or above `at`. One asks, others wait for what it gets. None: the leader does
        not answer, or the partition is another one by now.
        """
        while True:
            mark = self._marks.get(here.id)
            if mark is not None and mark.epoch == here.epoch and mark.read_ts >= at:
                return mark
            if (others := self._asking.get(here.id)) is None:
                break
            await others.wait()
        done = self._asking[here.id] = asyncio.Event()
        try:
            self.marks += 1
            read_ts, applied = await self._kv.call(MARK, key, key, 0, budget_ms=patience_ms)
        except KvorumError:
            return None  # it says so itself to who asks it for the rows
        finally:
            del self._asking[here.id]
            done.set()
        if self._kv.located(key) != here or read_ts < at:
            return None
        if len(self._marks) >= LOCATIONS_MAX:
            self._marks.clear()
        mark = self._marks[here.id] = Mark(here.epoch, read_ts, applied)
        return mark

    @staticmethod
    def near(here: tuple[str, str, str], kv: KvClient, timers: Timers, rng: Rng) -> Replicas:
        """Of a process that is no node: it asks one where they are. `here`: its datacenter, rack
        and server; "": not said.
        """

        async def load() -> Mapping[int, Site]:
            (rows,) = await kv.call_node(PLACES)
            return {node: Site((host, port), tuple(domains)) for node, host, port, *domains in rows}

        return Replicas(kv, Sites(here, timers, rng, load=load), timers)

    def figures(self) -> dict[str, int]:
        """For metrics."""
        return {"asked": self.asked, "sent_on": self.sent_on, "marks": self.marks}
