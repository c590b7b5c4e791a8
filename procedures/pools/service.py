"""The node methods of workers, and of what users do with pools.

    WORK_ENTER  worker, entry                                   → epoch, [id to drop, …], types
    WORK_POLL   worker, epoch, seq, seen, again, wait_ms, said  → orders
    WORK_IDS    worker, epoch, count                            → first
    WORK_LEAVE  worker, epoch                                   → true
    WORK_LIST                                                   → [worker as bytes, …]

They are the master's: elsewhere they are answered NOT_LEADER with its address
(kvorum/master/roles.py).
"""

from __future__ import annotations

from typing import Final

from kv.base.errors import InvalidArgument
from kv.base.node_methods import Caller, Methods
from kv.base.rights import Kind
from kv.base.wire_row import WireRow
from procedures.engine import needs, plain_data
from procedures.engine.executor import Executor
from procedures.engine.service import seen_by
from procedures.engine.submission import Options, Submission
from procedures.pools import messages, windows
from procedures.pools.control import SURGERY, Control
from procedures.pools.crew import Crew
from procedures.verbs import (
    PROC_CONTROL,
    PROC_LISTS,
    PROC_SUBMIT_MORE,
    WORK_ENTER,
    WORK_IDS,
    WORK_LEAVE,
    WORK_LIST,
    WORK_POLL,
)

METHODS: Final = (
    WORK_ENTER,
    WORK_POLL,
    WORK_IDS,
    WORK_LEAVE,
    WORK_LIST,
    PROC_CONTROL,
    PROC_SUBMIT_MORE,
)

_NOTHING: Final[dict[str, object]] = {
    "items": [],
    **dict.fromkeys(("before", "looked", "count"), 0),
    "token": "",
    "more": False,
}
"""What any list answers who may see no type of procedures."""
_OPTIONS: Final = frozenset(
    {
        *("queue", "priority", "delay_ms", "at_ms", "pool", "signal", "trace", "key", "needs"),
        "attributes",
        *windows.WORDS,
    }
)


def register(executor: Executor, dispatcher: Methods) -> None:
    """Serve the workers of this executor, and what users do with it, from now on."""
    assert executor.crew is not None
    _serve_workers(executor.crew, dispatcher)
    _serve_users(executor, Control(executor), dispatcher)


def _serve_workers(crew: Crew, dispatcher: Methods) -> None:
    async def enter(caller: Caller, args: WireRow) -> list[object]:
        name, data = args
        return list(await crew.enter(name, messages.entry(data), caller.user))

    async def poll(caller: Caller, args: WireRow) -> list[object]:
        name, epoch, seq, seen, again, wait_ms, said = args
        return [await crew.poll(name, epoch, seq, seen, again, wait_ms, said, caller.user)]

    async def ids(caller: Caller, args: WireRow) -> WireRow:
        name, epoch, count = args
        return [await crew.ids(name, epoch, count, caller.user)]

    async def leave(caller: Caller, args: WireRow) -> WireRow:
        name, epoch = args
        await crew.leave(name, epoch, caller.user)
        return [True]

    def listing(_caller: object, _args: list[object]) -> list[object]:
        return [[plain_data.pack(row) for row in crew.workers()]]

    dispatcher.register(WORK_ENTER, enter)
    dispatcher.register(WORK_POLL, poll)
    dispatcher.register(WORK_IDS, ids)
    dispatcher.register(WORK_LEAVE, leave)
    dispatcher.register(WORK_LIST, listing)


def _submission(
    caller: Caller, args: WireRow
) -> tuple[Submission, dict[str, object] | None, windows.Window | None]:
    """And the signal that it is to be stored with, if any, or which earlier one may stand for it.
    Raises InvalidArgument.
    """
    name, packed, owner, nonce, given = args
    unknown = sorted(set(given) - _OPTIONS)
    if unknown:
        raise InvalidArgument(
            f"unknown option {unknown[0]!r:.40}; there are {', '.join(sorted(_OPTIONS))}"
        )
    for what in ("queue", "pool", "key", "trace"):
        if not isinstance(given.get(what, ""), str):
            raise InvalidArgument(f"{what} must be text")
    if not isinstance(given.get("attributes", {}), dict):
        raise InvalidArgument("attributes must be a map")
    data = plain_data.read(packed, f"arguments of {name:.80}")
    signal, trace, window = given.pop("signal", None), given.pop("trace", ""), windows.window(given)
    given["needs"] = needs.checked("needs", given.get("needs", {}))
    owner, options = caller.user or owner, Options(**given)
    sub = Submission(name, data, owner, nonce or "", options=options, trace=trace)
    if signal is None:
        return sub, None, window
    if window is not None:
        raise InvalidArgument("one that begins with a signal is neither dedup nor debounce")
    said = plain_data.read(signal, "the signal") if isinstance(signal, bytes) else None
    if not isinstance(said, dict):
        raise InvalidArgument("signal must be a map, as msgpack bytes: name, payload, key")
    return sub, said, None


def _serve_users(executor: Executor, control: Control, dispatcher: Methods) -> None:
    async def do(caller: Caller, args: WireRow) -> list[object]:
        what, packed = args
        given = plain_data.read(packed, f"the arguments of {what:.40}")
        if type(given) is not dict:
            raise InvalidArgument(f"the arguments of {what:.40} must be a map")
        if caller.user and what in SURGERY | {"version.move"}:
            given["actor"] = caller.user
        if caller.user and what == "fork":
            given["owner"] = caller.user
        if what in PROC_LISTS and not caller.reads_some(Kind.PROCEDURE_TYPE):
            return [plain_data.pack(_NOTHING)]
        if what in PROC_LISTS or what == "census":
            seen = seen_by(caller, given)
            return [plain_data.pack(await control.seen(what, given, seen))]
        return [plain_data.pack(await control.do(what, given))]

    async def submit(caller: Caller, args: WireRow) -> list[object]:
        sub, signal, window = _submission(caller, args)
        if window is not None:
            return list(await control.windows.begin(sub, window))
        if signal is not None:
            return [await control.talk.start(sub, signal)]
        return [await executor.submit(sub)]

    dispatcher.register(PROC_CONTROL, do)
    dispatcher.register(PROC_SUBMIT_MORE, submit)
