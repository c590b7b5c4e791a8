"""Locks of procedures through the engine: granted durably, kept, restored, stolen, fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kv.base.errors import KvorumError, UnknownOutcome
from kv.base.keys import table_range
from kv.base.system import LOCKS
from kvorum.testing.simulation import loop as simloop
from kvorum.testing.simulation.loop import SimRng
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.grants import REIGN, grants_of
from procedures.engine.procedure import Outcome, State
from procedures.engine.records import Record
from procedures.engine.registry import procedure, step, undo
from procedures.engine.submission import Submission
from tests.procedures.lab import CrashingStore, Lab, LaggingStore, crashed, run
from tests.procedures.stores import STORES, opened
from tests.procedures.zoo import Zoo


def wanted(args: Any) -> list[p.Lock]:
    return [p.Lock(mode, resource) for mode, resource in args["locks"]]


@procedure("locks.work", locks=wanted, timeout_ms=0)
class Work(Zoo):
    """Two steps, each some time in the lab's diary; may pause, wait for an event, or fail."""

    @step(first=True, undo="un")
    async def one(self, ctx: StepContext) -> Outcome:
        await self.inside(ctx)
        if ctx.args.get("event"):
            return p.suspend(event=ctx.args["event"], then="two")
        return p.next("two")

    @step
    async def two(self, ctx: StepContext) -> Outcome:
        if ctx.args.get("event") and ctx.wake != "event":
            return p.suspend(event=ctx.args["event"], then="two")
        await self.inside(ctx)
        if ctx.args.get("fail"):
            return p.fail("NO", "it does not want to")
        return p.done(ctx.state["tokens"])

    @undo
    async def un(self, ctx: StepContext) -> None:
        await self.inside(ctx)

    async def inside(self, ctx: StepContext) -> None:
        for _, resource in ctx.args["locks"]:
            ctx.state.setdefault("tokens", []).append(ctx.fence(resource))
        who = ctx.args.get("who", ctx.id)
        diary = self.lab.__dict__.setdefault("diary", [])
        diary.append((who, "in"))
        await asyncio.sleep(ctx.args.get("secs", 0.01))
        diary.append((who, "out"))
        ctx.txn.table("test", "t").put(f"by {who}", b"1")


@procedure("locks.timed", locks=wanted, timeout_ms=500)
class Timed(Work):
    """`Work` that fails after a while."""


