"""The testing kit: a whole cluster in virtual time."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

import kvorum
from kvorum import testing
from kvorum.testing.durations import milliseconds
from kvorum.testing.running import as_the_one

DAY_MS = 86_400_000
bank = testing.Service("bank")


@kvorum.procedure("kit_transfer")
class Transfer:
    @kvorum.step(first=True)
    def withdraw(self, ctx: Any) -> Any:
        accounts = ctx.txn.table("bank", "accounts")
        row = accounts.get(ctx.args["from"])
        accounts.put(ctx.args["from"], str(int(row.value) - ctx.args["amount"]))
        return kvorum.next("deposit")

    @kvorum.step
    async def deposit(self, ctx: Any) -> Any:
        accounts = ctx.txn.table("bank", "accounts")
        row = await accounts.get(ctx.args["to"])
        accounts.put(ctx.args["to"], str(int(row.value) + ctx.args["amount"]))
        return kvorum.done({"moved": ctx.args["amount"]})


async def pay(ctx: Any, amount: int) -> int:
    await bank.call("charge", key=ctx.token, amount=amount)
    return amount


def book(ctx: Any, amount: int) -> None:
    ctx.txn.table("bank", "accounts").put("booked", str(amount))


@kvorum.workflow("kit_subscription")
async def subscription(flow: kvorum.Flow, args: dict[str, int]) -> int:
    for _ in range(args["months"]):
        await flow.step(pay, 7)
        await flow.sleep(30 * DAY_MS)
    await flow.step(book, 7 * args["months"])
    return 7 * args["months"]


async def accounts(cluster: testing.Cluster) -> None:
    await cluster.db.create_namespace("bank")
    await cluster.db.create_table("bank", "accounts")
    await cluster.db.table("bank", "accounts").put("ada", "100")
    await cluster.db.table("bank", "accounts").put("bob", "5")


async def balance(cluster: testing.Cluster, who: str) -> int:
    row = await cluster.db.table("bank", "accounts").get(who)
    return 0 if row is None else int(row.value)


@pytest.mark.parametrize(("nodes", "workers"), [(1, 0), (3, 0), (1, 2)])
def test_u7_a_cluster_runs_procedures_and_keeps_tables(nodes: int, workers: int) -> None:
    """Plain and async steps, at nodes and at workers."""

    async def story(cluster: testing.Cluster) -> None:
        await accounts(cluster)
        started = await cluster.submit(Transfer, {"from": "ada", "to": "bob", "amount": 30})
        info = await cluster.run_until(started.done())
        assert info.state == "SUCCESS"
        assert await started.result() == {"moved": 30}
        assert (await balance(cluster, "ada"), await balance(cluster, "bob")) == (70, 35)
        cluster.history.assert_order("withdraw", "deposit")
        cluster.history.assert_times("deposit", 1)
        assert cluster.history.steps("deposit")[0].who.startswith("worker" if workers else "node")

    testing.simulate(story, procedures=[Transfer], nodes=nodes, workers=workers)


def test_u7_months_pass_in_no_time() -> None:
    """A subscription of a year; nobody waits for it."""

    async def story(cluster: testing.Cluster) -> None:
        await accounts(cluster)
        started = await cluster.submit(subscription, {"months": 12})
        assert await started.result() == 84
        assert 360 * DAY_MS <= cluster.elapsed_ms < 361 * DAY_MS
        cluster.history.assert_times("charge", 12)
        first, second = cluster.history.effects("charge")[:2]
        assert 30 * DAY_MS <= second.at_ms - first.at_ms < 30 * DAY_MS + 10_000
        assert await balance(cluster, "booked") == 84

    testing.simulate(story, procedures=[subscription])


def test_u7_time_passes_by_as_much_as_is_said() -> None:
    """What is due later than that has not happened."""

    async def story(cluster: testing.Cluster) -> None:
        await accounts(cluster)
        started = await cluster.submit(subscription, {"months": 3})
        await cluster.advance("3 days")
        cluster.history.assert_once("charge")
        await cluster.advance("28 days")
        cluster.history.assert_times("charge", 2)
        assert not (await cluster.db.procedure(started.id)).finished

    testing.simulate(story, procedures=[subscription], nodes=1)


def test_u7_a_schedule_of_months_starts_what_it_should() -> None:
    """Each night once, however fast the nights pass."""

    async def story(cluster: testing.Cluster) -> None:
        await accounts(cluster)
        args = {"from": "ada", "to": "bob", "amount": 1}
        await cluster.db.set_schedule("nightly", "30 2 * * *", Transfer, args)
        await cluster.advance("40 days")
        assert await balance(cluster, "bob") == 45

    testing.simulate(story, procedures=[Transfer], nodes=1)


def test_u7_a_leader_and_workers_die_and_work_goes_on() -> None:
    """Nothing is done twice, and time is skipped with a node that stays down."""

    async def story(cluster: testing.Cluster) -> None:
        await accounts(cluster)
        started = await cluster.submit(subscription, {"months": 3})
        await cluster.run_until(lambda: cluster.history.effects("charge"))
        cluster.kill_worker(1)
        new = await cluster.fail_over()
        cluster.start_worker(1)
        assert new == cluster.leader()
        assert await started.result() == 21
        cluster.history.assert_times("charge", 3)
        cluster.history.assert_no_double_effect()

    testing.simulate(story, procedures=[subscription], nodes=3, workers=1)


def test_u7_steps_fail_when_they_are_told_to() -> None:
    """Before they begin: nothing of them is there."""

    async def story(cluster: testing.Cluster) -> None:
        await accounts(cluster)
        cluster.fail_step("deposit", error=KeyError("bob"))
        started = await cluster.submit(Transfer, {"from": "ada", "to": "bob", "amount": 30})
        info = await cluster.run_until(started.done())
        assert info.error is not None
        assert (info.state, info.error["type"]) == ("FAILED", "KeyError")
        cluster.history.assert_times("deposit", 0)

    testing.simulate(story, procedures=[Transfer], nodes=1)


def test_u7_a_run_is_repeated_exactly() -> None:
    """Else nobody could look at a failure again."""

    def told() -> str:
        lines: list[str] = []

        async def story(cluster: testing.Cluster) -> None:
            await accounts(cluster)
            await (await cluster.submit(subscription, {"months": 2})).result()

        testing.simulate(story, procedures=[subscription], workers=1, seed=5, show=lines.append)
        return "\n".join(lines)

    assert told() == told()


def test_u7_what_never_comes_is_told() -> None:
    """A test would hang in a loop that simulates heartbeats."""

    async def story(cluster: testing.Cluster) -> None:
        with pytest.raises(kvorum.DeadlineExceeded, match="nothing runs, nothing is due"):
            await cluster.run_until(asyncio.Event().wait())

    testing.simulate(story, nodes=1)


def test_u7_sql_is_asked_in_the_simulation() -> None:
    """Definitions, changes in a transaction, a query that DuckDB runs; after a failover, too."""

    async def story(cluster: testing.Cluster) -> None:
        await cluster.sql("CREATE TABLE city (name text PRIMARY KEY, people int)")
        await cluster.sql("BEGIN")
        await cluster.sql("INSERT INTO city VALUES ($1, $2), ('Rome', 3)", "Oslo", 1)
        await cluster.sql("COMMIT")
        await cluster.fail_over()
        rows = await cluster.sql("SELECT sum(people), count(*) FROM city")
        assert [tuple(map(int, row)) for row in rows] == [(4, 2)]

    testing.simulate(story)


def test_u7_a_second_simulation_inside_of_one_is_refused() -> None:
    """Doubles of services would answer the wrong one."""

    async def story(cluster: testing.Cluster) -> None:
        with (
            pytest.raises(kvorum.Refused, match="another simulation runs"),
            as_the_one(cluster.running),
        ):
            pass

    testing.simulate(story, nodes=1)
    with pytest.raises(kvorum.Refused, match="there is no simulation"):
        asyncio.run(bank.call("charge"))


@kvorum.procedure("kit_sleeps")
class Sleeps:
    @kvorum.step(first=True, attempt_ms=60_000)
    async def sleep(self, ctx: Any) -> Any:
        await asyncio.sleep(30)
        return kvorum.done(None)


@pytest.mark.parametrize("workers", [0, 1])
def test_u7_a_step_under_way_at_the_end_of_a_test_is_no_error(
    workers: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A test that passed printed that its procedure was parked, and thirty lines of a traceback."""

    async def story(cluster: testing.Cluster) -> None:
        await cluster.submit(Sleeps)
        await cluster.run_until(lambda: bool(cluster.history.of("step", "sleep")))

    testing.simulate(story, procedures=[Sleeps], nodes=1, workers=workers)
    gc.collect()
    assert "parked" not in caplog.text
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("3 days", 3 * DAY_MS),
        ("1 h 30 min", 5_400_000),
        ("250ms", 250),
        (1.5, 1),
        ("2 months", 60 * DAY_MS),
    ],
)
def test_u7_durations_are_written_as_people_do(written: Any, ms: int) -> None:
    """And a month has thirty days."""

    assert milliseconds(written) == ms


