"""What an author sees of an exception that left a step: its type, its text, and where it was
raised.

The place is the innermost line of the file that declares the step, so that an error deep in a
library points at the author's call; the traceback begins there, too: the engine's own frames say
nothing. Only of users' code: errors of the database's own procedures are for those who asked for
them, in their words.
"""

from __future__ import annotations

import inspect
import traceback
from traceback import FrameSummary
from types import CodeType
from typing import Final

from msgspec.structs import replace

from kv.base import limits
from procedures.engine import core
from procedures.engine.records import Failure
from procedures.engine.registry import StepDef, UndoDef
from procedures.engine.retries import Retry

_OWN: Final = frozenset({"kvorum", "procedures", "pyspark_kvorum", "sqlproxy"})
_LINE_CHARS_MAX: Final = 500


class StepFailed(Exception):
    """A call of a workflow failed for good. `code`, `message` and `type` (of the exception) are the
    same whenever the workflow runs again.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure
        self.code, self.message, self.type = failure.code, failure.message, failure.type


class Retrying(Exception):
    """A call of a workflow failed, and its policy has it run again."""

    def __init__(self, failure: Failure, policy: Retry) -> None:
        super().__init__(failure.message)
        self.failure, self.policy = failure, policy


def step_error(error: BaseException, method: StepDef | UndoDef, step: str) -> Failure:
    """An exception of the application's code."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001  its __str__ is the application's, too
        text = f"its text cannot be had: {type(broken).__name__}"
    failure = core.failure("STEP_ERROR", text, type=type(error).__name__)
    return located(failure, error, method, step)


def located(
    failure: Failure, error: BaseException, method: StepDef | UndoDef, step: str
) -> Failure:
    """The same with the place that raised it, if that is users' code."""
    mine_fn = inspect.unwrap(method.method)
    if mine_fn.__module__.partition(".")[0] in _OWN:
        return failure
    trace = traceback.TracebackException.from_exception(error, limit=-limits.TRACE_FRAMES_MAX)
    code = getattr(mine_fn, "__code__", None)
    mine = _mine(trace, code)
    cause = trace.__cause__
    if not mine and cause is not None:  # what cannot leave a step is raised anew outside of it
        mine = _mine(cause, code)
    if not trace.stack:
        return failure
    place = mine[-1] if mine else trace.stack[-1]
    return replace(
        failure,
        step=core.storable(step)[: limits.NAME_CHARS_MAX],
        file=core.storable(place.filename)[-limits.NONCE_CHARS_MAX :],
        line=place.lineno or 0,
        trace=_bounded(trace),
    )


def _mine(trace: traceback.TracebackException, code: CodeType | None) -> list[FrameSummary]:
    """Its frames in the file of the step; what is before them is left out of the traceback."""
    mine = [f for f in trace.stack if code is not None and f.filename == code.co_filename]
    if mine:
        del trace.stack[: trace.stack.index(mine[0])]
    return mine


def _bounded(trace: traceback.TracebackException) -> str:
    """Its text: the beginning, and the end, which says most."""
    lines = [
        line if len(line) <= _LINE_CHARS_MAX else line[:_LINE_CHARS_MAX] + " …\n"
        for line in trace.format()
    ]
    text = core.storable("".join(lines))
    most = limits.TRACE_CHARS_MAX
    if len(text) <= most:
        return text
    return f"{text[: most // 4]}\n  …\n{text[-(most - most // 4 - 5) :]}"