@procedure("locks.family", locks=wanted)
class Family(Zoo):
    """Its children do the work."""

    @step(first=True)
    async def spawn(self, ctx: StepContext) -> Outcome:
        await asyncio.sleep(0.05)
        return p.children([(name, args) for name, args in ctx.args["children"]], then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done([child.result for child in ctx.children])


TYPES = [Work, Timed, Family]


def in_lab(test: Callable[[Lab], Awaitable[None]], *, kind: str = "memory", seed: int = 0) -> None:
    async def main(loop: simloop.SimLoop) -> None:
        async with opened(kind, loop) as looks:
            await test(Lab(loop, TYPES, seed=seed, store=looks.store))

    simloop.run(main, seed)


def args(*locks: str, **more: Any) -> dict[str, Any]:
    """`x:NAME` exclusive, `s:NAME` shared."""
    modes = {"x": "exclusive", "s": "shared"}
    return {"locks": [[modes[lock[0]], lock[2:]] for lock in locks], **more}


async def submit(executor: Any, given: dict[str, Any], name: str = "locks.work") -> int:
    id: int = await executor.submit(Submission(name, given, "tester"))
    return id


async def end(executor: Any, id: int, wait_ms: int = 60_000) -> Record:
    record: Record = await executor.wait(id, wait_ms)
    assert record.ended, record
    return record


async def scans(store: Any) -> Any:
    """What reads the rows of a store as they are now."""
    if hasattr(store, "_txn"):
        return store._txn
    return store.table.reads() if hasattr(store, "table") else await store.reads()


async def grants(lab: Lab, resource: str) -> list[int]:
    reads = await scans(lab.store)
    return [grant.holder for grant in await grants_of(reads, resource)]


async def rows(lab: Lab) -> int:
    """Grants that are stored; the reign is always there."""
    reads = await scans(lab.store)
    page = await reads.scan(*table_range(LOCKS), limit=1_000)
    return sum(key != REIGN for key, *_ in page.items)


def overlaps(diary: list[tuple[Any, str]]) -> bool:
    """Whether two were inside at once."""
    inside: set[Any] = set()
    for who, what in diary:
        if what == "in":
            inside.add(who)
        else:
            inside.discard(who)
        if len(inside) > 1:
            return True
    return False


# ------------------------------------------------------------------------------ granting
@STORES
def test_j8_one_at_a_time_and_nothing_remains(kind: str) -> None:
    """Two procedures with the same lock ran at once, or a lock survived its procedure."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            ids = [await submit(executor, args("x:r")) for _ in range(5)]
            ends = [await end(executor, id) for id in ids]
            assert all(e.state is State.SUCCESS for e in ends)
            assert not overlaps(lab.__dict__["diary"])
            order = [who for who, what in lab.__dict__["diary"] if what == "in"]
            assert order == [id for id in ids for _ in range(2)], "first come, first served"
            assert await rows(lab) == 0

    in_lab(test, kind=kind)


def test_k6_shared_ones_overlap() -> None:
    """Shared locks excluded each other."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            ids = [await submit(executor, args("s:r")) for _ in range(3)]
            for id in ids:
                await end(executor, id)
            assert overlaps(lab.__dict__["diary"])

    in_lab(test)


def test_k7_held_while_it_waits_and_while_it_rolls_back() -> None:
    """A suspended procedure, or one that rolls back, lost its lock to another."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            first = await submit(executor, args("x:r", event="go", fail=True))
            second = await submit(executor, args("x:r"))
            await asyncio.sleep(5)
            assert {who for who, _ in lab.__dict__["diary"]} == {first}
            executor.signal("go")
            assert (await end(executor, first)).state is State.ROLLED_BACK
            assert (await end(executor, second)).state is State.SUCCESS
            whose = [who for who, what in lab.__dict__["diary"] if what == "in"]
            assert whose == [first] * 3 + [second] * 2

    in_lab(test)


def test_k7_no_polling() -> None:
    """Who waits for a lock was looked at again and again."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            await submit(executor, args("x:r", event="never"))
            for _ in range(3):
                await submit(executor, args("x:r"))
            await asyncio.sleep(1)
            pops = 0
            take = executor._roster.take

            def counted(*given: Any) -> Any:
                nonlocal pops
                pops += 1
                return take(*given)

            executor._roster.take = counted  # type: ignore[method-assign]
            await asyncio.sleep(3_600)
            assert pops == 0

    in_lab(test)


# ------------------------------------------------------------------------------ ends without it
def test_k7_a_timeout_ends_the_wait() -> None:
    """A procedure with a timeout waited for its lock for ever."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            first = await submit(executor, args("x:r", event="go"))
            timed = await submit(executor, args("x:r"), "locks.timed")
            last = await submit(executor, args("x:r"))
            record = await end(executor, timed)
            assert (record.state, record.error.code) == (State.FAILED, "TIMEOUT")
            assert timed not in {who for who, _ in lab.__dict__["diary"]}
            executor.signal("go")
            await end(executor, first)
            assert (await end(executor, last)).state is State.SUCCESS

    in_lab(test)


def test_k7_an_abort_ends_the_wait() -> None:
    """An aborted waiter kept its place, and those behind it waited for nobody."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            first = await submit(executor, args("s:r", event="go"))
            second = await submit(executor, args("x:r"))
            third = await submit(executor, args("s:r"))
            await asyncio.sleep(1)
            await executor.abort(second, "changed my mind")
            assert (await end(executor, second)).state is State.FAILED
            assert (await end(executor, third)).state is State.SUCCESS, "it shares with the first"
            executor.signal("go")
            await end(executor, first)
            assert await rows(lab) == 0

    in_lab(test)


# ------------------------------------------------------------------------------ families
def test_k6_children_under_their_parents_lock() -> None:
    """A child waited for the lock of its parent, which waited for it; brothers worked at once."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            child = args("x:r")
            parent = args("x:r", children=[["locks.work", child]] * 3)
            id = await submit(executor, parent, "locks.family")
            stranger = await submit(executor, args("x:r", who="stranger"))
            assert (await end(executor, id)).state is State.SUCCESS
            await end(executor, stranger)
            diary = lab.__dict__["diary"]
            assert not overlaps(diary)
            assert [who for who, _ in diary[-4:]] == ["stranger"] * 4
            assert await rows(lab) == 0

    in_lab(test)


def test_k6_a_circle_fails_one_family() -> None:
    """Two families wanted each other's locks and hung; or nobody was told why one failed."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            a = args("x:a", children=[["locks.work", args("x:b")]])
            b = args("x:b", children=[["locks.work", args("x:a")]])
            ids = [await submit(executor, one, "locks.family") for one in (a, b)]
            ends = [await end(executor, id) for id in ids]
            good = [e for e in ends if e.state is State.SUCCESS]
            (bad,) = [e for e in ends if e.state is not State.SUCCESS]
            assert len(good) == 1
            assert bad.error is not None
            assert bad.error.code == "LOCK_CIRCLE"
            assert f"waits for {'b' if bad.id == ids[0] else 'a'} of {good[0].id}" in (
                bad.error.message
            )
            assert await rows(lab) == 0

    in_lab(test)


# ------------------------------------------------------------------------------ restarts
@STORES
def test_k11_the_holder_keeps_it_over_a_restart(kind: str) -> None:
    """After a restart a waiter got the lock of one that still held it."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            holder = await submit(executor, args("x:r", event="go"))
            waiter = await submit(executor, args("x:r"))
            await asyncio.sleep(1)
        async with lab.executor() as executor:
            assert list(executor.holders("r")) == [holder], "before anything has run"
            lower = await submit(executor, args("s:r"))
            await asyncio.sleep(1)
            assert {who for who, _ in lab.__dict__["diary"]} == {holder}
            executor.signal("go")
            record = await end(executor, holder)
            tokens = lab_result(record)
            assert len(set(tokens)) == 1, "the token stayed the same over the restart"
            others = [await end(executor, id) for id in (waiter, lower)]
            assert [*tokens, *lab_result(others[0])] == sorted(tokens + lab_result(others[0]))
            assert lab_result(others[0])[0] > tokens[0]
            assert not overlaps(lab.__dict__["diary"])
            assert await rows(lab) == 0

    in_lab(test, kind=kind)


def lab_result(record: Record) -> list[int]:
    from procedures.engine import plain_data

    found: list[int] = plain_data.decode(record.result)
    return found


def test_k11_a_record_that_cannot_be_read_keeps_its_lock() -> None:
    """The lock of a damaged record was given to the next one, in the middle of what it did."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            first = await submit(executor, args("x:table/a/t", event="go"))
            await asyncio.sleep(1)
        lab.store._rows[first] = (b"junk", lab.store._rows[first][1])
        async with lab.executor() as executor:
            assert list(executor.broken) == [first]
            assert executor.holders("namespace/a") == {first: "shared"}
            second = await submit(executor, args("x:table/a/t"))
            await asyncio.sleep(5)
            assert executor.holders("table/a/t") == {first: "exclusive"}
            assert not (await lab.store.load(second)).record.ended

    in_lab(test)


@pytest.mark.parametrize("after", [False, True])
def test_k11_a_crash_at_every_write(after: bool) -> None:
    """Wherever the master died, afterwards two held the lock, a grant was forgotten, or one that
    waited never came.
    """
    for at in range(1, 40):
        finished = False

        async def test(lab: Lab, at: int = at) -> None:
            nonlocal finished
            store = CrashingStore(lab.store, at, after=after)
            try:
                async with lab.executor(store) as executor:
                    for who in ("a", "b", "c"):
                        given = args("x:r", "s:all", who=who, fail=who == "b")
                        await submit(executor, given)
                    await asyncio.sleep(20)
                    finished = True
            except BaseException as error:
                if not crashed(error):
                    raise
            held = await grants(lab, "r")
            async with lab.executor() as executor:
                assert list(executor.holders("r")) == held
                for live in executor.live():
                    await end(executor, live.id)
            # a step that the crash cut off runs again: it is the same one that is inside
            names = [who for who, what in lab.__dict__.get("diary", []) if what == "in"]
            assert [n for i, n in enumerate(names) if n not in names[:i]] == sorted(set(names))
            assert names == sorted(names), "somebody came in between"
            assert await rows(lab) == 0

        in_lab(test)
        if finished:
            return
    raise AssertionError("more writes than expected")


def test_k11_a_deposed_executor_grants_nothing() -> None:
    """A grant of the old master that was on its way arrived after the new one had read what there
    is, and two held the lock.
    """

    async def test(lab: Lab) -> None:
        class Slow:
            """Its grants take long."""

            def __init__(self, inner: Any) -> None:
                self.inner = inner

            def __getattr__(self, name: str) -> Any:
                return getattr(self.inner, name)

            async def update(self, version: int, change: Any, **more: Any) -> int:
                if change.reign:
                    await asyncio.sleep(2)
                found: int = await self.inner.update(version, change, **more)
                return found

        async with lab.executor(Slow(lab.store)) as old:
            first = await submit(old, args("x:r", who="first"))
            second = await submit(old, args("x:r", who="second"))
            await asyncio.sleep(0.5)
            assert (await lab.store.load(first)).record.ended
            async with lab.executor() as new:  # the grant of `second` is on its way now
                third = await submit(new, args("x:r", who="third"))
                for id in (second, third):
                    assert (await end(new, id)).state is State.SUCCESS
                await asyncio.sleep(5)
                with pytest.raises(KvorumError, match="another executor"):
                    await submit(old, args("x:other"))
            assert await rows(lab) == 0
        assert not overlaps(lab.__dict__["diary"])

    in_lab(test)


def test_k11_a_submission_nobody_heard_of_keeps_nothing() -> None:
    """The insert of a procedure was lost without an answer, and its lock was held for ever."""

    class Deaf(LaggingStore):
        async def insert(self, record: Record, reign: int = 0) -> Any:
            raise UnknownOutcome("no answer")

    async def test(lab: Lab) -> None:
        store = Deaf(lab.store, SimRng(1))
        async with lab.executor(store) as executor:
            with pytest.raises(UnknownOutcome):
                await submit(executor, args("x:r"))
            assert len(executor.holders("r")) == 1, "perhaps it is there"
            await asyncio.sleep(300)
            assert executor.holders("r") == {}

    in_lab(test)


# ------------------------------------------------------------------------------ stealing, fences
@STORES
def test_u4_a_zombie_writes_nothing(kind: str) -> None:
    """A holder that slept through the theft of its lock wrote behind the back of the next one."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            sleeper = await submit(executor, args("x:r", who="sleeper", secs=15))
            await asyncio.sleep(1)
            (old,) = await grants(lab, "r")
            assert old == sleeper
            second = await submit(executor, args("x:r", who="second"))
            assert await executor.steal("r", "it hangs") == [sleeper]
            record = await end(executor, second, 5_000)
            assert record.state is State.SUCCESS, "while the sleeper sleeps"
            asleep = (await lab.store.load(sleeper)).record
            assert (asleep.seq, asleep.grant) == (0, 0)
            assert asleep.history[-1].outcome == "lock stolen: it hangs"
            slept = await end(executor, sleeper, 60_000)
            assert slept.state is State.SUCCESS, "it took the lock again and did its step again"
            assert lab_result(slept)[0] > lab_result(record)[0], "with a later token"
            whose = [who for who, what in lab.__dict__["diary"] if what == "in"]
            assert whose == ["sleeper", "second", "second", "sleeper", "sleeper"]
            assert await rows(lab) == 0

    in_lab(test, kind=kind)


def test_u4_a_sleeping_holder_can_be_robbed() -> None:
    """Theft from a procedure that waits for an event left it with half a lock."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            first = await submit(executor, args("x:r", event="go"))
            await asyncio.sleep(1)
            second = await submit(executor, args("x:r", event="on"))
            assert await executor.steal("r", "mine now") == [first]
            await asyncio.sleep(1)
            assert list(executor.holders("r")) == [second]
            executor.signal("go")
            await asyncio.sleep(1)
            assert list(executor.holders("r")) == [second], "the first waits for its lock again"
            executor.signal("on")
            assert (await end(executor, second)).state is State.SUCCESS
            assert (await end(executor, first)).state is State.SUCCESS
            assert await rows(lab) == 0

    in_lab(test)


def test_u4_only_own_locks_have_a_token() -> None:
    """A step asked for the token of a lock that it has not got, and got some number."""

    @procedure("locks.curious", locks=[p.exclusive("mine")])
    class Curious(Zoo):
        @step(first=True)
        async def one(self, ctx: StepContext) -> Outcome:
            assert ctx.fence("mine") > 1
            ctx.fence("other")
            return p.done()

    async def test(lab: Lab) -> None:
        lab.types.add(Curious, make=lab._maker(Curious))
        async with lab.executor() as executor:
            record = await run(executor, "locks.curious")
            assert record.error is not None
            assert record.error.code == "NOT_LOCKED"
            assert "(locks: mine)" in record.error.message

    in_lab(test)
