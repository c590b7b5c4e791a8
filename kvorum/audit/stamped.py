"""A backend whose every request is told to the log of stamps: what the HTTP API of an audited node,
and a database in its process, sit on (kvorum/audit/stamps.py).

A read of the newest state takes a timestamp first and reads at it, so that its stamp is the moment
that it saw; without the log no such timestamp is taken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from kv.base.errors import KvorumError
from kvorum.api.backend import Backend, Session
from kvorum.api.model import (
    BatchOp,
    NamespaceInfo,
    Page,
    ProcedureInfo,
    Record,
    ScanSpec,
    SnapshotInfo,
    TableInfo,
    TableKey,
    TableSpec,
    TxnState,
)
from kvorum.api.watching import Watcher, WatchSpec
from kvorum.audit.stamps import Key, Stamp, StampLog
from txn.terms import USUAL, Terms
from txn.trace import CommitTrace

T = TypeVar("T")
_INTERNAL = "INTERNAL"
_CANCELLED = "CANCELLED"


@dataclass(slots=True)
class Caller:
    """Who asks over HTTP."""

    client: str
    told: bool = False  # its request reached the database


caller_of_request: ContextVar[Caller | None] = ContextVar("caller", default=None)


class _Stamper:
    """Makes the stamps of one surface."""

    def __init__(self, log: StampLog, surface: str, monotonic: Callable[[], float]) -> None:
        self._log, self._surface, self._monotonic = log, surface, monotonic

    async def stamp(
        self,
        method: str,
        work: Awaitable[T],
        *,
        then: Callable[[T], dict[str, int]] | None = None,
        **known: Any,
    ) -> T:
        """`work`, and its stamp: what is `known` before, and what `then` reads off the result."""
        caller = caller_of_request.get()
        if caller is not None:
            caller.told = True
        began = self._monotonic()
        code = _CANCELLED
        found: dict[str, int] = {}
        try:
            result = await work
            code = "OK"
            found = {} if then is None else then(result)
        except KvorumError as error:
            code = error.code
            raise
        except Exception:
            code = _INTERNAL
            raise
        finally:
            took_s = self._monotonic() - began
            self.told(method, code=code, took_s=took_s, **{**known, **found})
        return result

    def told(self, method: str, **known: Any) -> None:
        """One stamp."""
        caller = caller_of_request.get()
        client = "" if caller is None else caller.client
        self._log.add(Stamp(self._surface, client, method, **known))


class StampedSession:
    """kvorum.api.backend.Session."""

    def __init__(self, session: Session, stamper: _Stamper) -> None:
        self._session, self._stamp = session, stamper.stamp
        self._known: dict[str, Any] = {"txn": session.id, "start_ts": session.start_ts}

    @property
    def id(self) -> int:
        return self._session.id

    @property
    def start_ts(self) -> int:
        return self._session.start_ts

    async def get(self, ns: str, table: str, key: bytes) -> Record | None:
        return await self._stamp(
            "txn.get",
            self._session.get(ns, table, key),
            then=_version,
            keys=[_key(ns, table, key)],
            read_ts=self.start_ts,
            **self._known,
        )

    async def multi_get(self, keys: Sequence[TableKey]) -> list[Record | None]:
        work, named = self._session.multi_get(keys), [_key(*key) for key in keys]
        return await self._stamp(
            "txn.multi_get", work, keys=named, read_ts=self.start_ts, **self._known
        )

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        work, named = self._session.scan(ns, table, spec), [f"{ns}.{table}"]
        return await self._stamp(
            "txn.scan", work, tables=named, read_ts=self.start_ts, **self._known
        )

    async def put(
        self,
        ns: str,
        table: str,
        key: bytes,
        value: bytes,
        cond: int | None = None,
        ttl_ms: int = 0,
    ) -> None:
        work = self._session.put(ns, table, key, value, cond, ttl_ms)
        await self._stamp("txn.put", work, keys=[_key(ns, table, key)], **self._known)

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None = None) -> None:
        work = self._session.delete(ns, table, key, cond)
        await self._stamp("txn.delete", work, keys=[_key(ns, table, key)], **self._known)

    async def commit(self) -> int:
        return await self._stamp(
            "txn.commit", self._session.commit(), then=_committed, **self._known
        )

    async def abort(self) -> None:
        await self._stamp("txn.abort", self._session.abort(), **self._known)

    async def heartbeat(self) -> None:
        await self._stamp("txn.heartbeat", self._session.heartbeat(), **self._known)

    def trace(self) -> CommitTrace | None:
        return self._session.trace()


class StampedBackend:
    """kvorum.api.backend.Backend."""

    def __init__(
        self, backend: Backend, log: StampLog, surface: str, monotonic: Callable[[], float]
    ) -> None:
        self._backend = backend
        self._stamper = _Stamper(log, surface, monotonic)
        self._stamp = self._stamper.stamp

    async def _at(self, at: int) -> int:
        return at or await self._backend.timestamps(1)

    # ------------------------------------------------------------------------------------ data

    async def get(self, ns: str, table: str, key: bytes, at: int) -> Record | None:
        read_ts = at  # of one that is refused before it has one

        async def work() -> Record | None:
            nonlocal read_ts
            read_ts = await self._at(at)
            return await self._backend.get(ns, table, key, read_ts)

        return await self._stamp(
            "get",
            work(),
            then=lambda record: {"read_ts": read_ts, **_version(record)},
            keys=[_key(ns, table, key)],
        )

    async def put(
        self, ns: str, table: str, key: bytes, value: bytes, cond: int | None, ttl_ms: int
    ) -> int:
        work = self._backend.put(ns, table, key, value, cond, ttl_ms)
        return await self._stamp("put", work, then=_committed, keys=[_key(ns, table, key)])

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None) -> int:
        work = self._backend.delete(ns, table, key, cond)
        return await self._stamp("delete", work, then=_committed, keys=[_key(ns, table, key)])

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        work = self._backend.scan(ns, table, spec)
        return await self._stamp(
            "scan", work, then=lambda page: {"read_ts": page.at}, tables=[f"{ns}.{table}"]
        )

    async def multi_get(self, keys: Sequence[TableKey], at: int) -> tuple[list[Record | None], int]:
        work, named = self._backend.multi_get(keys, at), [_key(*key) for key in keys]
        return await self._stamp(
            "multi_get", work, then=lambda found: {"read_ts": found[1]}, keys=named
        )

    async def batch(self, ops: Sequence[BatchOp]) -> int:
        work = self._backend.batch(ops)
        return await self._stamp("batch", work, then=_committed, keys=_keys(ops))

    async def watch(self, ns: str, table: str, spec: WatchSpec) -> Watcher:
        work = self._backend.watch(ns, table, spec)
        named = [f"{ns}.{table}"]
        return await self._stamp("watch", work, tables=named, read_ts=spec.above or 0)

    async def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]:
        """A stamp for each op: each has its own timestamp, or its own refusal."""
        results = await self._stamp("multi_write", self._backend.multi_write(ops), keys=_keys(ops))
        for op, result in zip(ops, results, strict=True):
            if isinstance(result, KvorumError):
                self._stamper.told("multi_write.op", code=result.code, keys=_keys([op]))
            else:
                self._stamper.told("multi_write.op", keys=_keys([op]), commit_ts=result)
        return results

    # ---------------------------------------------------------------------------- transactions

    async def begin(
        self, *, ttl_ms: int, isolation: str, terms: Terms = USUAL, recorded: bool = False
    ) -> StampedSession:
        work = self._backend.begin(
            ttl_ms=ttl_ms, isolation=isolation, terms=terms, recorded=recorded
        )
        session = await self._stamp(
            "txn.begin", work, then=lambda s: {"txn": s.id, "start_ts": s.start_ts}
        )
        return StampedSession(session, self._stamper)

    async def status(self, txn: int) -> TxnState:
        work = self._backend.status(txn)
        return await self._stamp(
            "txn.status", work, then=lambda s: {"commit_ts": s.commit_ts or 0}, txn=txn
        )

    async def abort_transaction(self, txn: int) -> None:
        await self._stamp("txn.abort", self._backend.abort_transaction(txn), txn=txn)

    async def timestamps(self, count: int) -> int:
        work = self._backend.timestamps(count)
        return await self._stamp("timestamps", work, then=lambda first: {"start_ts": first})

    # ------------------------------------------------------------------------------- snapshots

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int) -> SnapshotInfo:
        work = self._backend.open_snapshot(at, owner, ttl_ms)
        return await self._stamp("snapshot.open", work, then=lambda s: {"read_ts": s.at})

    async def renew_snapshot(self, id: int) -> None:
        await self._stamp("snapshot.renew", self._backend.renew_snapshot(id))

    async def release_snapshot(self, id: int) -> bool:
        return await self._stamp("snapshot.release", self._backend.release_snapshot(id))

    async def beat_lock(self, id: int, wait_ms: int) -> tuple[str, int]:
        return await self._stamp("lock.heartbeat", self._backend.beat_lock(id, wait_ms))

    async def end_lock(self, id: int) -> None:
        await self._stamp("lock.release", self._backend.end_lock(id))

    async def snapshots(self) -> list[SnapshotInfo]:
        return await self._stamp("snapshot.list", self._backend.snapshots())

    # ------------------------------------------------------------------- namespaces and tables

    async def namespaces(self) -> list[NamespaceInfo]:
        return await self._stamp("namespace.list", self._backend.namespaces())

    async def create_namespace(self, name: str, change: dict[str, Any] | None = None) -> None:
        work = self._backend.create_namespace(name, change)
        await self._stamp("namespace.create", work, tables=[f"{name}.*"])

    async def alter_namespace(
        self, name: str, what: str, change: dict[str, Any] | None = None
    ) -> NamespaceInfo:
        work = self._backend.alter_namespace(name, what, change)
        return await self._stamp(f"namespace.{what}", work, tables=[f"{name}.*"])

    async def drop_namespace(self, name: str) -> None:
        work = self._backend.drop_namespace(name)
        await self._stamp("namespace.drop", work, tables=[f"{name}.*"])

    async def tables(self, ns: str) -> list[TableInfo]:
        return await self._stamp("table.list", self._backend.tables(ns), tables=[f"{ns}.*"])

    async def create_table(self, ns: str, name: str, spec: TableSpec) -> TableInfo:
        work = self._backend.create_table(ns, name, spec)
        return await self._stamp("table.create", work, tables=[f"{ns}.{name}"])

    async def alter_table(
        self, ns: str, name: str, what: str, change: dict[str, Any] | None = None
    ) -> TableInfo:
        work = self._backend.alter_table(ns, name, what, change)
        return await self._stamp(f"table.{what}", work, tables=[f"{ns}.{name}"])

    async def drop_table(self, ns: str, name: str) -> None:
        work = self._backend.drop_table(ns, name)
        await self._stamp("table.drop", work, tables=[f"{ns}.{name}"])

    # ------------------------------------------------------------------------------ procedures

    async def control(self, what: str, args: dict[str, Any]) -> Any:
        return await self._stamp(f"procedure.{what}", self._backend.control(what, args))

    async def submit(
        self, name: str, args: Any, nonce: str | None, options: dict[str, Any] | None = None
    ) -> int:
        work = self._backend.submit(name, args, nonce, options)
        return await self._stamp("procedure.submit", work, then=lambda id: {"procedure": id})

    async def procedure(self, procedure: int, wait_ms: int) -> ProcedureInfo:
        work = self._backend.procedure(procedure, wait_ms)
        return await self._stamp("procedure.get", work, procedure=procedure)

    async def procedures(
        self, *, state: str | None, owner: str | None, name: str | None
    ) -> list[ProcedureInfo]:
        work = self._backend.procedures(state=state, owner=owner, name=name)
        return await self._stamp("procedure.list", work)

    async def acknowledge(self, procedure: int) -> None:
        work = self._backend.acknowledge(procedure)
        await self._stamp("procedure.acknowledge", work, procedure=procedure)

    # --------------------------------------------------------------------------------- cluster

    async def workers(self) -> list[dict[str, Any]]:
        return await self._stamp("workers", self._backend.workers())

    async def cluster(self) -> dict[str, Any]:
        return await self._stamp("cluster", self._backend.cluster())

    async def set_settings(self, values: dict[str, int]) -> list[dict[str, Any]]:
        return await self._stamp("setting.set", self._backend.set_settings(values))

    async def nodes(self) -> list[dict[str, Any]]:
        return await self._stamp("nodes", self._backend.nodes())

    async def partitions(self) -> list[dict[str, Any]]:
        return await self._stamp("partitions", self._backend.partitions())

    async def locks(self, every: bool = False) -> dict[str, Any]:
        return await self._stamp("locks", self._backend.locks(every))

    async def close(self) -> None:
        await self._backend.close()


def _key(ns: str, table: str, key: bytes) -> Key:
    return f"{ns}.{table}", key


def _keys(ops: Sequence[BatchOp]) -> list[Key]:
    return [_key(op.ns, op.table, op.key) for op in ops if isinstance(op.key, bytes)]


def _version(record: Record | None) -> dict[str, int]:
    return {} if record is None else {"version": record.version}


def _committed(version: int) -> dict[str, int]:
    return {"commit_ts": version}
