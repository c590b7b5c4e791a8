"""Retry policies of steps: how often and when a step runs again, and that this is kept. In virtual
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kv.base.errors import InvalidArgument, Refused
from kvorum.testing.simulation import loop as simloop
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome
from procedures.engine.registry import procedure, step
from procedures.engine.retries import Retry, retry
from procedures.engine.view import info
from tests.procedures.lab import run
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import submission
from tests.procedures.test_step_deadlines import in_office
from tests.procedures.zoo import Zoo, bump

REMOTE = pytest.mark.parametrize("remote", [False, True], ids=["master", "worker"])
EXACT = retry(
    attempts=4, first_ms=1_000, factor=3, most_ms=5_000, jitter=0, never=["DIRE", KeyError]
)


class SpecialKeyError(KeyError):
    """One of those that a policy names."""


ERRORS: dict[str, Callable[[], Exception]] = {
    "value": lambda: ValueError("no"),
    "key": lambda: SpecialKeyError("no"),
    "dire": lambda: Refused("no", code="DIRE"),
    "refused": lambda: Refused("no", code="MILD"),
}


@procedure("retried", retry=EXACT, timeout_ms=3_600_000)
class Retried(Zoo):
    """Fails as `how` says, `times` times."""

    @step(first=True, attempt_ms=500)
    async def work(self, ctx: StepContext) -> Outcome:
        self.lab.count(f"at {self.lab.clock.now_ms() - ctx.record.created_ms}")
        await bump(ctx, "work")
        assert (ctx.failure is None) == (ctx.attempt == 1), "it does not hear why it runs again"
        if self.lab.count("runs") <= ctx.args.get("times", 2):
            how = ctx.args["how"]
            if how == "hangs":
                await asyncio.sleep(60)
            if how == "fail":
                return p.fail("NO", "its own word")
            if how == "condition":
                ctx.txn.table("test", "rows").put("k", "v", if_version=12_345)
                return p.done()
            raise ERRORS[how]()
        return p.done(ctx.attempt)


@procedure("retried.final", retry=retry(attempts=2, first_ms=10))
class Final(Zoo):
    @step(first=True, point_of_no_return=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.next("work")

    @step
    async def work(self, ctx: StepContext) -> Outcome:
        if ctx.attempt < 6:
            raise ValueError("not yet")
        return p.done(ctx.attempt)


TYPES = [Retried, Final]


@REMOTE
@pytest.mark.parametrize(
    ("how", "times", "state", "code", "runs"),
    [
        ("value", 2, "SUCCESS", "", 3),
        ("value", 9, "FAILED", "STEP_ERROR", 4),
        ("key", 9, "FAILED", "STEP_ERROR", 1),
        ("dire", 9, "FAILED", "DIRE", 1),
        ("refused", 9, "FAILED", "MILD", 4),
        ("hangs", 2, "SUCCESS", "", 3),
        ("hangs", 9, "FAILED", "ATTEMPT_TIMEOUT", 4),
        ("fail", 9, "FAILED", "NO", 1),
        ("condition", 2, "SUCCESS", "", 3),
    ],
)
def test_j22_a_step_runs_again_by_its_policy(
    how: str, times: int, state: str, code: str, runs: int, remote: bool
) -> None:
    """A step was tried another number of times than declared, or after an error that ends it."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "retried", {"how": how, "times": times})
        assert record.state.name == state, record.error
        assert ("" if record.error is None else record.error.code) == code
        assert office.lab.calls["runs"] == runs
        assert office.lab.number("work") == (state == "SUCCESS"), "a failed attempt left something"
        if state == "SUCCESS":
            assert plain_data.decode(record.result) == runs
        assert record.trying is None
        failed = [entry.outcome for entry in record.history if entry.outcome.startswith("retry:")]
        assert len(failed) == runs - 1
        assert [e.attempt for e in record.history] == list(range(1, runs + 1))

    in_office(test, remote, TYPES)


