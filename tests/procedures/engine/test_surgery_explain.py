"""What a procedure waits for, in one sentence; what is parked; what a failure does not call."""

from __future__ import annotations

import asyncio
from typing import Any

from kvorum.testing.simulation import loop as simloop
from procedures.engine.procedure import State
from procedures.engine.registry import Registry
from procedures.engine.service import ProcedureService
from procedures.engine.submission import Submission
from tests.procedures.engine.test_surgery import TYPES, WHO, begun, in_lab
from tests.procedures.lab import Lab, refusal
from tests.procedures.pools.pool_lab import Office


async def _kinds(executor: Any, id: int) -> list[str]:
    return [wait["kind"] for wait in (await executor.explain(id))["waits"]]


def test_u2_explain_names_the_holder_the_children_and_the_error() -> None:
    """What it waits for was not named, or not since when, or not who has it."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            first = await begun(executor, "op.two", {"wait": True, "locks": ["r"]})
            second = await begun(executor, "op.two", {"locks": ["r"]})
            third = await begun(executor, "op.two", {"locks": ["r"]})
            await asyncio.sleep(4)
            told = await executor.explain(second)
            assert f"lock of r, held by procedure {first} (op.two), for 4." in told["sentence"]
            assert told["waits"][0]["holder"] == str(first)
            assert await _kinds(executor, third) == ["lock"]
            assert "event go" in (await executor.explain(first))["sentence"]
            tree = await begun(executor, "op.tree", {"depth": 1})
            told = await executor.explain(tree)
            assert told["waits"][0]["children"] == [str(tree + 1), str(tree + 2)]
            assert f"children {tree + 1} (op.tree, WAITING at end)" in told["sentence"]
            stuck = await begun(executor, "op.two", {"broken": True, "stubborn": True})
            told = await executor.explain(stuck)
            assert told["waits"][0]["kind"] == "retry"
            assert "cannot be undone" in told["sentence"]
            hangs = await begun(executor, "op.two", {"hang": ["one"]})
            assert await _kinds(executor, hangs) == ["step"]
            await asyncio.sleep(61)
            assert await _kinds(executor, hangs) == ["stuck"]
            lab.opened.set()

    in_lab(test)


def test_u2_explain_says_that_no_worker_is_there() -> None:
    """One that waits for a worker looked as if it ran."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        executor = await office.open(office.executor(Registry()))
        office.hire("w1")
        await office.entered("w1")
        await office.dismiss("w1")
        id = await executor.submit(Submission("op.two", {}, "tester"))
        await asyncio.sleep(1)
        told = await executor.explain(id)
        assert told["waits"][0]["kind"] == "worker"
        assert "no worker serves pool p" in told["sentence"]
        await office.close(executor)

    simloop.run(main, 0)


def test_u2_explain_tells_whose_key_a_commit_waits_for() -> None:
    """The step hangs in its commit, and nobody learns of whose transaction."""
    row = {"ns": "shop", "table": "orders", "key": b"k", "holder": "77", "holder_owner": "bob"}
    asked = []

    async def key_waits(id: int, keys: Any) -> list[dict[str, Any]]:
        asked.append(id)
        return [row | {"waited_ms": 3_000}]

    async def test(lab: Lab) -> None:
        async with lab.executor(key_waits=key_waits) as executor:
            id = await begun(executor, "op.two", {"hang": ["one"]})
            told = await executor.explain(id)
            assert "key b'k' of shop.orders, held by transaction 77 of bob" in told["sentence"]
            assert "for 3.0 s" in told["sentence"]
            assert told["waits"][0]["holder_txn"] == "77"
            assert asked == [id]
            lab.opened.set()

    in_lab(test)


def test_j21_unknown_types_are_parked_listed_and_can_be_bypassed() -> None:
    """A record of a type that is gone stopped the start, was not listed, or kept its lock for
    ever.
    """

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"wait": True, "locks": ["r"]})
            tree = await begun(executor, "op.tree", {"depth": 1})
        known, lab.types = lab.types, Registry()
        async with lab.executor() as executor:
            await asyncio.sleep(1)
            service = ProcedureService(executor, lab.clock, executor._roster._elapsed)  # type: ignore[arg-type]
            told = await service.get(id)
            assert "no procedure named 'op.two'" in told["parked"]
            assert "no procedure named 'op.two'" in (await executor.explain(id))["sentence"]
            for action in (executor.surgeon.abort, executor.surgeon.retry):
                refused = await refusal(action(id, *WHO))
                assert "bypass it" in refused.message
            await executor.surgeon.bypass(id, *WHO)
            assert (await executor.wait(id, 1_000)).state is State.BYPASSED
            assert not executor.holders("r")
        lab.types = known
        async with lab.executor() as executor:
            await executor.surgeon.bypass(tree, *WHO, recursive=True)
            assert not executor.live()

    in_lab(test)


def test_j20_a_failure_calls_nothing_that_follows_a_success() -> None:
    """A step, or a parent's next step, that stands for "afterwards" ran although it failed."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await begun(executor, "op.two", {"hang": ["one"]})
            await executor.surgeon.abort(id, *WHO)
            lab.opened.set()
            assert (await executor.wait(id, 10_000)).state.name == "FAILED"
            assert lab.calls.get(f"two {id}") is None
            tree = await begun(executor, "op.tree", {"depth": 1})
            await executor.surgeon.abort(tree + 1, *WHO)
            executor.signal("go")
            record = await executor.wait(tree, 10_000)
            assert record.state is State.ROLLED_BACK
            assert "end" not in {entry.step for entry in record.history if entry.outcome == "done"}

    in_lab(test)
