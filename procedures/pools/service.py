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

from functools import cache
from typing import Any, Final

from kv.base.errors import InvalidArgument
from kv.base.node_methods import Caller, Methods
from kv.base.rights import Kind, Resource
from procedures.engine import plain_data
from procedures.engine.executor import Executor
from procedures.engine.submission import Options, Submission
from procedures.pools import messages
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

_OPTIONS: Final = frozenset({"queue", "priority", "delay_ms", "at_ms", "pool", "signal", "trace"})


def register(executor: Executor, dispatcher: Methods) -> None:
    """Serve the workers of this executor, and what users do with it, from now on."""
    assert executor.crew is not None
    _serve_workers(executor.crew, dispatcher)
    _serve_users(executor, Control(executor), dispatcher)


def _serve_workers(crew: Crew, dispatcher: Methods) -> None:
    async def enter(caller: Caller, args: list[Any]) -> list[object]:
        name, data = args
        return list(await crew.enter(name, messages.entry(data), caller.user))

    async def poll(caller: Caller, args: list[Any]) -> list[object]:
        name, epoch, seq, seen, again, wait_ms, said = args
        return [await crew.poll(name, epoch, seq, seen, again, wait_ms, said, caller.user)]

    async def ids(caller: Caller, args: list[Any]) -> list[Any]:
        name, epoch, count = args
        return [await crew.ids(name, epoch, count, caller.user)]

    async def leave(caller: Caller, args: list[Any]) -> list[Any]:
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


def _submission(caller: Caller, args: list[Any]) -> tuple[Submission, object]:
    """And the signal that it is to be stored with, if any."""
    name, packed, owner, nonce, given = args
    unknown = sorted(set(given) - _OPTIONS)
    if unknown:
        raise InvalidArgument(
            f"unknown option {unknown[0]!r:.40}; there are {', '.join(sorted(_OPTIONS))}"
        )
    for what in ("queue", "pool"):
        if not isinstance(given.get(what, ""), str):
            raise InvalidArgument(f"{what} must be text")
    data = plain_data.read(packed, f"arguments of {name:.80}")
    signal, trace = given.pop("signal", None), given.pop("trace", "")
    if not isinstance(trace, str):
        raise InvalidArgument("trace must be text")
    owner, options = caller.user or owner, Options(**given)
    sub = Submission(name, data, owner, nonce or "", options=options, trace=trace)
    return sub, signal


def _serve_users(executor: Executor, control: Control, dispatcher: Methods) -> None:
    async def do(caller: Caller, args: list[Any]) -> list[Any]:
        what, packed = args
        given = plain_data.read(packed, f"the arguments of {what:.40}")
        if type(given) is not dict:
            raise InvalidArgument(f"the arguments of {what:.40} must be a map")
        if caller.user and what in SURGERY:
            given["actor"] = caller.user
        if what in PROC_LISTS:
            if not caller.reads_some(Kind.PROCEDURE_TYPE):
                return [plain_data.pack({"items": [], "before": 0})]
            seen = cache(lambda name: caller.reads(Resource(Kind.PROCEDURE_TYPE, name)))
            page = control.audit if what == "audit.page" else control.past_list
            return [plain_data.pack(await page(given, seen))]
        return [plain_data.pack(await control.do(what, given))]

    async def submit(caller: Caller, args: list[Any]) -> list[object]:
        sub, signal = _submission(caller, args)
        if signal is None:
            return [await executor.submit(sub)]
        said = plain_data.read(signal, "the signal") if isinstance(signal, bytes) else None
        if not isinstance(said, dict):
            raise InvalidArgument("signal must be a map, as msgpack bytes: name, payload, key")
        return [await control.talk.start(sub, said)]

    dispatcher.register(PROC_CONTROL, do)
    dispatcher.register(PROC_SUBMIT_MORE, submit)