def test_j22_pauses_grow_up_to_their_bound() -> None:
    """Pauses were others than declared."""

    async def test(office: Office, executor: Executor) -> None:
        await run(executor, "retried", {"how": "value", "times": 9})
        at = sorted(int(key[3:]) for key in office.lab.calls if key.startswith("at "))
        gaps = [later - earlier for earlier, later in pairwise(at)]
        assert gaps == [pytest.approx(ms, abs=20) for ms in (1_000, 3_000, 5_000)]

    in_office(test, False, TYPES)


@REMOTE
def test_j22_past_the_point_of_no_return_a_policy_only_paces(remote: bool) -> None:
    """A step that must not fail any more failed after its last attempt."""

    async def test(office: Office, executor: Executor) -> None:
        record = await run(executor, "retried.final")
        assert record.state.name == "SUCCESS"
        assert plain_data.decode(record.result) == 6

    in_office(test, remote, TYPES)


def test_j22_a_restart_keeps_the_count_and_the_time() -> None:
    """Behind a restart a step had all of its attempts anew, or did not wait any more."""

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, TYPES)
        began = loop.time()
        executor = await office.open(office.executor(office.lab.types))
        id = await executor.submit(submission("retried", {"how": "value", "times": 9}))
        for runs in (1, 2, 3, 4):
            await _until_failed(office, executor, id, runs)
            office.door.clear()
            await executor.__aexit__(RuntimeError, RuntimeError(), None)
            executor = await office.open(office.executor(office.lab.types))
        record = await executor.wait(id, 30_000)
        assert record.error is not None
        assert record.error.code == "STEP_ERROR"
        assert office.lab.calls["runs"] == 4
        assert loop.time() - began == pytest.approx(9.0, abs=0.5)
        await office.close(executor)

    simloop.run(main, 0)


async def _until_failed(office: Office, executor: Executor, id: int, runs: int) -> None:
    await office.until(lambda: office.lab.calls.get("runs", 0) == runs)
    await office.until(lambda: _failed(executor, id) in (runs, None))


def _failed(executor: Executor, id: int) -> int | None:
    live = executor.live_one(id)
    return None if live is None or live.record is None else live.record.failed


@REMOTE
def test_j22_it_is_shown(remote: bool) -> None:
    """Nobody sees why it waits, how often it failed, and when it goes on."""

    async def test(office: Office, executor: Executor) -> None:
        id = await executor.submit(submission("retried", {"how": "value", "times": 9}))
        await office.until(lambda: _failed(executor, id) == 2)
        record = await executor.find(id)
        shown = info(record, record.history, office.lab.clock.now_ms())
        assert record.trying is not None
        assert shown["retry"] == {"failed": 2, "of": 4, "due_ms": record.trying.due_ms}
        assert shown["retrying"]["code"] == "STEP_ERROR"
        explained = await executor.explain(id)
        said = str(explained["sentence"])
        assert "tries its step work again in" in said
        assert "after 2 of 4 attempts, the last with STEP_ERROR" in said
        await executor.abort(id, "enough")
        ended = await executor.wait(id, 1_000)
        assert ended.error is not None
        assert ended.error.code == "ABORTED", "what pauses cannot be aborted"

    in_office(test, remote, TYPES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": -1},
        {"attempts": 1.5},
        {"first_ms": 10, "most_ms": 5},
        {"factor": 0.5},
        {"jitter": 2},
        {"never": [7]},
        {"never": [int]},
    ],
    ids=str,
)
def test_j22_a_policy_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """It would be found out when a step fails."""
    with pytest.raises(InvalidArgument) as refused:
        retry(**wrong)
    assert refused.value.code == "PROCEDURE_DECLARATION"
    with pytest.raises(InvalidArgument):
        step(retry=3)  # type: ignore[arg-type,call-overload]


def test_j22_pauses_are_bounded_and_spread() -> None:
    """A pause beyond its bound, or none that differs: all would come back together."""
    policy: Retry = retry(attempts=0, first_ms=100, factor=10, most_ms=5_000, jitter=0.5)
    for failed in (1, 2, 3, 400, 1_000_000):
        whole = min(5_000, 100 * 10 ** min(failed - 1, 9))
        assert policy.pause_ms(failed, 0) == whole
        assert policy.pause_ms(failed, 0.999) == pytest.approx(whole / 2, rel=0.01)
