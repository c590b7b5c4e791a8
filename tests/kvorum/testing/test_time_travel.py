"""Procedures of the past, and steps that are executed once more (U5), in a simulated cluster."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

import kvorum
from kvorum import testing


@kvorum.procedure("past_transfer")
class Transfer:
    @kvorum.step(first=True)
    async def withdraw(self, ctx: Any) -> Any:
        accounts = ctx.txn.table("bank", "accounts")
        row = await accounts.get("ada")
        accounts.put("ada", str(int(row.value) - ctx.args["amount"]))
        ctx.state["left"] = int(row.value) - ctx.args["amount"]
        return ctx.until_signal("go", then="deposit")

    @kvorum.step
    def deposit(self, ctx: Any) -> Any:
        signal = ctx.receive("go")
        accounts = ctx.txn.table("bank", "accounts")
        row = accounts.get("bob")
        accounts.put("bob", str(int(row.value) + ctx.args["amount"]))
        ctx.txn.table("bank", "log").put("last", signal.payload)
        return kvorum.done({"moved": ctx.args["amount"]})


def other(change: Any) -> Any:
    """The same procedure, with another `deposit`: as in the next version of its file."""

    class Changed(Transfer):
        @kvorum.step
        def deposit(self, ctx: Any) -> Any:
            return change(self, ctx)

    Changed.__qualname__ = Transfer.__qualname__
    return kvorum.procedure("past_transfer")(Changed)


async def moved(cluster: testing.Cluster) -> int:
    db = cluster.db
    await db.create_namespace("bank")
    await db.create_table("bank", "accounts")
    await db.create_table("bank", "log")
    await db.table("bank", "accounts").put("ada", "100")
    await db.table("bank", "accounts").put("bob", "5")
    started = await cluster.submit(Transfer, {"amount": 30})
    await cluster.run_until(lambda: cluster.history.of("returned", "withdraw"))
    await cluster.advance("1 s")
    await db.signal(started.id, "go", "by ada")
    assert await started.result() == {"moved": 30}
    return started.id


def in_cluster(story: Any, **how: Any) -> None:
    testing.simulate(story, procedures=[Transfer], nodes=1, **how)


def test_u5_a_procedure_is_shown_as_it_was() -> None:
    """Also one that is forgotten by now, together with the tables of that moment."""

    async def story(cluster: testing.Cluster) -> None:
        db, id = cluster.db, await moved(cluster)
        after = await db.timestamp()
        info = await db.procedure(id, at=after)
        assert (info.state, info.result) == ("SUCCESS", {"moved": 30})
        withdrawn = (await db.table("bank", "accounts").get("ada")).version
        then = await db.procedure(id, at=withdrawn)
        assert (then.state, then.step) == ("WAITING", "deposit")
        assert then.extra["ctx_state"] == {"left": 70}
        assert [one["step"] for one in then.steps or ()] == ["withdraw"]
        assert (await db.table("bank", "accounts").get("bob", at=withdrawn)).value == b"5"
        before = await db.procedure(id, at=withdrawn - 1)
        assert before.step == "withdraw"
        await db.acknowledge(id)
        await cluster.advance("10 s")
        with pytest.raises(kvorum.NotFound):
            await db.procedure(id)
        assert (await db.procedure(id, at=str(after))).state == "SUCCESS"
        with pytest.raises(kvorum.NotFound, match="was not there"):
            await db.procedure(id, at=await db.timestamp())

    in_cluster(story, retention="1 h")


def test_u5_what_is_not_kept_any_more_says_the_limit_and_how_to_raise_it() -> None:
    """For the record and for a replay."""

    async def story(cluster: testing.Cluster) -> None:
        id = await moved(cluster)
        then = await cluster.db.timestamp()
        await cluster.advance("2 min")
        await cluster.run_until(lambda: _collected(cluster, then))
        with pytest.raises(kvorum.SnapshotTooOld, match="raise gc_retention_ms") as told:
            await cluster.db.procedure(id, at=then)
        assert told.value.details["retention_ms"] == 10_000
        with pytest.raises(kvorum.SnapshotTooOld):
            await cluster.db.replay_procedure(id, Transfer)

    in_cluster(story, retention="10 s")


def _collected(cluster: testing.Cluster, then: int) -> bool:
    node = cluster.machines.nodes[1].node
    return node is not None and node._safepoint() > then


def test_u5_the_same_code_would_do_the_same() -> None:
    """Reads of its snapshot, the signal that it took, its state: all as it was."""

    async def story(cluster: testing.Cluster) -> None:
        db, id = cluster.db, await moved(cluster)
        await db.table("bank", "accounts").put("bob", "1000")
        for step in ("deposit", "withdraw"):
            replay = await db.replay_procedure(id, Transfer, step=step)
            assert replay.same, replay.to_plain()
            assert replay.writes == replay.wrote
        assert replay.writes == {("bank/accounts", b"ada"): b"70"}
        assert (await db.table("bank", "accounts").get("bob")).value == b"1000"

    in_cluster(story, retention="1 h")


def test_u5_other_code_is_compared_row_by_row_and_writes_nothing() -> None:
    """Rows that are written otherwise, in addition, or not any more."""

    def fee(_self: Any, ctx: Any) -> Any:
        accounts = ctx.txn.table("bank", "accounts")
        row = accounts.get("bob")
        accounts.put("bob", str(int(row.value) + ctx.args["amount"] - 1))
        accounts.put("fees", "1")
        return kvorum.done({"moved": ctx.args["amount"] - 1})

    async def story(cluster: testing.Cluster) -> None:
        db, id = cluster.db, await moved(cluster)
        replay = await db.replay_procedure(id, other(fee), step="deposit")
        assert not replay.same
        assert [str(one) for one in replay.differences] == [
            "bank/accounts bob: 35 → 34",
            "bank/accounts fees: not written → 1",
            "bank/log last: by ada → not written",
        ]
        assert (replay.before, replay.after) == ("done", "done")
        assert replay.new_state["result"] == {"moved": 29}
        assert await db.table("bank", "accounts").get("fees") is None

    in_cluster(story, retention="1 h")


def test_u5_effects_outside_are_refused_and_told() -> None:
    """A replay that pays once more would be worse than none."""

    def calls(_self: Any, ctx: Any) -> Any:
        with socket.socket() as outside:
            outside.connect(("127.0.0.1", 1))
        return kvorum.done(None)

    async def story(cluster: testing.Cluster) -> None:
        id = await moved(cluster)
        replay = await cluster.db.replay_procedure(id, other(calls), step="deposit")
        assert replay.after == "fails: REPLAY_EFFECT"
        assert len(replay.effects) == 1
        assert replay.effects[0].startswith("socket.connect")

    in_cluster(story, retention="1 h")


def test_u5_a_step_that_never_ran_and_code_of_another_are_refused() -> None:
    """Instead of a comparison with nothing."""

    @kvorum.procedure("past_other")
    class Other:
        @kvorum.step(first=True)
        async def only(self, ctx: Any) -> Any:
            return kvorum.done(None)

    async def story(cluster: testing.Cluster) -> None:
        id = await moved(cluster)
        with pytest.raises(kvorum.NotFound, match="has not had so many executions of step nope"):
            await cluster.db.replay_procedure(id, Transfer, step="nope")
        with pytest.raises(kvorum.InvalidArgument, match="is a past_transfer, the code is of"):
            await cluster.db.replay_procedure(id, Other)
        with pytest.raises(kvorum.NotFound):
            await cluster.db.replay_procedure(id + 1_000, Transfer)

    in_cluster(story, retention="1 h")


def test_u5_records_and_tables_are_read_together_as_of_one_moment() -> None:
    """One statement, one moment; also by way of DuckDB, and for the whole session."""

    async def story(cluster: testing.Cluster) -> None:
        await cluster.sql("CREATE TABLE seen (id int PRIMARY KEY, name text)")
        await cluster.sql("INSERT INTO seen VALUES (1, 'before')")
        id = await moved(cluster)
        await cluster.sql("UPDATE seen SET name = 'after'")
        table = cluster.db.table("bank", "accounts")
        withdrawn = (await table.get("ada")).version
        asked = (
            "SELECT p.id, p.state, p.step, s.name FROM kvorum.procedures p, seen s "
            "{} WHERE p.name = 'past_transfer'"
        )
        now = await cluster.sql(asked.format(""))
        assert [tuple(row) for row in now] == [(id, "SUCCESS", "deposit", "after")]
        then = await cluster.sql(asked.format(f"AS OF SYSTEM TIME '{withdrawn}'"))
        assert [tuple(row) for row in then] == [(id, "WAITING", "deposit", "before")]
        before = f"AS OF SYSTEM TIME '{withdrawn - 1}'"
        alone = f"SELECT state, step FROM kvorum.procedures {before} WHERE id = $1"
        assert [tuple(row) for row in await cluster.sql(alone, id)] == [("RUNNABLE", "withdraw")]
        await cluster.sql(f"SET kvorum.as_of = '{withdrawn}'")
        then = await cluster.sql(asked.format(""))
        assert [tuple(row) for row in then] == [(id, "WAITING", "deposit", "before")]

    in_cluster(story, retention="1 h")


@kvorum.procedure("past_talks", attributes={"stage": str})
class Talks:
    """It says whatever a step can say, and is told something while it runs."""

    @kvorum.step(first=True, heartbeat_ms=60_000)
    async def talk(self, ctx: Any) -> Any:
        signal = await ctx.receive("go")
        ctx.state["got"] = None if signal is None else signal.payload
        ctx.state["beat"] = ctx.last_heartbeat
        if ctx.last_heartbeat is None:
            ctx.heartbeat({"rows": 1})
            raise kvorum.Unavailable("not yet")
        ctx.heartbeat({"rows": 2})
        ctx.attributes(stage="talked")
        await asyncio.sleep(3)
        for _ in range(40):
            ctx.emit("line", "x" * 15_000)
        return kvorum.next("more")

    @kvorum.step
    async def more(self, ctx: Any) -> Any:
        for _ in range(40):
            ctx.emit("line", "x" * 15_000)
        return kvorum.next("end")

    @kvorum.step
    async def end(self, ctx: Any) -> Any:
        return kvorum.done(ctx.state)


def test_u5_what_a_step_says_and_what_it_was_told_is_as_it_was() -> None:
    """Steps with heartbeats or attributes failed, a signal of later was there, and events counted
    as signals.
    """

    async def story(cluster: testing.Cluster) -> None:
        started = await cluster.submit(Talks, None)
        await asyncio.sleep(2)
        await cluster.db.signal(started.id, "go", "late")
        assert await started.result() == {"got": None, "beat": {"rows": 1}}
        for step in ("talk", "more", "end"):
            replay = await cluster.db.replay_procedure(started.id, Talks, step=step)
            assert replay.same, replay.to_plain()

    testing.simulate(story, procedures=[Talks], nodes=1, retention="1 h")


@kvorum.workflow("past_tries", attributes={"stage": str})
async def tries(flow: Any) -> str:
    async def fails(_ctx: Any) -> None:
        raise ValueError("no")

    flow.attributes(stage="tried")
    try:
        await flow.step(fails)
    except kvorum.StepFailed:
        return "bad"
    return "good"


def test_u27_what_a_workflow_is_found_by_outlives_a_step_that_fails() -> None:
    """With nothing of the step it was dropped, too."""

    async def story(cluster: testing.Cluster) -> None:
        started = await cluster.submit(tries, None)
        assert await started.result() == "bad"
        found = await cluster.db.count_procedures(where="stage=tried")
        assert found["count"] == 1

    testing.simulate(story, procedures=[tries], nodes=1)
