"""ProcedureClient: procedures from the outside, over the native protocol's PROC_* methods.

A submission survives its client: the id is durable before it is answered, a nonce makes it safe to
ask again, and the result is kept until it is acknowledged. `wait` is a long poll: the node answers
when the procedure ends, and the client asks again when the node's patience is over. One that ended
with its submission (docs/decisions/0520) is returned with its id: who waits for it asks nobody.
"""

from __future__ import annotations

import builtins
from collections import OrderedDict
from typing import Any, Final

from kv.base import errors, limits
from kv.base.errors import DeadlineExceeded, InvalidArgument, KvorumError, Refused
from kv.base.ids import ProcedureId
from kv.base.node_methods import Nodes
from kv.base.ports import Timers
from procedures.engine import plain_data
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import procedure_name
from procedures.engine.typed_values import plain_of
from procedures.verbs import (
    PROC_ABORT,
    PROC_ACK,
    PROC_CONTROL,
    PROC_GET,
    PROC_LIST,
    PROC_SUBMIT,
    PROC_SUBMIT_MORE,
    WORK_LIST,
)

_MARGIN_MS: Final = 5_000  # a long poll's answer may take this much longer than its wait
ENDED: Final = frozenset({"SUCCESS", "FAILED", "ROLLED_BACK", "BYPASSED"})

_BY_NAME: Final = {cls.__name__: cls for cls in errors.BY_CLASS_CODE.values()}

ProcedureInfo = Plain
"""id (decimal string), name, state, step, steps, locks, owner, parent, created_ms, updated_ms,
age_ms, attempt; result of a success; error of a failure; retrying and parked where something is
stuck.
"""

assert limits.WAIT_MS_MAX + _MARGIN_MS <= limits.DEADLINE_MS_MAX


class Earlier(int):
    """The id for a submission that may have met an earlier one, which stands for it: `why`
    ("deduplicated", "debounced"), "" = it is its own.
    """

    why: str

    def __new__(cls, id: int, why: str) -> Earlier:
        made = super().__new__(cls, id)
        made.why = why
        return made


