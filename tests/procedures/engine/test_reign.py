"""A new reign and what the master before it left half-way: transactions that check the earlier
reign are ended, not waited for, and none of them commits afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kv.base.errors import KvorumError
from kv.base.keys import table_prefix
from kv.base.limits import PROCEDURE_TXN_TTL_MS, RECOVERY_GRACE_MS
from kv.base.methods import COMMIT, FINISH, PREWRITE
from kv.base.ops import put
from kvorum.testing.simulation import loop as simloop
from procedures.engine import core
from procedures.engine.core import Change, Flow
from procedures.engine.kv_store import KvStore
from procedures.engine.records import Record
from procedures.engine.registry import Registry
from procedures.engine.store import Stored
from procedures.engine.submission import Submission, check, create
from tests.procedures.lab import TABLE
from tests.procedures.zoo import TYPES
from tests.txn.wire import Gate, PausedTimers, Wire
from tests.txn.world import FarWorld, RealWorld, World

WORLDS = pytest.mark.parametrize("make", [RealWorld, FarWorld], ids=["real", "far oracle"])
FAR = table_prefix(TABLE) + b"z"  # in another partition than the system's rows
SOON_S = (RECOVERY_GRACE_MS + 100) / 1000

Scene = Callable[["Masters"], Awaitable[None]]


class Masters:
    """The old master, whose messages the test rules, and the new one."""

    def __init__(self, world: World, loop: simloop.SimLoop, *, parallel: bool) -> None:
        self.loop = loop
        self.wire = Wire(loop, world.kv())
        # stopped for a while, it notices nothing by itself
        self.old = world.client(self.wire, parallel=parallel, timers=PausedTimers(loop))
        self.new = world.client()
        self.store = KvStore(self.new)
        self.granting: asyncio.Task[int]
        self.stored: Stored

    async def grant(self) -> None:
        """The old master begins to grant locks, in a step that writes elsewhere, too."""
        store = KvStore(self.old)
        reign = await store.reign()
        ok = check(Submission("three", None, "me", ""), Registry(TYPES))
        record = create(ok, id=await store.take_ids(1), salt=b"12345678", now_ms=1_000)
        stored = await store.insert(record)
        assert isinstance(stored, Stored)
        self.stored = stored
        change = Change(core.granted(record), Flow.MORE, reign=reign)
        self.granting = self.loop.create_task(
            store.update(stored.version, change, ops=[put(FAR, b"v")])
        )

    async def succeed(self) -> float:
        """The new reign; after how many seconds it began."""
        began = self.loop.time()
        await self.store.reign()
        return self.loop.time() - began

    async def seen(self) -> tuple[Record, bytes | None]:
        stored = await self.store.load(self.stored.record.id)
        assert stored is not None
        return stored.record, (await self.new.get(FAR))[0]

    async def nothing_came_of_it(self) -> None:
        """Now, and when the old master goes on."""
        assert await self.seen() == (self.stored.record, None)
        with pytest.raises(KvorumError):
            await self.granting
        assert await self.seen() == (self.stored.record, None)


def play(make: type[World], scene: Scene, *, parallel: bool = True) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        world = make(loop)
        await world.start()
        masters = Masters(world, loop, parallel=parallel)
        await scene(masters)
        for client in (masters.old, masters.new):
            await client.close(0)
        world.close()

    simloop.run(main)


@WORLDS
def test_k11_a_new_reign_ends_what_was_prepared(make: type[World]) -> None:
    """A new master waited for the ttl of a dead one's transaction, or that one committed later."""

    async def scene(masters: Masters) -> None:
        gate = Gate(masters.wire, COMMIT, FINISH)
        await masters.grant()
        await gate.reached.wait()
        assert await masters.succeed() < SOON_S < PROCEDURE_TXN_TTL_MS / 1000
        gate.opened.set()
        await masters.nothing_came_of_it()

    play(make, scene, parallel=False)


@WORLDS
def test_k11_a_new_reign_ends_what_misses_an_intent(make: type[World]) -> None:
    """A parallel commit of the old master kept the new one out, or was completed behind its back by
    the prewrite that it missed.
    """

    async def scene(masters: Masters) -> None:
        gate = Gate(masters.wire, PREWRITE, key=FAR)
        await masters.grant()
        await gate.reached.wait()
        await asyncio.sleep(0.01)  # the other prewrite has arrived
        assert await masters.succeed() < SOON_S < PROCEDURE_TXN_TTL_MS / 1000
        gate.opened.set()
        await masters.nothing_came_of_it()

    play(make, scene)


@WORLDS
def test_k11_a_new_reign_sees_what_was_committed_by_its_intents(make: type[World]) -> None:
    """A grant that was answered was rolled back by the next master, or read too early."""

    async def scene(masters: Masters) -> None:
        gate = Gate(masters.wire, COMMIT, FINISH)
        await masters.grant()
        version = await masters.granting
        await gate.reached.wait()
        assert await masters.succeed() < SOON_S
        record, far = await masters.seen()
        assert (record.grant, far) == (version, b"v")
        gate.opened.set()

    play(make, scene)


@WORLDS
def test_k11_several_new_reigns_at_once(make: type[World]) -> None:
    """Two masters that begin at once kept each other out, or both could grant afterwards."""

    async def scene(masters: Masters) -> None:
        gate = Gate(masters.wire, COMMIT, FINISH)
        await masters.grant()
        await gate.reached.wait()
        reigns = await asyncio.gather(*(masters.store.reign() for _ in range(4)))
        assert len(set(reigns)) == 4
        id, version = masters.stored.record.id, masters.stored.version
        for reign in sorted(reigns):
            change = Change(core.granted(masters.stored.record), Flow.MORE, reign=reign)
            if reign == max(reigns):
                assert await masters.store.update(version, change) > version
            else:
                with pytest.raises(KvorumError, match="another"):
                    await masters.store.update(version, change)
        stored = await masters.store.load(id)
        assert stored is not None
        assert stored.record.grant > max(reigns)
        gate.opened.set()
        with pytest.raises(KvorumError):
            await masters.granting

    play(make, scene, parallel=False)