@pytest.mark.parametrize("written", ["", "soon", "3 moons", "-1 s", True, None, "101 years"])
def test_u7_what_is_no_duration_is_refused(written: Any) -> None:
    """Nothing is guessed."""

    with pytest.raises(kvorum.InvalidArgument, match="is no duration"):
        milliseconds(written)


def test_u7_links_disks_and_clocks_go_wrong_and_are_healed() -> None:
    """Each fault has an effect, and none of them does anything twice."""

    async def story(cluster: testing.Cluster) -> None:
        await accounts(cluster)
        leader = cluster.leader()
        cluster.cut(f"node {leader}", "worker 1")
        cluster.slow_disk(leader, "300 ms")
        cluster.network(latency_s=0.005, late=0.2, late_s=0.5)
        started = await cluster.submit(subscription, {"months": 2})
        await cluster.run_until(lambda: cluster.history.of("returned", "pay"))
        assert cluster.elapsed_ms > 300
        assert cluster.history.of("returned", "pay")[0].who == "worker 2"
        for one in range(1, 4):
            cluster.skew(one, "2 h", back=one == leader)
        cluster.isolate(leader)
        await cluster.run_until(lambda: _leads_another(cluster, leader))
        cluster.heal()
        cluster.kill_node(leader, power=False)
        await cluster.start_node(leader)
        assert await started.result() == 14
        cluster.history.assert_times("charge", 2)
        cluster.history.assert_no_double_effect()
        faults = [one.name for one in cluster.history.of("fault")]
        assert faults[0] == f"the link between node {leader} and worker 1 is cut"
        assert f"the clock of node {leader} is 2 h behind" in faults

    testing.simulate(story, procedures=[subscription], nodes=3, workers=2)


