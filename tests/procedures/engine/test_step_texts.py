"""Texts of errors that steps raise and return: any of them ends the step, not the turn."""

from __future__ import annotations

import pytest

from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.procedure import Outcome, State
from procedures.engine.registry import procedure, step
from tests.procedures.pools.pool_lab import Office
from tests.procedures.pools.test_pools import in_office, submission
from tests.procedures.zoo import Zoo

BAD = "\ud800"


class _Broken(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@procedure("texts")
class Texts(Zoo):
    @step(first=True)
    async def work(self, ctx: StepContext) -> Outcome:
        match ctx.args:
            case "raise":
                raise ValueError(f"{BAD} bad")
            case "signal":
                ctx.progress(0.5, f"half{BAD}")
                ctx.signal(BAD)
                return p.done()
            case "fail":
                return p.fail(f"C{BAD}", f"{BAD} bad", details={"a": BAD, BAD: 1})
            case _:
                raise _Broken


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize(
    ("how", "code", "message", "type_"),
    [
        ("raise", "STEP_ERROR", "? bad", "ValueError"),
        (
            "signal",
            "INVALID_ARGUMENT",
            f"event is not valid Unicode text: {BAD!r}",
            "InvalidArgument",
        ),
        ("fail", "C?", "? bad", ""),
        ("broken", "STEP_ERROR", "its text cannot be had: ValueError", "_Broken"),
    ],
)
def test_j13_an_error_of_any_text_fails_the_step(
    how: str, code: str, message: str, type_: str, remote: bool
) -> None:
    """An error's text that UTF-8 cannot hold fails its step as every other; nothing is parked."""

    async def test(office: Office, executor: Executor) -> None:
        if remote:
            office.hire("w1")
            await office.entered("w1")
        else:
            executor.types.add(Texts, make=office.lab._maker(Texts))
        id = await executor.submit(submission("texts", how))
        ended = await executor.wait(id, 5_000)
        assert ended.state is State.FAILED
        assert ended.error is not None
        assert (ended.error.code, ended.error.message) == (code, message)
        assert ended.error.type == type_

    in_office(test, [Texts])