class ProcedureClient:
    def __init__(
        self, nodes: Nodes, timers: Timers, *, owner: str, margin_ms: int = _MARGIN_MS
    ) -> None:
        """`owner`: in whose name this client submits. `margin_ms`: how much longer than its wait
        the answer to a long poll may take.
        """
        self._margin_ms = min(margin_ms, _MARGIN_MS)
        self._nodes = nodes
        self._timers = timers
        self._owner = owner
        self._ended: OrderedDict[int, bytes] = OrderedDict()  # of submissions that ended at once

    async def submit(
        self,
        name: str | type,
        args: object = None,
        *,
        nonce: str | None = None,
        options: dict[str, object] | None = None,
    ) -> ProcedureId:
        """The id, durable. With the same nonce the same id, for as long as the procedure is kept.
        Option owner: in whose name, if a node asks for somebody.

        Raises NotFound (PROCEDURE_UNKNOWN), Refused (NONCE_REUSED), InvalidArgument, TooLarge,
        Busy; UnknownOutcome: submit again with the same nonce.
        """
        called = procedure_name(name)
        args = plain_of(args, f"arguments of {called}")
        data = plain_data.encode(args, f"arguments of {called}", limits.PROCEDURE_ARGS_BYTES_MAX)
        more = dict(options or {})
        owner = more.pop("owner", self._owner)
        if "signal" in more:
            what, most = "the signal", limits.PROCEDURE_SIGNAL_BYTES_MAX + limits.KiB
            more["signal"] = plain_data.encode(more["signal"], what, most)
        if more.get("trace"):
            return await self._traced(called, data, owner, nonce, more)
        more.pop("trace", None)
        if more:
            row = await self._nodes.call_node(PROC_SUBMIT_MORE, called, data, owner, nonce, more)
            return ProcedureId(Earlier(row[0], row[1]) if len(row) > 1 else row[0])
        row = await self._nodes.call_node(PROC_SUBMIT, called, data, owner, nonce)
        if len(row) > 1:
            self._ended[row[0]] = row[1]
            if len(self._ended) > limits.PROCEDURE_RESULTS_MAX:
                self._ended.popitem(last=False)
        return ProcedureId(row[0])

    async def _traced(
        self, name: str, data: bytes, owner: object, nonce: str | None, more: dict[str, object]
    ) -> ProcedureId:
        """With the span that it belongs to; without it, if the master is too old for that."""
        said = (name, data, owner, nonce)
        try:
            row = await self._nodes.call_node(PROC_SUBMIT_MORE, *said, more)
        except InvalidArgument as error:
            if "'trace'" not in error.message:
                raise
            more = {option: value for option, value in more.items() if option != "trace"}
            row = await self._nodes.call_node(PROC_SUBMIT_MORE, *said, more)
        return ProcedureId(row[0])

    async def get(self, id: int, *, wait_ms: int = 0) -> ProcedureInfo:
        """What it is doing; waits up to `wait_ms` for its end. Raises NotFound."""
        if type(wait_ms) is not int or not 0 <= wait_ms <= limits.WAIT_MS_MAX:
            raise InvalidArgument(f"wait_ms must be 0 to {limits.WAIT_MS_MAX}, got {wait_ms!r:.40}")
        kept = self._ended.pop(id, None)
        if kept is not None and wait_ms:  # who waits for the end; others want to know what is now
            ended: ProcedureInfo = plain_data.decode(kept)
            return ended
        row = await self._nodes.call_node(
            PROC_GET, id, wait_ms, budget_ms=wait_ms + self._margin_ms
        )
        info: ProcedureInfo = plain_data.decode(row[0])
        return info

    async def wait(self, id: int, *, timeout_ms: int | None = None) -> ProcedureInfo:
        """Its last state, once it has ended. Raises DeadlineExceeded; the procedure goes on."""
        started = self._timers.monotonic()
        while True:
            wait_ms = limits.WAIT_MS_MAX
            if timeout_ms is not None:
                left_ms = timeout_ms - int((self._timers.monotonic() - started) * 1000)
                wait_ms = max(0, min(wait_ms, left_ms))
            info = await self.get(id, wait_ms=wait_ms)
            if info["state"] in ENDED:
                return info
            if timeout_ms is not None and wait_ms == 0:
                raise DeadlineExceeded(
                    f"procedure {id} ({info['name']}) has not ended after {timeout_ms} ms: it is "
                    f"{info['state']} at step {info['step']} and goes on; wait again",
                    details={"procedure": str(id), "state": info["state"]},
                )

    async def result(self, id: int, *, timeout_ms: int | None = None, ack: bool = True) -> Any:
        """What it returned, once it has ended; raises what ended it, with its own code and message.

        `ack`: the result may be forgotten afterwards.
        """
        info = await self.wait(id, timeout_ms=timeout_ms)
        if ack:
            await self.acknowledge(id)
        if info["state"] == "SUCCESS":
            return info["result"]
        raise error_of(info)

    async def list(self, **filters: Any) -> list[ProcedureInfo]:
        """The newest first; filters: state, owner, name, limit, before (an id)."""
        wanted = {name: value for name, value in filters.items() if value is not None}
        found: list[ProcedureInfo] = []
        while True:
            page, before = await self.page(wanted)
            found += page
            if not before:
                return found
            limit = filters.get("limit") or limits.PROCEDURE_LIST_DEFAULT
            wanted |= {"limit": limit - len(found), "before": before}

    async def page(self, wanted: Plain) -> tuple[builtins.list[ProcedureInfo], int]:
        """What one answer has of a list, and `before` of the next one, 0: there is none."""
        rows, before = await self._nodes.call_node(PROC_LIST, wanted)
        found = [plain_data.decode(row) for row in rows]
        if before is True:  # as nodes of the past say it
            before = int(found[-1]["id"])
        return found, int(before)

    async def acknowledge(self, id: int) -> None:
        """The result was fetched: forget it. Raises Refused (NOT_ENDED, HAS_PARENT)."""
        self._ended.pop(id, None)
        await self._nodes.call_node(PROC_ACK, id)

    async def workers(self) -> builtins.list[ProcedureInfo]:
        """The worker processes that are here, and what they run."""
        row = await self._nodes.call_node(WORK_LIST)
        return [plain_data.decode(one) for one in row[0]]

    async def control(self, what: str, args: Plain) -> Any:
        """Signals, completions, schedules, limits (procedures/pools/control.py)."""
        data = plain_data.encode(args, what, limits.PROCEDURE_ARGS_BYTES_MAX)
        wait_ms = args.get("wait_ms")
        if type(wait_ms) is not int or not 0 < wait_ms <= limits.WAIT_MS_MAX:
            row = await self._nodes.call_node(PROC_CONTROL, what, data)
        else:
            budget_ms = wait_ms + self._margin_ms
            row = await self._nodes.call_node(PROC_CONTROL, what, data, budget_ms=budget_ms)
        return plain_data.decode(row[0])

    async def abort(self, id: int, reason: str, *, dry_run: bool = False) -> None:
        """Make it fail and roll back; `dry_run`: only raise what an abort would raise now. Raises
        Refused (NOT_ABORTABLE), NotFound.
        """
        await self._nodes.call_node(PROC_ABORT, id, reason, dry_run)


def error_of(info: ProcedureInfo) -> KvorumError:
    """The error that ended a procedure: code and message as its step raised or returned them."""
    failure = info.get("error") or {}
    state = info["state"]
    code = failure.get("code", f"PROCEDURE_{state}")
    message = failure.get("message", f"procedure {info['id']} ({info['name']}) ended {state}")
    details = dict(failure.get("details") or {}, procedure=info["id"], state=state)
    if failure.get("type"):
        details["type"] = failure["type"]
    # A code of its own (TABLE_NOT_FOUND) belongs to the class that raised it.
    cls = errors.BY_CLASS_CODE.get(code) or _BY_NAME.get(failure.get("type", ""), Refused)
    error = cls(message, code=code, details=details)
    if failure.get("file"):
        error.add_note(
            f"{failure['type']} in step {failure['step']}, {failure['file']}:{failure['line']}"
        )
        if failure.get("traceback"):
            error.add_note(f"There:\n{failure['traceback'].rstrip()}")
    return error
