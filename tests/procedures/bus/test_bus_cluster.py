"""The bus among whole nodes, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base.errors import InvalidArgument, KvorumError, Unavailable
from kv.base.ids import META_PARTITION
from kvorum.api.model import ProcedureInfo, TableSpec
from kvorum.master.bus import NodeBus
from kvorum.node.node import Node
from kvorum.testing.simulation.loop import SimLoop, run
from procedures.bus.handlers import Handler, Job
from procedures.verbs import BUS_ORDERS, BUS_REPORTS
from tests.kvorum.cluster.simulated import SimCluster

ONE, TWO = "kvorum.bus_one_phase", "kvorum.bus_two_phase"
ARGS = {"kind": "test", "targets": {"nodes": "all"}}


class Mark(Handler):
    """What a node did: kept over its restarts, as files would be."""

    def __init__(self) -> None:
        self.begun = 0
        self.done: set[str] = set()
        self.delay_s = 0.0

    async def do(self, job: Job) -> Any:
        self.begun += 1
        await asyncio.sleep(self.delay_s)
        self.done.add(job.op)

    stage = do

    async def commit(self, job: Job) -> Any:
        return "committed"

    async def undo(self, job: Job) -> None:
        self.done.discard(job.op)


class Test:
    """A cluster with marks at its nodes."""

    __test__ = False

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.marks = {n: Mark() for n in range(1, cluster.count + 1)}

    async def start(self, *numbers: int) -> None:
        await self.cluster.start(*numbers)

    @property
    def node(self) -> Node:
        return next(iter(self.cluster.nodes.values()))

    def master(self) -> int | None:
        found = [n for n, node in self.cluster.nodes.items() if node.master.executor is not None]
        return found[0] if len(found) == 1 else None

    async def until(self, holds: Callable[[], object], seconds: float = 60) -> None:
        end_s = self.cluster.loop.time() + seconds
        while not holds():
            assert self.cluster.loop.time() < end_s, "it never happened"
            await asyncio.sleep(0.02)

    async def submit(self, name: str, args: Any) -> int:
        return await self.node.backend.submit(name, args, nonce=None)

    async def ended(self, id_: int, seconds: float = 120) -> ProcedureInfo:
        """Whoever is asked, over failovers."""
        end_s = self.cluster.loop.time() + seconds
        while self.cluster.loop.time() < end_s:
            try:
                info = await self.node.backend.procedure(id_, wait_ms=1_000)
            except KvorumError:
                await asyncio.sleep(0.1)
                continue
            if info.finished:
                return info
        raise AssertionError(f"{id_} has not ended: {info}")

    async def result(self, name: str, args: Any) -> Any:
        info = await self.ended(await self.submit(name, args))
        assert info.state == "SUCCESS", info.error
        return info.result


def clustered(body: Callable[[Test], Awaitable[None]], *, seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed)
        test = Test(cluster)

        def with_mark(bus: NodeBus, *args: Any) -> Any:
            return {**handlers(bus, *args), "test": test.marks[bus._me]}

        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(NodeBus, "_handlers", with_mark)
            await test.start()
            await body(test)
            await cluster.close()

    handlers = NodeBus._handlers
    run(main, seed)


@pytest.mark.parametrize("name", [ONE, TWO])
def test_n3_master_is_lost_with_one_of_three_answers_in(name: str) -> None:
    """The operation ended with its master, or forgot who had answered."""

    async def body(test: Test) -> None:
        await test.until(test.master)
        old = test.master()
        assert old is not None
        others = [n for n in test.marks if n != old]
        for n in others:
            test.marks[n].delay_s = 3
        id_ = await test.submit(name, ARGS)
        await test.until(lambda: test.marks[old].done)
        await asyncio.sleep(0.5)
        info = await test.node.backend.procedure(id_, wait_ms=0)
        states = {target: told["state"] for target, told in info.extra["targets"].items()}
        assert states == {f"node/{n}": "done" if n == old else "waiting" for n in test.marks}
        await test.cluster.crash(old)
        await test.until(test.master)
        await asyncio.sleep(5)
        await test.start(old)
        info = await test.ended(id_)
        assert info.state == "SUCCESS", info.error
        assert all(str(id_) in mark.done for mark in test.marks.values())
        if name == ONE:
            assert test.marks[old].begun == 1, "its answer was in the record"
        assert {t["state"] for t in info.extra["targets"].values()} == {"done"}

    clustered(body)


def test_n4_heartbeats_carry_it_where_pushes_are_blocked() -> None:
    """Who cannot be called was never asked, or could not answer."""

    async def body(test: Test) -> None:
        async def refused(_context: object, _args: list[Any]) -> list[Any]:
            raise Unavailable("the test blocks it")

        for node in test.cluster.nodes.values():
            for method in (BUS_ORDERS, BUS_REPORTS):
                node.store.dispatcher.unregister(method)
                node.store.dispatcher.register(method, refused)
        for name in (ONE, TWO):
            info = await test.ended(await test.submit(name, ARGS), 30)
            assert info.state == "SUCCESS", info.error
            assert all(str(info.id) in mark.done for mark in test.marks.values())
        assert all(node.bus.courier.pushed == 0 for node in test.cluster.nodes.values())

    clustered(body)


def test_n8_was_it_applied_everywhere() -> None:
    """Nobody could say which nodes had a changed setting; one that was away kept the old one."""

    async def body(test: Test) -> None:
        name = "maintenance.pause_ms"
        told = await test.result("kvorum.set_setting", {"name": name, "value": 7})
        assert told["version"] == 1
        assert told["applied"] == {f"node/{n}": 1 for n in test.marks}
        assert told["missing"] == []
        assert [n.bus.settings.value(name) for n in test.cluster.nodes.values()] == [7, 7, 7]
        await test.cluster.crash(3)
        args = {"name": name, "value": 9, "timeout_ms": 3_000}
        told = await test.result("kvorum.set_setting", args)
        assert told["missing"] == ["node/3"]
        told = await test.result("kvorum.check_setting", {"name": name, "timeout_ms": 3_000})
        assert (told["value"], told["version"], told["missing"]) == (9, 2, ["node/3"])
        await test.start(3)
        told = await test.result("kvorum.check_setting", {"name": name})
        assert told["applied"] == {f"node/{n}": 2 for n in test.marks}
        assert test.cluster.nodes[3].bus.settings.value(name) == 9

    clustered(body)


def test_n8_a_setting_takes_effect_where_it_is_applied() -> None:
    """It was told, and read, and nothing changed."""

    async def body(test: Test) -> None:
        collectors = [node.upkeep.collector for node in test.cluster.nodes.values()]
        before = [collector.rounds for collector in collectors]
        await test.result("kvorum.set_setting", {"name": "gc.interval_ms", "value": 200})
        await asyncio.sleep(4)
        assert all(c.rounds > b + 10 for c, b in zip(collectors, before, strict=True))
        await test.result("kvorum.set_setting", {"name": "gc.interval_ms", "value": 0})
        before = [collector.rounds for collector in collectors]
        await asyncio.sleep(4)
        assert [collector.rounds for collector in collectors] == before, "as at the start again"
        told = await test.result("kvorum.list_settings", {})
        (row,) = [one for one in told["settings"] if one["name"] == "gc.interval_ms"]
        assert (row["value"], row["version"]) == (0, 2)

    clustered(body)


def test_n8_what_is_no_setting_is_refused() -> None:
    """A value that no node can apply got into the table."""

    async def body(test: Test) -> None:
        for args in (
            {"name": "nothing", "value": 1},
            {"name": "maintenance.pause_ms", "value": -1},
            {"name": "maintenance.pause_ms", "value": True},
            None,
        ):
            info = await test.ended(await test.submit("kvorum.set_setting", args))
            assert info.state == "FAILED"
            assert info.error is not None
            assert info.error["code"] == "INVALID_ARGUMENT", info.error
        told = await test.result("kvorum.check_setting", {"name": "maintenance.pause_ms"})
        assert (told["value"], told["version"]) == (100, 0)

    clustered(body)


def test_n9_r6_files_of_a_table_at_all_its_hosts() -> None:
    """A host was left out, or ranges of other tables were rewritten, too."""

    async def body(test: Test) -> None:
        await test.node.backend.create_table("default", "k", TableSpec(split_keys=(b"m",)))
        seen: dict[int, list[Any]] = {n: [] for n in test.marks}
        for n, node in test.cluster.nodes.items():
            engine: Any = node.store.state
            rows = seen[n]
            engine.flush = lambda rows=rows: rows.append("flush")
            engine.compact = lambda f, s, e, rows=rows: rows.append((f, s, e))
        args = {"namespace": "default", "table": "k"}
        told = await test.result("kvorum.flush_table", args)
        assert {t: r["partitions"] for t, r in told["targets"].items()} == {
            f"node/{n}": 2 for n in test.marks
        }
        assert all(rows == ["flush"] for rows in seen.values())
        await test.result("kvorum.compact_table", args)
        replica = next(r for r in test.node.store.manager.replicas() if r.descriptor.id == 2)
        for rows in seen.values():
            assert ("cur", replica.descriptor.start, replica.descriptor.end) in rows
            assert len(rows) == 1 + 2 * 5, "five families of two partitions"
        info = await test.ended(await test.submit("kvorum.flush_table", {**args, "table": "x"}))
        assert info.error is not None
        assert info.error["code"] == "TABLE_NOT_FOUND"

    clustered(body)


def test_n9_a_point_is_at_all_nodes_or_at_none() -> None:
    """Nodes without files refused after others had made theirs."""

    async def body(test: Test) -> None:
        info = await test.ended(await test.submit("kvorum.checkpoint", {"name": "a"}))
        assert info.state == "ROLLED_BACK"
        assert info.error is not None
        assert info.error["code"] == "NO_FILES"
        with pytest.raises(InvalidArgument, match="letters, digits"):
            await test.submit("kvorum.checkpoint", {"name": "../a"})

    clustered(body)


@pytest.mark.slow
def test_n10_what_operations_are_about_is_busy_over_failovers() -> None:
    """A balancer moved a partition away from under an operation; or a new master did, before it
    knew of it.
    """

    async def body(test: Test) -> None:
        await test.node.backend.create_table("default", "k", TableSpec(split_keys=(b"m",)))
        await test.node.backend.create_table("default", "other", TableSpec())
        await test.until(test.master)
        old = test.master()
        assert old is not None
        assert await test.cluster.nodes[old].bus.busy() == {}
        for mark in test.marks.values():
            mark.delay_s = 8
        args = {"kind": "test", "targets": {"table": {"namespace": "default", "name": "k"}}}
        id_ = await test.submit(ONE, args)
        await test.until(lambda: all(mark.begun for mark in test.marks.values()))
        busy = await test.cluster.nodes[old].bus.busy()
        assert sorted(busy) == [2, 3]
        assert busy[2] == f"procedure {id_} ({ONE}) is about it"
        # Those who would move or reshape a partition ask, and leave these alone.
        node = test.cluster.nodes[old]
        held, _ = await node.balancing.schedulers._busy()
        assert {2, 3} <= held.keys()
        splitter = node.shaping.splitter
        parts = splitter._parts(await splitter._map(), await splitter._busy())
        reasons = {part.id: part.busy for part in parts}
        assert "operation" in reasons[2]
        assert "operation" in reasons[3]
        assert "operation" not in reasons[4]
        await test.cluster.crash(old)
        await test.until(test.master)
        new = test.master()
        assert new is not None
        assert await test.cluster.nodes[new].bus.busy() == busy, "at once"
        for mark in test.marks.values():
            mark.delay_s = 0
        await test.start(old)
        assert (await test.ended(id_)).state == "SUCCESS"
        await asyncio.sleep(5)  # the restart, too, is an operation about them
        now = test.master()
        assert now is not None
        assert await test.cluster.nodes[now].bus.busy() == {}

    clustered(body)


def test_n11_a_restart_is_seen_through_by_the_master() -> None:
    """A node came back, and nobody knew whether it had what the others have."""

    async def body(test: Test) -> None:
        await test.node.backend.create_table("default", "k", TableSpec(split_keys=(b"m",)))
        await test.cluster.crash(3)
        for i in range(50):
            try:
                await test.node.backend.put("default", "k", b"k%d" % i, b"v", None, 0)
            except KvorumError:
                await asyncio.sleep(0.2)
        await test.start(3)
        found: list[ProcedureInfo] = []
        end_s = test.cluster.loop.time() + 30
        while not (found and found[0].finished) and test.cluster.loop.time() < end_s:
            found = list(
                await test.node.backend.procedures(
                    state=None, owner="system", name="kvorum.recover_node"
                )
            )
            await asyncio.sleep(0.2)
        (info,) = found
        assert info.state == "SUCCESS", info
        assert info.result["node"] == 3
        assert info.result["partitions"] == 2
        mine = test.cluster.nodes[3].store.manager
        for replica in test.cluster.nodes[1].store.manager.replicas():
            other = mine.replica(replica.descriptor.id)
            assert other is not None
            if replica.descriptor.id != META_PARTITION:
                assert other.state.index == replica.state.index

    clustered(body)
