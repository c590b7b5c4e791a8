"""A backend whose every request is written to the audit log: what the HTTP API of an audited node,
and a database in its process, sit on (kvorum/audit/audit_log.py).

A read of the newest state takes a timestamp first and reads at it, so that its stamp is the moment
that it saw; without the log no such timestamp is taken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, TypeVar, cast

from kv.base.errors import Forbidden, KvorumError, Unauthenticated
from kv.base.throttle import FAILED_LOGINS
from kvorum.api.backend import Backend, Session
from kvorum.api.model import BatchOp, Record, TableKey
from kvorum.audit.audit_log import Asker, Key, Stamp, StampLog
from procedures.engine.plain_data import Plain
from txn.shared.wait_terms import USUAL, Terms

T = TypeVar("T")
Known = Plain
"""Fields of a stamp."""
_INTERNAL = "INTERNAL"
_USER_CHARS_MAX: Final = 200  # that a client says who fails to log in
_CANCELLED = "CANCELLED"


@dataclass(slots=True)
class Caller:
    """Who asks over HTTP."""

    client: str
    request: str = ""
    said: str = ""
    user: str = ""
    credential: str = ""
    error: KvorumError | None = None  # with which it was refused before it reached the database
    logged: bool = False  # its request reached the database

    def asker(self) -> Asker:
        """For the log."""
        error, denied = self.error, ""
        if isinstance(error, Unauthenticated | Forbidden) or is_throttled(error):
            denied = error.message
        return Asker(self.user, self.credential, self.request, self.said, denied)


caller_of_request: ContextVar[Caller | None] = ContextVar("caller", default=None)


def is_asked_by(user: str, credential: str) -> None:
    """Who proved what is known of this request from now on."""
    caller = caller_of_request.get()
    if caller is not None:
        caller.user, caller.credential = user[:_USER_CHARS_MAX], credential


def is_throttled(error: KvorumError | None) -> TypeGuard[KvorumError]:
    """Whether it says that there were too many failed logins before."""
    return error is not None and error.details.get("what") == FAILED_LOGINS


def is_refused(error: KvorumError) -> None:
    """This request ends with that."""
    caller = caller_of_request.get()
    if caller is not None:
        caller.error = error


def _nothing(*_: object, **__: object) -> Known:
    return {}


def _key(ns: str, table: str, key: bytes) -> Key:
    return f"{ns}.{table}", key


def _of_key(ns: str, table: str, key: bytes, *_: object, **__: object) -> Known:
    return {"keys": [_key(ns, table, key)]}


def _of_keys(keys: Sequence[TableKey], *_: object) -> Known:
    return {"keys": [_key(*key) for key in keys]}


def _of_ops(ops: Sequence[BatchOp]) -> Known:
    return {"keys": [_key(op.ns, op.table, op.key) for op in ops if isinstance(op.key, bytes)]}


def _of_table(ns: str, table: str, *_: object) -> Known:
    return {"tables": [f"{ns}.{table}"]}


def _of_namespace(ns: str, *_: object) -> Known:
    return {"tables": [f"{ns}.*"]}


def _of_txn(txn: int) -> Known:
    return {"txn": txn}


def _of_type(name: str, *_: object) -> Known:
    return {"type": name}


def _of_procedure(procedure: int, *_: object, **__: object) -> Known:
    return {"procedure": procedure}


def _version(record: Record | None) -> Known:
    return {} if record is None else {"version": record.version}


def _committed(version: int) -> Known:
    return {"commit_ts": version}


class _Stamper:
    """Makes the stamps of one surface."""

    def __init__(self, log: StampLog, surface: str, monotonic: Callable[[], float]) -> None:
        self._log, self._surface, self._monotonic = log, surface, monotonic

    async def stamp(
        self,
        method: str,
        work: Awaitable[T],
        *,
        then: Callable[[T], Known] = _nothing,
        **known: object,
    ) -> T:
        """`work`, and its stamp: what is `known` before, and what `then` reads off the result."""
        caller = caller_of_request.get()
        if caller is not None:
            caller.logged = True
        began = self._monotonic()
        code = _CANCELLED
        found: Known = {}
        try:
            result = await work
            code = "OK"
            found = then(result)
        except KvorumError as error:
            code = error.code
            raise
        except Exception:
            code = _INTERNAL
            raise
        finally:
            took_s = self._monotonic() - began
            self.log(method, code=code, took_s=took_s, **{**known, **found})
        return result

    def log(self, method: str, **known: Any) -> None:
        """One stamp."""
        caller = caller_of_request.get()
        client, asker = ("", None) if caller is None else (caller.client, caller.asker())
        self._log.add(Stamp(self._surface, client, method, asker=asker, **known))


@dataclass(frozen=True, slots=True)
class Row:
    """How a method is stamped: under which name ({0}: its first argument), with what its arguments
    say, and what its result does. `at_start`: it reads the transaction's snapshot.
    """

    name: str
    said: Callable[..., Known] = _nothing
    then: Callable[[Any], Known] = _nothing
    at_start: bool = False


SESSION: Final[Mapping[str, Row]] = {
    "get": Row("txn.get", _of_key, _version, at_start=True),
    "multi_get": Row("txn.multi_get", _of_keys, at_start=True),
    "scan": Row("txn.scan", _of_table, at_start=True),
    "put": Row("txn.put", _of_key),
    "delete": Row("txn.delete", _of_key),
    "lock": Row("txn.lock", _of_key, _version),
    "commit": Row("txn.commit", then=_committed),
    "abort": Row("txn.abort"),
    "heartbeat": Row("txn.heartbeat"),
}
BACKEND: Final[Mapping[str, Row]] = {
    "put": Row("put", _of_key, _committed),
    "delete": Row("delete", _of_key, _committed),
    "scan": Row("scan", _of_table, lambda page: {"read_ts": page.at}),
    "multi_get": Row("multi_get", _of_keys, lambda found: {"read_ts": found[1]}),
    "batch": Row("batch", _of_ops, _committed),
    "watch": Row(
        "watch", lambda ns, table, spec: {**_of_table(ns, table), "read_ts": spec.above or 0}
    ),
    "status": Row("txn.status", _of_txn, lambda state: {"commit_ts": state.commit_ts or 0}),
    "abort_transaction": Row("txn.abort", _of_txn),
    "timestamps": Row("timestamps", then=lambda first: {"start_ts": first}),
    "open_snapshot": Row("snapshot.open", then=lambda snapshot: {"read_ts": snapshot.at}),
    "renew_snapshot": Row("snapshot.renew"),
    "release_snapshot": Row("snapshot.release"),
    "snapshots": Row("snapshot.list"),
    "beat_lock": Row("lock.heartbeat"),
    "end_lock": Row("lock.release"),
    "namespaces": Row("namespace.list"),
    "create_namespace": Row("namespace.create", _of_namespace),
    "alter_namespace": Row("namespace.{1}", _of_namespace),
    "drop_namespace": Row("namespace.drop", _of_namespace),
    "tables": Row("table.list", _of_namespace),
    "create_table": Row("table.create", _of_table),
    "alter_table": Row("table.{2}", _of_table),
    "drop_table": Row("table.drop", _of_table),
    "control": Row("procedure.{0}"),
    "access": Row("{0}"),
    "submit": Row("procedure.submit", _of_type, lambda id: {"procedure": int(id)}),
    "procedure": Row("procedure.get", _of_procedure),
    "procedures": Row("procedure.list"),
    "procedure_page": Row("procedure.list"),
    "acknowledge": Row("procedure.acknowledge", _of_procedure),
    "sink_attempts": Row("sink.list"),
    "workers": Row("workers"),
    "cluster": Row("cluster"),
    "set_settings": Row("setting.set"),
    "nodes": Row("nodes"),
    "hour": Row("hour"),
    "partitions": Row("partitions"),
    "locks": Row("locks"),
}


def stamped(
    backend: Backend, log: StampLog, surface: str, monotonic: Callable[[], float]
) -> Backend:
    """`backend`, with a stamp for each request."""
    return cast(Backend, _StampedBackend(backend, _Stamper(log, surface, monotonic)))


class _Stamped:
    """Stands for `inner`, whose methods of the table are stamped with what is `known` before."""

    def __init__(
        self, inner: object, table: Mapping[str, Row], stamper: _Stamper, known: Known
    ) -> None:
        for method, row in table.items():
            setattr(self, method, self._stamping(getattr(inner, method), row, stamper, known))

    def _stamping(
        self, method: Callable[..., Awaitable[T]], row: Row, stamper: _Stamper, known: Known
    ) -> Callable[..., Awaitable[T]]:
        if row.at_start:
            known = {**known, "read_ts": known["start_ts"]}

        async def call(*args: object, **named: object) -> T:
            found = {**known, **row.said(*args, **named)}
            work = method(*args, **named)
            return await stamper.stamp(row.name.format(*args), work, then=row.then, **found)

        return call


class _StampedSession(_Stamped):
    def __init__(self, session: Session, stamper: _Stamper) -> None:
        self.id, self.start_ts, self.trace = session.id, session.start_ts, session.trace
        known = {"txn": self.id, "start_ts": self.start_ts}
        super().__init__(session, SESSION, stamper, known)


class _StampedBackend(_Stamped):
    """What the table cannot say: requests that ask twice, or have several stamps."""

    def __init__(self, backend: Backend, stamper: _Stamper) -> None:
        super().__init__(backend, BACKEND, stamper, {})
        self._backend, self._stamper = backend, stamper
        self.close, self.causal_token = backend.close, backend.causal_token

    async def get(self, ns: str, table: str, key: bytes, at: int) -> Record | None:
        read_ts = at  # of one that is refused before it has one

        async def work() -> Record | None:
            nonlocal read_ts
            read_ts = at or await self._backend.timestamps(1)
            return await self._backend.get(ns, table, key, read_ts)

        return await self._stamper.stamp(
            "get",
            work(),
            then=lambda record: {"read_ts": read_ts, **_version(record)},
            **_of_key(ns, table, key),
        )

    async def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]:
        """A stamp for each op: each has its own timestamp, or its own refusal."""
        work = self._backend.multi_write(ops)
        results = await self._stamper.stamp("multi_write", work, **_of_ops(ops))
        for op, result in zip(ops, results, strict=True):
            if isinstance(result, KvorumError):
                self._stamper.log("multi_write.op", code=result.code, **_of_ops([op]))
            else:
                self._stamper.log("multi_write.op", commit_ts=result, **_of_ops([op]))
        return results

    async def begin(
        self, *, ttl_ms: int, isolation: str, terms: Terms = USUAL, recorded: bool = False
    ) -> Session:
        work = self._backend.begin(
            ttl_ms=ttl_ms, isolation=isolation, terms=terms, recorded=recorded
        )
        session = await self._stamper.stamp(
            "txn.begin", work, then=lambda s: {"txn": s.id, "start_ts": s.start_ts}
        )
        return cast(Session, _StampedSession(session, self._stamper))