def _leads_another(cluster: testing.Cluster, than: int) -> bool:
    try:
        return cluster.leader() != than
    except kvorum.Unavailable:
        return False


def test_u7_what_there_is_not_is_refused() -> None:
    """With what there is."""

    async def story(cluster: testing.Cluster) -> None:
        for wrong, said in (
            (lambda: cluster.kill_node(2), "no node 2: there are 1 to 1"),
            (lambda: cluster.kill_worker(1), "no worker 1: there are 1 to 0"),
            (lambda: cluster.cut("node 1", "router"), "no process 'router'"),
            (lambda: cluster.network(speed=1), "network: "),
            (lambda: cluster.slow_disk(1, "slow"), "is no duration"),
        ):
            with pytest.raises(kvorum.InvalidArgument, match=said):
                wrong()
        with pytest.raises(kvorum.InvalidArgument, match="one statement"):
            await cluster.sql("SELECT 1; SELECT 2")

    testing.simulate(story, nodes=1)
    with pytest.raises(kvorum.InvalidArgument, match="1 to 9 nodes"):
        testing.simulate(story, nodes=10)


def test_u7_services_answer_refuse_and_know_their_keys() -> None:
    """What a double answers is what it is told to; a refusal is no effect; plain steps ask too."""

    def limit(amount: int) -> dict[str, int]:
        if amount > 10:
            raise ValueError("too much")
        return {"charged": amount}

    teller = testing.Service("teller", answers={"charge": limit})

    @kvorum.workflow("kit_teller")
    def tells(flow: kvorum.Flow, amount: int) -> Any:
        return flow.step(asked, amount).get()

    def asked(ctx: Any, amount: int) -> Any:
        first = teller.call_now("charge", key=ctx.token, amount=amount)
        return [first, teller.call_now("charge", key=ctx.token, amount=amount)]

    async def story(cluster: testing.Cluster) -> None:
        good = await cluster.submit(tells, 5)
        assert await good.result() == [{"charged": 5}] * 2
        bad = await cluster.run_until((await cluster.submit(tells, 50)).done())
        assert bad.error is not None
        assert bad.error["message"] == "too much"
        cluster.history.assert_once("charge")
        assert len(cluster.history.of("repeated", "charge")) == 1
        with pytest.raises(AssertionError, match="charge happened 1 times, not 0"):
            cluster.history.assert_never("charge")
        with pytest.raises(AssertionError, match="step nope has not returned"):
            cluster.history.assert_order("asked", "nope")

    testing.simulate(story, procedures=[tells], nodes=1)


@pytest.mark.slow
def test_u7_a_step_that_never_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeats of a year would be simulated, one by one."""
    monkeypatch.setattr("kvorum.testing.cluster._BUSY_S", 20.0)

    @kvorum.procedure("kit_hangs")
    class Hangs:
        @kvorum.step(first=True)
        async def hang(self, ctx: Any) -> Any:
            await asyncio.Event().wait()

    async def story(cluster: testing.Cluster) -> None:
        started = await cluster.submit(Hangs)
        for waits in (started.result(), cluster.advance("30 days")):
            with pytest.raises(kvorum.DeadlineExceeded, match="no step has begun or ended for 20"):
                await waits

    testing.simulate(story, procedures=[Hangs], nodes=1)


@kvorum.procedure("limited", queue="narrow")
class Limited:
    @kvorum.step(first=True)
    async def only(self, _ctx: Any) -> Any:
        return kvorum.done(None)


def test_u7_rates_pass_with_the_time_that_is_skipped() -> None:
    """After a day one of four had begun, at one in ten seconds."""

    async def story(cluster: testing.Cluster) -> None:
        await cluster.db.set_limit("narrow", rate="1/10s", max_concurrent=2)
        for _ in range(4):
            await cluster.submit(Limited, None)
        await cluster.advance("15 s")
        found = await cluster.db.count_procedures(type="limited", state="SUCCESS")
        assert 1 <= found["count"] <= 3
        await cluster.advance("1 minute")
        found = await cluster.db.count_procedures(type="limited", state="SUCCESS")
        assert found["count"] == 4

    testing.simulate(story, procedures=[Limited], nodes=1)
