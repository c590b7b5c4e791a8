"""A backend whose operations end in time, whatever they are made of.

Each request has its own deadline already (kv.client), which the connection's `timeout_ms` is. What
asks several times, one after the other, or follows up on an answer that was lost, could take a
multiple of it: that is ended here, a little behind the time, so that the exact error of the last
request comes first. Single requests (get, put, delete, timestamps) pay nothing.

What may have changed something ends as UnknownOutcome, never as failed; the rest as
DeadlineExceeded. Deliberately not here: schema changes and other procedures, which go on while
nodes answer (a node that does not ends each of their requests), what waits for something as long as
it is told to (procedures, locks, watches), and a transaction's puts, which only note.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from kv.base.errors import DeadlineExceeded, KvorumError, UnknownOutcome
from kvorum.backend import Backend, Session

READS: Final = frozenset(
    {"scan", "multi_get", "status", "open_snapshot", "snapshots", "namespaces", "tables"}
    | {"procedures", "workers", "cluster", "nodes", "partitions", "locks"}
)
WRITES: Final = frozenset({"batch", "multi_write", "abort_transaction"})
SESSION_READS: Final = frozenset({"multi_get", "scan"})
SESSION_WRITES: Final = frozenset({"commit", "abort", "heartbeat"})
_MARGIN_MS: Final = 200


def bounded(backend: Backend, timeout_ms: int) -> Backend:
    return cast(Backend, _Bounded(backend, timeout_ms, READS | {"begin"}, WRITES))


class _Bounded:
    """Stands for `inner`: everything is its, some in time."""

    def __init__(
        self, inner: object, timeout_ms: int, reads: frozenset[str], writes: frozenset[str]
    ) -> None:
        self._inner, self._timeout_ms = inner, timeout_ms
        for name in reads | writes:
            late = UnknownOutcome if name in writes else DeadlineExceeded
            setattr(self, name, self._in_time(name, late))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _in_time(
        self, name: str, late: type[KvorumError]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        work, timeout_ms = getattr(self._inner, name), self._timeout_ms

        async def call(*args: Any, **named: Any) -> Any:
            try:
                async with asyncio.timeout((timeout_ms + _MARGIN_MS) / 1000):
                    found = await work(*args, **named)
            except TimeoutError:
                raise late(_said(name, timeout_ms, late), details=self._details()) from None
            if name == "begin":
                session = _Bounded(found, timeout_ms, SESSION_READS, SESSION_WRITES)
                return cast(Session, session)
            return found

        return call

    def _details(self) -> dict[str, Any]:
        txn = getattr(self._inner, "id", None)
        return {} if txn is None else {"txn": str(txn)}


def _said(name: str, timeout_ms: int, late: type[KvorumError]) -> str:
    text = f"{name}: no answer within {timeout_ms} ms (timeout_ms of connect)"
    if late is UnknownOutcome:
        text += "; it may or may not have been executed: look before you repeat it"
    return text
