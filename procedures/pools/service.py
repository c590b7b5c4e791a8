"""The node methods of workers, and of what users do with pools.

    WORK_ENTER  worker, entry                                   → epoch, [id to drop, …], types
    WORK_POLL   worker, epoch, seq, seen, again, wait_ms, said  → orders
    WORK_LEAVE  worker, epoch                                   → true
    WORK_LIST                                                   → [worker as bytes, …]

They are the master's: elsewhere they are answered NOT_LEADER with its address (kvorum/roles.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from kv.base import limits, methods
from kv.base.errors import InvalidArgument, TooLarge
from procedures.engine import plain
from procedures.pools import messages
from procedures.pools.crew import Crew

Handler = Callable[[Any, list[Any]], Awaitable[list[Any]] | list[Any]]

METHODS: Final = (
    methods.WORK_ENTER,
    methods.WORK_POLL,
    methods.WORK_LEAVE,
    methods.WORK_LIST,
)


class Methods(Protocol):
    def register(self, method: int, handler: Handler) -> None: ...


def register(crew: Crew, dispatcher: Methods) -> None:
    """Serve the workers of this executor from now on."""

    async def enter(_caller: Any, args: list[Any]) -> list[Any]:
        name, data = _fields(args, "WORK_ENTER", str, bytes)
        _name(name)
        if len(data) > limits.WORKER_DECLARATIONS_BYTES_MAX:
            raise TooLarge(
                f"a worker declares {len(data)} bytes, the limit is "
                f"{limits.WORKER_DECLARATIONS_BYTES_MAX}: serve fewer modules with one worker",
                details={"limit": limits.WORKER_DECLARATIONS_BYTES_MAX, "actual": len(data)},
            )
        return list(await crew.enter(name, messages.entry(data)))

    async def poll(_caller: Any, args: list[Any]) -> list[Any]:
        name, epoch, seq, seen, again, wait_ms, said = _fields(
            args, "WORK_POLL", str, int, int, int, bool, int, bytes
        )
        return [await crew.poll(name, epoch, seq, seen, again, wait_ms, said)]

    async def leave(_caller: Any, args: list[Any]) -> list[Any]:
        name, epoch = _fields(args, "WORK_LEAVE", str, int)
        await crew.leave(name, epoch)
        return [True]

    def listing(_caller: Any, args: list[Any]) -> list[Any]:
        _fields(args, "WORK_LIST")
        return [[plain.pack(row) for row in crew.workers()]]

    dispatcher.register(methods.WORK_ENTER, enter)
    dispatcher.register(methods.WORK_POLL, poll)
    dispatcher.register(methods.WORK_LEAVE, leave)
    dispatcher.register(methods.WORK_LIST, listing)


def _fields(args: list[Any], method: str, *kinds: type) -> list[Any]:
    """Checked arguments. Raises InvalidArgument."""
    if [type(arg) for arg in args] != list(kinds):
        wanted = ", ".join(kind.__name__ for kind in kinds) or "none"
        got = ", ".join(type(arg).__name__ for arg in args) or "none"
        raise InvalidArgument(f"{method} takes ({wanted:.200}), got ({got:.200})")
    return args


def _name(name: str) -> None:
    if not 0 < len(name) <= limits.NAME_CHARS_MAX:
        raise InvalidArgument(
            f"a worker's name has 1 to {limits.NAME_CHARS_MAX} characters, got {len(name)}"
        )
