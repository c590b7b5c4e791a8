"""`explore`: every crash that a procedure can meet; what it finds and covers, how it repeats."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import kvorum
from kvorum import testing
from kvorum.testing.exploring import Fault, _judge, _replayed

bank = testing.Service("bank")
careless_bank = testing.Service("bank", idempotent=False)


@kvorum.procedure("kit_pay")
class Pay:
    """Three steps, with an effect outside in the second one, which has the step's token."""

    bank = bank

    @kvorum.step(first=True, undo="release")
    async def reserve(self, ctx: Any) -> Any:
        accounts = ctx.txn.table("bank", "accounts")
        row = await accounts.get("ada")
        accounts.put("ada", str(int(row.value) - ctx.args))
        return kvorum.next("charge")

    @kvorum.step(retry=kvorum.retry(attempts=5, first_ms=100))
    async def charge(self, ctx: Any) -> Any:
        await self.bank.call("charge", key=ctx.token, amount=ctx.args)
        return kvorum.next("book")

    @kvorum.step
    def book(self, ctx: Any) -> Any:
        accounts = ctx.txn.table("bank", "accounts")
        row = accounts.get("bob")
        accounts.put("bob", str(int(row.value) + ctx.args))
        return kvorum.done({"paid": ctx.args})

    @kvorum.undo
    async def release(self, ctx: Any) -> None:
        accounts = ctx.txn.table("bank", "accounts")
        row = await accounts.get("ada")
        accounts.put("ada", str(int(row.value) + ctx.args))


@kvorum.procedure("kit_pay_twice")
class PayTwice(Pay):
    """The same without the token: a step that runs twice pays twice."""

    bank = careless_bank

    @kvorum.step(retry=kvorum.retry(attempts=5, first_ms=100))
    async def charge(self, ctx: Any) -> Any:
        await self.bank.call("charge", amount=ctx.args)
        return kvorum.next("book")


async def accounts(db: kvorum.AsyncDatabase) -> None:
    await db.create_namespace("bank")
    await db.create_table("bank", "accounts")
    await db.table("bank", "accounts").put("ada", "100")
    await db.table("bank", "accounts").put("bob", "0")


async def paid_once(end: testing.Ended) -> None:
    table = end.db.table("bank", "accounts")
    ada, bob = (int(row.value) for row in await table.multi_get(["ada", "bob"]) if row is not None)
    assert ada + bob == 100, f"money is lost or made: {ada} + {bob}"
    end.history.assert_no_double_effect()
    if end.state == "SUCCESS":
        end.history.assert_once("charge")


def test_u7_a_planted_double_payment_is_found_and_repeated() -> None:
    """The one that users write first. What is told is enough to look at it again."""
    with pytest.raises(testing.Violation, match="bank has done charge 2 times") as found:
        testing.explore(PayTwice, 30, paid_once, setup=accounts)
    assert len(found.value.faults) == 1
    assert "begins charge" in found.value.story
    with pytest.raises(testing.Violation) as again:
        testing.explore(PayTwice, 30, paid_once, setup=accounts, replay=found.value.replay)
    assert again.value.story == found.value.story


@pytest.mark.slow
def test_u7_the_mended_payment_passes_every_crash() -> None:
    """A checker that cries over right code is of no use; all kinds of moments are met."""

    report = testing.explore(Pay, 30, paid_once, setup=accounts)
    assert report.complete
    assert report.runs > 50
    assert {kind.partition(":")[0] for kind in report.moments} == {
        *("persists", "persisted", "begins", "asks", "hears", "sends", "gets")
    }


def test_u7_what_was_left_out_is_told() -> None:
    """An exploration that was cut short must not look like a whole one."""

    report = testing.explore(Pay, 30, paid_once, setup=accounts, runs_max=3)
    assert (report.runs, report.complete) == (3, False)
    assert f"{report.left} were left out" in str(report)


def test_u7_pairs_of_faults_are_tried_when_asked_for() -> None:
    """The second fault comes after the first one, in the same run."""

    report = testing.explore(
        Pay,
        30,
        paid_once,
        setup=accounts,
        depth=2,
        runs_max=12,
        only=lambda fault: fault.moment == "begins charge" and fault.act == "dies",
    )
    assert 2 <= report.runs <= 12


