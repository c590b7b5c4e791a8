"""The locks of DDL and of membership: what waits for what (K6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import ConditionFailed
from kvorum.testing.simulation import loop as simloop
from procedures.engine.executor import Executor
from procedures.engine.grants import fence_ops
from procedures.engine.procedure import State
from procedures.engine.submission import Submission
from procedures.master.members.moves import node_locks, partition_locks
from tests.procedures.engine.test_locks_engine import Work, args
from tests.procedures.lab import Lab
from tests.procedures.test_procedures_ddl import Ddl

SECS = 1.0


class SlowDdl(Ddl):
    """Making a partition takes a second."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        super().__init__(loop)
        self.making = 0
        self.most = 0
        create = self.replicas.create

        async def slow(descriptor: PartitionDescriptor) -> None:
            self.making += 1
            self.most = max(self.most, self.making)
            await asyncio.sleep(SECS)
            self.making -= 1
            await create(descriptor)

        self.replicas.create = slow  # type: ignore[method-assign]

    async def submit(self, executor: Executor, kind: str, **given: Any) -> int:
        return await executor.submit(Submission(kind, {"namespace": "shop", **given}, "tester"))


def with_shop(test: Callable[[SlowDdl, Executor], Awaitable[None]]) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        d = SlowDdl(loop)
        async with d.lab.executor() as executor:
            shop = await d.submit(executor, "CreateNamespace")
            assert (await executor.wait(shop, 60_000)).state is State.SUCCESS
            await test(d, executor)
        await d.consistent()

    simloop.run(main)


def test_k6_two_creates_of_one_table_serialize() -> None:
    """Both worked on the name at once: the second one saw a half-made table."""

    async def test(d: SlowDdl, executor: Executor) -> None:
        first = await d.submit(executor, "CreateTable", name="t")
        second = await d.submit(executor, "CreateTable", name="t")
        ends = [await executor.wait(id, 60_000) for id in (first, second)]
        assert d.most == 1
        assert [e.state for e in ends] == [State.SUCCESS, State.FAILED]
        error = ends[1].error
        assert error is not None
        assert error.code == "ALREADY_EXISTS"
        assert ends[1].history[0].start_ms >= ends[0].updated_ms, "it began when the first ended"

    with_shop(test)


def test_k6_two_tables_of_a_namespace_overlap() -> None:
    """One table was made after the other."""

    async def test(d: SlowDdl, executor: Executor) -> None:
        ids = [await d.submit(executor, "CreateTable", name=name) for name in ("t", "u")]
        for id in ids:
            assert (await executor.wait(id, 60_000)).state is State.SUCCESS
        assert d.most == 2

    with_shop(test)


def test_k6_drop_namespace_waits_for_both() -> None:
    """A namespace was dropped while tables were made in it; or tables came in behind it."""

    async def test(d: SlowDdl, executor: Executor) -> None:
        tables = [await d.submit(executor, "CreateTable", name=name) for name in ("t", "u")]
        gone = [await d.submit(executor, "DropTable", name=name) for name in ("t", "u")]
        await asyncio.sleep(SECS / 10)  # in the same moment it would go first, by its rank
        dropped = await d.submit(executor, "DropNamespace")
        late = await d.submit(executor, "CreateTable", name="v")
        ends = [await executor.wait(id, 60_000) for id in (*tables, *gone, dropped, late)]
        assert [e.state for e in ends[:5]] == [State.SUCCESS] * 5, ends[4].error
        assert ends[4].history[0].start_ms >= max(e.updated_ms for e in ends[:4])
        error = ends[5].error
        assert error is not None
        assert error.code == "NAMESPACE_NOT_FOUND"

    with_shop(test)


def test_k8_membership_locks_its_node_and_its_partition() -> None:
    """Two procedures moved one partition, or emptied and filled one node, at once."""
    assert node_locks({"node": 3}) == [("exclusive", "server/3")]
    assert partition_locks({"node": 3, "partition": 9}) == [("exclusive", "partition/9")]


def test_u4_a_step_that_writes_under_somebody_elses_lock() -> None:
    """A procedure that was handed a token wrote although that lock had ended."""
    from procedures.engine import procedure as p
    from procedures.engine.context import StepContext
    from procedures.engine.procedure import Outcome
    from procedures.engine.registry import procedure, step
    from tests.procedures.zoo import Zoo

    @procedure("locks.guest")
    class Guest(Zoo):
        @step(first=True)
        async def one(self, ctx: StepContext) -> Outcome:
            ctx.txn.fence("r", ctx.args)
            ctx.txn.table("test", "t").put("guest", b"was here")
            await asyncio.sleep(SECS)
            return p.done()

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Work, Guest])

        async def guest(token: int) -> str:
            id = await executor.submit(Submission("locks.guest", token, "tester"))
            record = await executor.wait(id, 60_000)
            return record.error.code if record.error is not None else record.state.name

        async with lab.executor() as executor:
            host = await executor.submit(
                Submission("locks.work", args("x:r", event="go"), "tester")
            )
            await asyncio.sleep(SECS)
            token = (await executor.find(host)).grant
            assert await guest(token) == "SUCCESS"
            assert await guest(token - 1) == "FENCED_OFF"
            late = asyncio.ensure_future(guest(token))
            await asyncio.sleep(SECS / 2)
            executor.signal("go")
            await executor.wait(host, 60_000)
            assert await late == "FENCED_OFF", "the lock ended while the step ran"

    simloop.run(main)


def test_u4_the_check_is_part_of_the_write() -> None:
    """A lock that ended between the look at its row and the commit let the write through."""

    async def main(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Work])
        async with lab.executor() as executor:
            host = await executor.submit(
                Submission("locks.work", args("x:r", event="go"), "tester")
            )
            token = (await executor.find(host)).grant
            table = lab.store.table
            checks = await fence_ops(table.reads(), [("r", token)])
            table.refuse(checks, 0)
            await asyncio.sleep(SECS)
            executor.signal("go")
            await executor.wait(host, 60_000)
            with pytest.raises(ConditionFailed):
                table.refuse(checks, 0)

    simloop.run(main)
