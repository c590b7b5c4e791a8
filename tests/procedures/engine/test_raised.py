"""What an author is told of an exception: type, text, step, file and line, the traceback."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest

from kv.base import limits
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.client import error_of
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome
from procedures.engine.records import Failure
from procedures.engine.registry import procedure, step
from procedures.engine.service import ProcedureService
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo


def _deep(left: int) -> int:
    return _deep(left - 1) + 1


@procedure("raised")
class Raised(Zoo):
    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        ctx.state["seen"] = ctx.args
        return p.next("work")

    @step
    async def work(self, ctx: StepContext) -> Outcome:
        match ctx.args["how"]:
            case "key":
                return p.done({}["amount"])
            case "library":
                return p.done(json.loads("{"))
            case "deep":
                return p.done(_deep(10_000))
            case "long":
                raise ValueError("x" * 1_000_000)
            case "chain":
                try:
                    return p.done({}["inner"])
                except KeyError as error:
                    raise LookupError("no such account") from error
            case _:
                await_none: Any = None
                return p.done(await_none.value)


@procedure("raised_async")
class RaisedAsync(Zoo):
    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        await ctx.txn.get(b"k")
        return p.done({}["amount"])


@procedure("raised_parent")
class RaisedParent(Zoo):
    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.children([("raised", {"how": "key"})], then="last")

    @step
    async def last(self, ctx: StepContext) -> Outcome:
        return p.done()


KINDS = [Raised, RaisedAsync, RaisedParent]
_LINES = {
    "key": '{}["amount"]',
    "library": "json.loads",
    "deep": "return _deep(left - 1) + 1",
    "long": "raise ValueError",
    "chain": "from error",
    "none": "await_none.value",
}


async def _told(office: Office, executor: Executor, name: str, args: Any) -> dict[str, Any]:
    id = await executor.submit(submission(name, args))
    await executor.wait(id, 20_000)
    return await ProcedureService(executor, office.lab.clock, office.timers).get(id)


def _remote(office: Office, executor: Executor, *, remote: bool) -> None:
    executor.types.users_follow()
    for cls in () if remote else KINDS:
        executor.types.add(cls, make=office.lab._maker(cls))
    if remote:
        office.hire("w1")


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("how", list(_LINES))
def test_an_exception_is_told_with_its_place(
    how: str, remote: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """`STEP_ERROR: 'amount'` was all that an author saw."""
    caplog.set_level(logging.WARNING)

    async def test(office: Office, executor: Executor) -> None:
        _remote(office, executor, remote=remote)
        if remote:
            await office.entered("w1")
        told = await _told(office, executor, "raised", {"how": how})
        error = told["error"]
        assert (error["code"], error["step"], error["file"]) == ("STEP_ERROR", "work", __file__)
        with open(__file__) as source:  # noqa: ASYNC230
            line = source.read().splitlines()[error["line"] - 1]
        assert _LINES[how] in line
        trace = error["traceback"]
        assert len(trace) <= limits.TRACE_CHARS_MAX
        assert "runner.py" not in trace
        assert error["type"] in trace.splitlines()[-1] or how == "long"
        if how == "chain":
            assert "KeyError: 'inner'" in trace
        assert told["args"] == {"how": how}
        assert told["ctx_state"] == {"seen": {"how": how}}
        assert (
            f"{__file__}:{error['line']}" in (await executor.explain(int(told["id"])))["sentence"]
        )
        assert f"procedure {told['id']} (raised)" in caplog.text
        assert __file__ in caplog.text
        raised = error_of(told)
        where, there = raised.__notes__
        assert f"step work, {__file__}:{error['line']}" in where
        assert trace.rstrip() in there
        listed, _ = await ProcedureService(executor, office.lab.clock, office.timers).page({})
        assert b"traceback" not in b"".join(listed)

    in_office(test, KINDS)


def test_a_parent_says_where_its_child_broke() -> None:
    """The parent of a child that broke said 'amount' and nothing else."""

    async def test(office: Office, executor: Executor) -> None:
        _remote(office, executor, remote=False)
        error = (await _told(office, executor, "raised_parent", None))["error"]
        assert (error["type"], error["file"], error["step"]) == ("KeyError", __file__, "work")
        assert error["details"]["child_name"] == "raised"
        error = (await _told(office, executor, "raised_async", None))["error"]
        assert (error["type"], error["file"], error["step"]) == ("KeyError", __file__, "work")
        assert "await ctx.txn" not in error["traceback"]

    in_office(test, KINDS)


def test_large_arguments_are_told_by_their_size() -> None:
    """A description of a procedure with 1 MiB of arguments had all of them."""

    async def test(office: Office, executor: Executor) -> None:
        _remote(office, executor, remote=False)
        told = await _told(office, executor, "raised", {"how": "key", "more": "x" * 100_000})
        assert "args" not in told
        assert told["args_bytes"] > 100_000

    in_office(test, KINDS)


def test_errors_of_older_records_are_read() -> None:
    """A record of before could not be read any more."""
    old = msgspec.msgpack.encode(["STEP_ERROR", "'amount'", "KeyError", plain_data.EMPTY])
    found = msgspec.msgpack.decode(old, type=Failure)
    assert found.to_plain() == {
        "code": "STEP_ERROR",
        "message": "'amount'",
        "type": "KeyError",
        "details": {},
    }
    assert found.sentence == "'amount'"
