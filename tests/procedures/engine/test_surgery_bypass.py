"""What cannot be bypassed, because only itself puts right what it has begun (M8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import InvalidArgument
from kvorum.testing.simulation import loop as simloop
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, State, again, children, done
from procedures.engine.registry import Registry, declaration, procedure, step
from procedures.engine.submission import Submission
from procedures.master.shape.merging import MergePartitions
from procedures.master.shape.splitting import SplitPartition
from procedures.pools.describe import described, remote_type
from tests.procedures.engine.test_surgery import WHO, Two, _locks
from tests.procedures.lab import Lab, refusal

WHY = "it has marked a row; abort it"


@procedure("op.kept", locks=_locks, bypass=WHY)
class Kept(Two):
    """As op.two, but not to be bypassed."""


@procedure("op.above")
class Above:
    @step(first=True)
    async def one(self, ctx: StepContext) -> Outcome:
        return children([("op.kept", {"wait": True})], then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return done()


@procedure("op.polls", bypass=WHY)
class Polls:
    """Its first step commits what it has done, again and again."""

    @step(first=True)
    async def look(self, ctx: StepContext) -> Outcome:
        ctx.state["looked"] = ctx.round
        return again(delay_ms=60_000)


def in_lab(test: Any) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        await test(Lab(loop, [Two, Kept, Above, Polls]))

    simloop.run(main, 0)


async def begun(executor: Any, name: str, args: Any = None) -> int:
    id: int = await executor.submit(Submission(name, args or {}, "tester", ""))
    await asyncio.sleep(0.1)
    return id


def test_m8_what_only_itself_puts_right_is_not_bypassed() -> None:
    """A bypassed split left the map saying for ever that its partition is being split."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            kept = await begun(executor, "op.kept", {"wait": True, "locks": ["r"]})
            above = await begun(executor, "op.above")
            polls = await begun(executor, "op.polls")
            for id in (kept, above, polls):
                for dry_run in (True, False):
                    refused = await refusal(
                        executor.surgeon.bypass(
                            id, *WHO, override=True, recursive=True, dry_run=dry_run
                        )
                    )
                    assert refused.code == "NOT_BYPASSABLE"
                    assert WHY in refused.message
                assert not (await executor.find(id)).ended
            assert lab.row(f"one {kept}") == b"1"
            await executor.surgeon.abort(kept, *WHO)
            assert (await executor.wait(kept, 10_000)).state is State.ROLLED_BACK
            assert lab.row(f"one {kept}") is None

    in_lab(test)


def test_m8_what_has_not_begun_may_always_be_bypassed() -> None:
    """One that waits for its lock, and has left nothing anywhere, could not be got rid of."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            holder = await begun(executor, "op.two", {"wait": True, "locks": ["r"]})
            waits = await begun(executor, "op.kept", {"locks": ["r"]})
            hangs = await begun(executor, "op.kept", {"hang": ["one"]})
            assert (await executor.surgeon.bypass(waits, *WHO))["changed"]
            assert (await executor.surgeon.bypass(hangs, *WHO, override=True))["changed"]
            executor.signal("go")
            lab.opened.set()
            assert (await executor.wait(holder, 10_000)).state is State.SUCCESS
            for id in (waits, hangs):
                assert (await executor.find(id)).state is State.BYPASSED
                assert lab.row(f"one {id}") is None, "it was committed after the bypass"

    in_lab(test)


def test_m8_the_procedures_that_mark_the_map_cannot_be_bypassed() -> None:
    """A partition stood still for ever, or could not be moved any more."""
    for cls in (SplitPartition, MergePartitions):
        assert "Abort it" in declaration(cls).bypass


def test_m8_a_workers_type_tells_the_master_why_it_cannot_be_bypassed() -> None:
    """The master bypassed what its workers had declared that nobody may."""
    declared = Registry([Kept]).get("op.kept")
    assert remote_type(described(declared, "pool")).bypass == WHY


@pytest.mark.parametrize("why", [True, "w" * (limits.SURGERY_REASON_CHARS_MAX + 1)])
def test_m8_why_it_cannot_be_bypassed_is_a_sentence(why: Any) -> None:
    """Who was refused was told nothing, or a book."""
    with pytest.raises(InvalidArgument, match="bypass says why"):

        @procedure("op.unclear", bypass=why)
        class Unclear(Two):
            pass
