"""What a step has written is committed with it or fails it, whatever the step does with errors."""

from __future__ import annotations

import asyncio

import pytest

from kv.base.errors import KvorumError, NotFound, Unavailable
from kv.base.ids import TableId
from kv.base.ops import check
from kvorum.testing.simulation import loop as simloop
from procedures.engine import procedure as p
from procedures.engine.context import StepContext, StepTxn
from procedures.engine.memory_store import MemoryStore
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import procedure, step
from tests.procedures.lab import TABLE, Lab, run
from tests.procedures.zoo import Zoo


@procedure("writes.swallow")
class Swallow(Zoo):
    """Writes to a table that is not there between two others, and swallows what reads say then."""

    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        there, nowhere = ctx.txn.table("default", "there"), ctx.txn.table("default", "nowhere")
        there.put("before", "1")
        if ctx.args == "unknown":
            nowhere.put("lost", "1")
        elif ctx.args == "fence":
            ctx.txn.fence("lock/of/others", 7)
        elif ctx.args == "condition":
            there.put("before", "2", if_version=9)  # contradicts the step's own put
        there.put("after", "1")
        for _ in range(2):
            try:
                await there.get("other")
            except KvorumError:
                self.lab.count("swallowed")
        return p.done("all is well")


def _ran(what: str) -> tuple[Lab, State, str]:
    found: list[tuple[Lab, State, str]] = []

    async def story(loop: simloop.SimLoop) -> None:
        lab = Lab(loop, [Swallow])
        async with lab.executor() as executor:
            record = await run(executor, "writes.swallow", what)
        found.append((lab, record.state, "" if record.error is None else record.error.code))

    simloop.run(story)
    return found[0]


@pytest.mark.parametrize(
    ("what", "code"),
    [("unknown", "TABLE_NOT_FOUND"), ("fence", "FENCED_OFF"), ("condition", "CONDITION_FAILED")],
)
def test_u1_a_refused_write_fails_its_step_whoever_swallows_the_refusal(
    what: str, code: str
) -> None:
    """A step that goes on after a failed read would commit without the writes before it."""
    lab, state, told = _ran(what)
    assert (state, told) == (State.FAILED, code)
    assert lab.calls["swallowed"] >= 1
    assert lab.row("before") is None
    assert lab.row("after") is None


def test_u1_without_a_refusal_all_of_it_is_there() -> None:
    """The other three prove nothing if the step never commits."""
    lab, state, _ = _ran("nothing")
    assert state is State.SUCCESS
    assert "swallowed" not in lab.calls
    assert (lab.row("before"), lab.row("after")) == (b"1", b"1")


class _Late:
    """Tables whose first look-up fails, and whose others take their time."""

    def __init__(self, *, fails: int = 0) -> None:
        self.fails = fails
        self.looked = 0

    async def resolve(self, namespace: str, table: str) -> TableId:
        self.looked += 1
        await asyncio.sleep(0.01 if table == "slow" else 0)
        if self.looked <= self.fails:
            raise Unavailable("no leader yet")
        if table == "nowhere":
            raise NotFound("no such table", code="TABLE_NOT_FOUND")
        return TABLE

    writable = resolve


def test_u1_a_look_up_that_failed_for_a_moment_loses_nothing() -> None:
    """The master's catalog was away when the step read: its writes are still those of the step."""
    tables = _Late(fails=1)
    txn = StepTxn(MemoryStore(), tables)

    async def story(_loop: simloop.SimLoop) -> None:
        txn.table("d", "t").put("a", "1")
        txn.table("d", "u").put("b", "1")
        with pytest.raises(Unavailable):
            await txn.get(b"x")
        txn.table("d", "t").put("c", "1")
        assert [op.key[4:] for op in await txn.writes()] == [b"a", b"b", b"c"]
        await txn.end()

    simloop.run(story)
    assert tables.looked


def test_u1_reads_side_by_side_see_all_writes_in_their_order() -> None:
    """Two reads at once: the second must not read past writes that the first is looking up, nor
    may a later write of a key be taken over before an earlier one.
    """
    tables = _Late()
    txn = StepTxn(MemoryStore(), tables)

    async def story(_loop: simloop.SimLoop) -> None:
        slow = txn.table("d", "slow")
        slow.put("a", "1")
        first = asyncio.ensure_future(slow.get("a"))
        await asyncio.sleep(0.002)
        slow.put("a", "2")
        second = await txn.table("d", "fast").get("a")  # the same table under another name
        seen = await first
        assert seen is not None
        assert seen.value == b"2"
        assert second is not None
        assert second.value == b"2"
        (op,) = await txn.writes()
        assert op.value == b"2"
        await txn.end()

    simloop.run(story)
    assert tables.looked


def test_u1_what_is_checked_first_and_then_written_is_asked_for_as_written() -> None:
    """A table that only SQL may write to is refused for its put, though a check went before."""

    class Ruled(_Late):
        async def writable(self, namespace: str, table: str) -> TableId:
            raise NotFound("ruled", code="TABLE_RULED")

    tables = Ruled()
    txn = StepTxn(MemoryStore(), tables)

    async def story(_loop: simloop.SimLoop) -> None:
        txn.add(("d", "t"), check(b"k", 0))
        assert len(await txn.writes()) == 1
        txn.table("d", "t").put("a", "1")
        with pytest.raises(NotFound, match="ruled"):
            await txn.writes()
        await txn.end()

    simloop.run(story)
    assert tables.looked