@pytest.mark.slow
def test_u7_leaders_fail_over_in_an_exploration_of_three_nodes() -> None:
    """Without workers: the leader itself dies at each step."""

    report = testing.explore(
        Pay,
        30,
        paid_once,
        setup=accounts,
        nodes=3,
        workers=0,
        only=lambda fault: fault.moment.startswith(("begins", "hears")),
    )
    assert report.complete
    assert report.runs >= 4


@kvorum.workflow("kit_pay_flow", retry=kvorum.retry(attempts=5, first_ms=100))
async def pay_flow(flow: kvorum.Flow, amount: int) -> int:
    await flow.step(take, amount)
    await flow.sleep(86_400_000)
    await flow.step(charged, amount)
    return amount


async def take(ctx: Any, amount: int) -> None:
    ctx.txn.table("bank", "accounts").put("ada", str(100 - amount))


async def charged(ctx: Any, amount: int) -> None:
    await bank.call("charge", key=ctx.token, amount=amount)
    ctx.txn.table("bank", "accounts").put("bob", str(amount))


@pytest.mark.slow
def test_u7_workflows_are_explored_too() -> None:
    """Steps of a function are moments, too, also behind a day of sleep."""

    report = testing.explore(
        pay_flow,
        30,
        paid_once,
        setup=accounts,
        only=lambda fault: not fault.moment.startswith(("sends", "gets")),
    )
    assert report.complete
    assert any(kind.startswith("asks") for kind in report.moments)


@pytest.mark.slow
def test_u7_a_procedure_that_does_not_end_is_a_violation() -> None:
    """Also without any fault."""

    @kvorum.procedure("kit_waits")
    class Waits:
        @kvorum.step(first=True)
        async def wait(self, ctx: Any) -> Any:
            return kvorum.suspend(event="never", then="wait")

    with pytest.raises(testing.Violation, match="nothing runs, nothing is due") as found:
        testing.explore(Waits, None)
    assert found.value.faults == ()


def test_u7_a_replay_that_is_none_is_refused() -> None:
    """It says what is wrong with it."""

    with pytest.raises(kvorum.InvalidArgument, match="is no replay"):
        testing.explore(Pay, 30, replay="node 1/sends")
    with pytest.raises(kvorum.InvalidArgument, match="is no fault"):
        testing.explore(Pay, 30, replay="1: node 1/sends")


@pytest.mark.parametrize("name", ["POST /charge", "a + b", "50%2F + x/1/dies", "two\nlines"])
def test_u7_a_fault_is_read_as_it_was_written(name: str) -> None:
    """An effect called like the text of a fault made a replay that could not be read."""
    faults = tuple(
        Fault("worker 1", f"asks bank {name}", count, act)
        for count, act in ((1, "dies"), (2, "answer lost"))
    )
    found = testing.Violation("pay", "wrong", 7, faults, "")
    assert _replayed(found.replay) == (7, faults)
    assert f"replay={json.dumps(found.replay)}" in str(found)


@pytest.mark.parametrize(
    ("fault", "may"),
    [
        (Fault("worker 1", "asks bank", 1, "dies"), False),
        (Fault("worker 1", "asks bank", 1, "answer lost"), True),
        (Fault("worker 1", "asks bank", 1, "late"), True),
        (Fault("worker 1", "begins asks", 1, "dies"), False),
        (Fault("node 1", "sends", 1, "lost"), False),
        (Fault("node 1", "sends", 1, "late"), False),
    ],
)
def test_u7_only_a_service_may_change_the_result(fault: Fault, may: bool) -> None:
    """A crash in front of a question to a service was taken for the service's doing: what it
    changed was not noticed.
    """
    given: Any = SimpleNamespace(name="pay")
    calm: Any = SimpleNamespace(outcome=("SUCCESS", 1))
    run: Any = SimpleNamespace(
        wrong="", seed=1, faults=(fault,), story="", outcome=("FAILED", None)
    )
    if may:
        _judge(given, run, calm)
        return
    with pytest.raises(testing.Violation, match="without faults as"):
        _judge(given, run, calm)
