"""A backend whose operations end in time, whatever they are made of.

Each request has its own deadline already (kv.client), which the connection's `timeout_ms` is. What
asks several times, one after the other, or follows up on an answer that was lost, could take a
multiple of it: that is ended here, a little after the time, so that the exact error of the last
request comes first. Single requests (get, put, delete, timestamps) pay nothing.

What may have changed something ends as UnknownOutcome, never as failed; the rest as
DeadlineExceeded. A schema change goes on: who waits for it ends the waiting first, and tells how to
look (kvorum/native/native_admin.py). Deliberately not here: what waits for something as long as it
is asked to (locks, watches), and a transaction's puts, which only note.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from kv.base.errors import DeadlineExceeded, KvorumError, UnknownOutcome
from kvorum.api.backend import Backend, Session
from procedures.engine.plain_data import Plain
from procedures.verbs import ProcControl

READS: Final = frozenset(
    {"scan", "multi_get", "status", "open_snapshot", "snapshots", "namespaces", "tables"}
    | {"procedures", "workers", "cluster", "nodes", "partitions", "locks"}
)
WRITES: Final = frozenset(
    {"batch", "multi_write", "abort_transaction", "submit", "control", "access"}
)
PROCEDURES: Final = frozenset(
    {"create_namespace", "alter_namespace", "drop_namespace", "set_settings"}
    | {"create_table", "alter_table", "drop_table"}
)
SESSION_READS: Final = frozenset({"multi_get", "scan", "lock"})
SESSION_WRITES: Final = frozenset({"commit", "abort", "heartbeat"})
MARGIN_MS: Final = 200


def bounded(backend: Backend, timeout_ms: int, *, procedures: int = 0) -> Backend:
    """`procedures`: how long those may take that wait for one to end; 0 = as long as the others."""
    found = _Bounded(backend, timeout_ms, READS | {"begin"}, WRITES)
    found.bound(PROCEDURES, procedures or timeout_ms, UnknownOutcome)
    return cast(Backend, found)


class _Bounded:
    """Stands for `inner`: everything is its, some in time."""

    def __init__(
        self, inner: object, timeout_ms: int, reads: frozenset[str], writes: frozenset[str]
    ) -> None:
        self._inner, self._timeout_ms = inner, timeout_ms
        self.bound(reads, timeout_ms, DeadlineExceeded)
        self.bound(writes, timeout_ms, UnknownOutcome)

    def bound(self, names: frozenset[str], timeout_ms: int, late: type[KvorumError]) -> None:
        for name in names:
            setattr(self, name, self._in_time(name, timeout_ms, late))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _in_time(
        self, name: str, timeout_ms: int, late: type[KvorumError]
    ) -> Callable[..., Coroutine[object, None, Any]]:
        work = getattr(self._inner, name)

        async def call(*args: object, **named: object) -> Any:
            try:
                async with asyncio.timeout((timeout_ms + MARGIN_MS) / 1000):
                    found = await work(*args, **named)
            except TimeoutError:
                question = name == "control" and ProcControl.verb.asks(args)
                kind = DeadlineExceeded if question else late
                raise kind(_said(name, timeout_ms, kind), details=self._details()) from None
            if name == "begin":
                session = _Bounded(found, timeout_ms, SESSION_READS, SESSION_WRITES)
                return cast(Session, session)
            return found

        return call

    def _details(self) -> Plain:
        txn = getattr(self._inner, "id", None)
        return {} if txn is None else {"txn": str(txn)}


def _said(name: str, timeout_ms: int, late: type[KvorumError]) -> str:
    text = f"{name}: no answer within {timeout_ms} ms (timeout_ms of connect)"
    if late is UnknownOutcome:
        text += "; it may or may not have been executed: look before you repeat it"
    if name in PROCEDURES:
        text += " (db.procedures() and `kvorum proc list` show whether it goes on)"
    return text
