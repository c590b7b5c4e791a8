"""`HttpBackend`: the database behind an `http://` URL, in msgpack.

Reads are repeated when a connection breaks; a write whose request may have arrived becomes
UnknownOutcome, never a failure. Everything else is told by the server, in the errors that it raised
itself.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from kv.base.errors import (
    DeadlineExceeded,
    KvorumError,
    NotFound,
    TxnAborted,
    Unavailable,
    UnknownOutcome,
    from_json,
)
from kv.base.limits import MULTI_KEYS_MAX, WAIT_MS_MAX
from kvorum.http.transport import Answer, HttpTransport, Lost
from kvorum.http.watching import HttpWatcher
from kvorum.model import (
    BatchOp,
    Column,
    Delete,
    Item,
    NamespaceInfo,
    Page,
    ProcedureInfo,
    Put,
    Record,
    ScanSpec,
    SnapshotInfo,
    TableInfo,
    TableKey,
    TableSpec,
    TxnState,
)
from kvorum.starting import control_request
from kvorum.watching import WatchSpec
from txn.ended import is_over
from txn.terms import NAMES, USUAL, Terms
from txn.trace import CommitTrace

_MSGPACK = "application/msgpack"
_HEADERS = (("content-type", _MSGPACK), ("accept", _MSGPACK))
_RAW = (("accept", f"{_MSGPACK}, */*"),)
_TRIED = 3
_SETTINGS_MS = 35_000  # more than kvorum.set_setting waits for nodes that do not answer
Effect = Literal["none", "same", "more"]
"""Of sending a request twice: a read; a write that is then the same as once; a write done twice."""
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class HttpBackend:
    """One node's HTTP API. `timeout_ms` bounds every request, waiting for procedures apart."""

    def __init__(self, transport: HttpTransport, timeout_ms: int) -> None:
        self._transport = transport
        self._timeout_ms = timeout_ms
        self._watchers: weakref.WeakSet[HttpWatcher] = weakref.WeakSet()

    # ------------------------------------------------------------------------------------ data

    async def get(self, ns: str, table: str, key: bytes, at: int) -> Record | None:
        target = _kv(ns, table, key, {"at": str(at)} if at else {})
        try:
            answer = await self._send("GET", target, b"", _RAW, twice="none")
        except NotFound as e:
            if e.code == "KEY_NOT_FOUND":
                return None
            raise
        return Record(answer.body, int(answer.headers[b"etag"].strip(b'"')))

    async def put(
        self, ns: str, table: str, key: bytes, value: bytes, cond: int | None, ttl_ms: int
    ) -> int:
        params = _condition(cond)
        if ttl_ms:
            params["ttl_ms"] = str(ttl_ms)
        answer = await self._send("PUT", _kv(ns, table, key, params), value, _RAW)
        return _version(_decode(answer.body))

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None) -> int:
        answer = await self._send("DELETE", _kv(ns, table, key, _condition(cond)), b"", _RAW)
        return _version(_decode(answer.body))

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        params: dict[str, str | bytes] = {}
        for name in ("prefix", "start", "end", "cursor"):
            bound = getattr(spec, name)
            if bound is not None:
                params[name] = bound
        if spec.reverse:
            params["reverse"] = "true"
        if spec.limit:
            params["limit"] = str(spec.limit)
        if spec.at:
            params["at"] = str(spec.at)
        told = await self._call("GET", f"/v1/kv/{_q(ns)}/{_q(table)}?{urlencode(params)}")
        return Page(_rows(told), told.get("cursor"), int(told["at"]))

    async def multi_get(self, keys: Sequence[TableKey], at: int) -> tuple[list[Record | None], int]:
        body: dict[str, Any] = {"keys": [k._asdict() for k in keys]}
        if at:
            body["at"] = str(at)
        told = await self._call("POST", "/v1/multi-get", body, twice="none")
        items = [None if i is None else Record(i["value"], _version(i)) for i in told["items"]]
        return items, int(told["at"])

    async def batch(self, ops: Sequence[BatchOp]) -> int:
        return _version(await self._call("POST", "/v1/batch", {"ops": [_op(o) for o in ops]}))

    async def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]:
        told = await self._call("POST", "/v1/multi-write", {"ops": [_op(o) for o in ops]})
        return [_version(r) if "version" in r else from_json(409, r) for r in told["results"]]

    async def watch(self, ns: str, table: str, spec: WatchSpec) -> HttpWatcher:
        host, port = self._transport.address
        watcher = HttpWatcher(host, port, ns, table, spec, self._timeout_ms)
        self._watchers.add(watcher)
        return watcher

    # ---------------------------------------------------------------------------- transactions

    async def begin(
        self, *, ttl_ms: int, isolation: str, terms: Terms = USUAL, recorded: bool = False
    ) -> HttpSession:
        body: dict[str, Any] = {"ttl_ms": ttl_ms, "isolation": isolation}
        if terms.owner:
            body["owner"] = terms.owner
        if terms.priority:
            body["priority"] = NAMES[terms.priority]
        if terms.lock_wait_ms is not None:
            body["lock_wait_ms"] = terms.lock_wait_ms
        # An answer that was lost leaves a transaction that expires: beginning another is harmless.
        told = await self._call("POST", "/v1/txn", body, twice="none")
        return HttpSession(self, int(told["txn"]), int(told["start_ts"]))

    async def status(self, txn: int) -> TxnState:
        told = await self._call("GET", f"/v1/txn/{txn}")
        commit_ts = told.get("commit_ts")
        return TxnState(told["status"], int(commit_ts) if commit_ts else None)

    async def abort_transaction(self, txn: int) -> None:
        await self._call("POST", f"/v1/txn/{txn}/abort", {}, twice="same")

    async def timestamps(self, count: int) -> int:
        told = await self._call("POST", "/v1/tso", {"count": count}, twice="none")
        return int(told["first"])

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int) -> SnapshotInfo:
        body: dict[str, Any] = {"owner": owner, "ttl_ms": ttl_ms}
        if at:
            body["at"] = str(at)
        # One whose answer was lost expires: taking another is harmless.
        return SnapshotInfo.of(await self._call("POST", "/v1/snapshots", body, twice="none"))

    async def renew_snapshot(self, id: int) -> None:
        await self._call("POST", f"/v1/snapshots/{id}/heartbeat", {}, twice="none")

    async def release_snapshot(self, id: int) -> bool:
        answer = await self._send("DELETE", f"/v1/snapshots/{id}", b"", _HEADERS, twice="none")
        return bool(_decode(answer.body)["held"])

    async def beat_lock(self, id: int, wait_ms: int) -> tuple[str, int]:
        told = await self._call(
            "POST", f"/v1/locks/{id}/heartbeat", {"wait_ms": wait_ms}, twice="same"
        )
        return told["state"], int(told["token"])

    async def end_lock(self, id: int) -> None:
        await self._send("DELETE", f"/v1/locks/{id}", b"", _HEADERS, twice="same")

    async def snapshots(self) -> list[SnapshotInfo]:
        told = await self._call("GET", "/v1/snapshots")
        return [SnapshotInfo.of(one) for one in told["items"]]

    # ------------------------------------------------------------------- namespaces and tables

    async def namespaces(self) -> list[NamespaceInfo]:
        told = await self._call("GET", "/v1/namespaces")
        return [NamespaceInfo.of(one) for one in told["items"]]

    async def create_namespace(self, name: str, change: dict[str, Any] | None = None) -> None:
        await self._call("POST", "/v1/namespaces", {**(change or {}), "name": name})

    async def alter_namespace(
        self, name: str, what: str, change: dict[str, Any] | None = None
    ) -> NamespaceInfo:
        told = await self._altered(f"/v1/namespaces/{_q(name)}", what, change)
        return NamespaceInfo.of(told)

    async def drop_namespace(self, name: str) -> None:
        await self._call("DELETE", f"/v1/namespaces/{_q(name)}")

    async def tables(self, ns: str) -> list[TableInfo]:
        told = await self._call("GET", f"/v1/namespaces/{_q(ns)}/tables")
        return [_table(t) for t in told["items"]]

    async def create_table(self, ns: str, name: str, spec: TableSpec) -> TableInfo:
        body: dict[str, Any] = {"name": name}
        for field in ("replicas", "partition_bytes"):
            if (value := getattr(spec, field)) is not None:
                body[field] = value
        for field in ("tags", "split_keys", "primary_key"):
            body[field] = list(getattr(spec, field))
        body["columns"] = [column.to_plain() for column in spec.columns]
        return _table(await self._call("POST", f"/v1/namespaces/{_q(ns)}/tables", body))

    async def alter_table(
        self, ns: str, name: str, what: str, change: dict[str, Any] | None = None
    ) -> TableInfo:
        target = f"/v1/namespaces/{_q(ns)}/tables/{_q(name)}"
        return _table(await self._altered(target, what, change))

    async def _altered(self, target: str, what: str, change: dict[str, Any] | None) -> Any:
        if what != "modify":
            return await self._call("POST", f"{target}/{what}")
        body = dict(change or {})
        if "replicas" in body:
            body["replicas"] = body["replicas"] or 0
        return await self._call("PATCH", target, body)

    async def drop_table(self, ns: str, name: str) -> None:
        await self._call("DELETE", f"/v1/namespaces/{_q(ns)}/tables/{_q(name)}")

    # ------------------------------------------------------------------------------ procedures

    async def control(self, what: str, args: dict[str, Any]) -> Any:
        method, target, body = control_request(what, args)
        found = await self._call(method, target, body, twice="same")
        return found["items"] if what.endswith(".list") else found

    async def submit(
        self, name: str, args: Any, nonce: str | None, options: dict[str, Any] | None = None
    ) -> int:
        headers = _HEADERS if nonce is None else (*_HEADERS, ("idempotency-key", nonce))
        body = b"" if args is None else _encode(args)
        answer = await self._send(
            "POST",
            f"/v1/procedures/{_q(name)}" + (f"?{urlencode(options)}" if options else ""),
            body,
            headers,
            twice="more" if nonce is None else "same",
        )
        return int(_decode(answer.body)["id"])

    async def procedure(self, procedure: int, wait_ms: int) -> ProcedureInfo:
        query = f"?wait_ms={min(wait_ms, WAIT_MS_MAX)}" if wait_ms else ""
        told = await self._call("GET", f"/v1/procedures/{procedure}{query}", extra_ms=wait_ms)
        return ProcedureInfo.of(told)

    async def procedures(
        self, *, state: str | None, owner: str | None, name: str | None
    ) -> list[ProcedureInfo]:
        wanted = {"state": state, "owner": owner, "name": name}
        query = urlencode({k: v for k, v in wanted.items() if v is not None})
        told = await self._call("GET", f"/v1/procedures?{query}")
        return [ProcedureInfo.of(p) for p in told["items"]]

    async def acknowledge(self, procedure: int) -> None:
        """Nothing to do: over HTTP results are kept for their time."""

    async def workers(self) -> list[dict[str, Any]]:
        return list((await self._call("GET", "/v1/workers"))["items"])

    # --------------------------------------------------------------------------------- cluster

    async def cluster(self) -> dict[str, Any]:
        return dict(await self._call("GET", "/v1/cluster"))

    async def set_settings(self, values: dict[str, int]) -> list[dict[str, Any]]:
        body = {"settings": values}
        told = await self._call("POST", "/v1/cluster", body, twice="same", extra_ms=_SETTINGS_MS)
        return list(told["settings"])

    async def nodes(self) -> list[dict[str, Any]]:
        return list((await self._call("GET", "/v1/nodes"))["items"])

    async def partitions(self) -> list[dict[str, Any]]:
        return list((await self._call("GET", "/v1/partitions"))["items"])

    async def locks(self, every: bool = False) -> dict[str, Any]:
        return dict(await self._call("GET", "/v1/locks?all=true" if every else "/v1/locks"))

    async def close(self) -> None:
        for watcher in list(self._watchers):
            await watcher.close()
        self._transport.close()

    # -------------------------------------------------------------------------------- requests

    async def _call(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        twice: Effect | None = None,
        extra_ms: int = 0,
    ) -> Any:
        """A msgpack request; the plain data of its answer."""
        raw = b"" if body is None else _encode(body)
        effect = twice or ("none" if method == "GET" else "more")
        answer = await self._send(method, target, raw, _HEADERS, twice=effect, extra_ms=extra_ms)
        return _decode(answer.body)

    async def _send(
        self,
        method: str,
        target: str,
        body: bytes,
        headers: tuple[tuple[str, str], ...],
        *,
        twice: Effect = "more",
        extra_ms: int = 0,
    ) -> Answer:
        what = f"{method} {target.partition('?')[0]}"
        doubt = False  # whether an attempt may have been executed
        try:
            async with asyncio.timeout((self._timeout_ms + extra_ms) / 1000):
                for left in reversed(range(_TRIED)):
                    try:
                        answer = await self._transport.request(method, target, body, headers)
                        break
                    except Lost as e:
                        doubt = doubt or (e.sent and twice != "none")
                        if doubt and (twice == "more" or not left):
                            raise _unknown(f"{what}: {e}") from None
                        if not left:
                            raise Unavailable(
                                str(e), code=None if e.sent else "UNREACHABLE"
                            ) from None
        except TimeoutError:
            late = f"no answer to {what} in {self._timeout_ms + extra_ms} ms"
            raise (DeadlineExceeded if twice == "none" else _unknown)(late) from None
        if answer.status >= 400:
            raise _error(answer)
        return answer


class HttpSession:
    """A transaction that the server holds open."""

    def __init__(self, backend: HttpBackend, txn: int, start_ts: int) -> None:
        self._backend = backend
        self._id = txn
        self._start_ts = start_ts
        self._lost: TxnAborted | None = None  # why it must not go on

    @property
    def id(self) -> int:
        return self._id

    @property
    def start_ts(self) -> int:
        return self._start_ts

    async def _post(self, verb: str, body: Mapping[str, Any], *, twice: Effect = "same") -> Any:
        """A verb, usually one that may be sent twice: a commit answers the same again."""
        if self._lost is not None:
            raise self._lost
        return await self._backend._call("POST", f"/v1/txn/{self._id}/{verb}", body, twice=twice)

    async def _write(self, verb: str, body: dict[str, Any], cond: int | None) -> None:
        """Buffer an op. With a condition it is not the same twice (the second one meets the first),
        so when its answer is lost the transaction is over: what it holds is not known.
        """
        if cond is None:
            await self._post(verb, body)
            return
        body |= {"if_version": str(cond)} if cond else {"if_absent": True}
        try:
            await self._post(verb, body, twice="more")
        except UnknownOutcome as lost:
            self._lost = is_over(self._id, f"the answer to one of its writes was lost ({lost})")
            raise self._lost from None

    async def get(self, ns: str, table: str, key: bytes) -> Record | None:
        told = await self._post("get", {"ns": ns, "table": table, "key": key})
        if told["value"] is None:
            return None
        return _own(told)

    async def multi_get(self, keys: Sequence[TableKey]) -> list[Record | None]:
        found: list[Record | None] = []
        for at in range(0, len(keys), MULTI_KEYS_MAX):  # one snapshot, however many requests
            part = [key._asdict() for key in keys[at : at + MULTI_KEYS_MAX]]
            told = await self._post("multi-get", {"keys": part})
            found += [None if i is None else _own(i) for i in told["items"]]
        return found

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page:
        body: dict[str, Any] = {"ns": ns, "table": table}
        for name in ("prefix", "start", "end", "cursor", "reverse", "limit"):
            bound = getattr(spec, name)
            if bound:
                body[name] = bound
        told = await self._post("scan", body)
        return Page(_rows(told), told.get("cursor"), self._start_ts)

    async def put(
        self,
        ns: str,
        table: str,
        key: bytes,
        value: bytes,
        cond: int | None = None,
        ttl_ms: int = 0,
    ) -> None:
        body: dict[str, Any] = {"ns": ns, "table": table, "key": key, "value": value}
        if ttl_ms:
            body["ttl_ms"] = ttl_ms
        await self._write("put", body, cond)

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None = None) -> None:
        await self._write("delete", {"ns": ns, "table": table, "key": key}, cond)

    async def commit(self) -> int:
        return _version(await self._post("commit", {}))

    async def abort(self) -> None:
        self._lost = None
        try:
            await self._post("abort", {})
        except NotFound as e:
            if e.code != "TXN_NOT_FOUND":  # its node forgot it, and nobody else could commit it
                raise

    async def heartbeat(self) -> None:
        await self._post("heartbeat", {})

    def trace(self) -> CommitTrace | None:
        return None  # its node coordinates it


def _own(told: Mapping[str, Any]) -> Record:
    """A record that a transaction read; what it wrote itself has no version yet."""
    return Record(told["value"], int(told["version"] or 0))


def _unknown(what: str) -> UnknownOutcome:
    return UnknownOutcome(
        f"{what}; it may or may not have been executed: look before you repeat it"
    )


def _error(answer: Answer) -> KvorumError:
    """The error behind an answer; one that is not Kvorum's (a proxy's, say) is Unavailable."""
    try:
        return from_json(answer.status, _decode(answer.body))
    except (msgspec.MsgspecError, KeyError, TypeError):
        return Unavailable(f"HTTP {answer.status}: {answer.body[:200]!r}")


def _q(part: str | bytes) -> str:
    return quote(part, safe="")


def _kv(ns: str, table: str, key: bytes, params: Mapping[str, str]) -> str:
    target = f"/v1/kv/{_q(ns)}/{_q(table)}/{_q(key)}"
    return f"{target}?{urlencode(params)}" if params else target


def _condition(cond: int | None) -> dict[str, str]:
    if cond is None:
        return {}
    return {"if_version": str(cond)} if cond else {"if_absent": "true"}


def _version(told: Mapping[str, Any]) -> int:
    return int(told["version"])


def _rows(told: Mapping[str, Any]) -> list[Item]:
    return [Item(i["key"], i["value"], int(i["version"] or 0)) for i in told["items"]]


def _op(op: BatchOp) -> dict[str, Any]:
    row: dict[str, Any] = {"ns": op.ns, "table": op.table, "key": op.key}
    if op.fence is not None:
        row["fence"] = {"resource": op.fence[0], "token": str(op.fence[1])}
    if op.if_version is not None:
        row["if_version"] = str(op.if_version)
    match op:
        case Put():
            row |= {"op": "put", "value": op.value}
            if op.if_absent:
                row["if_absent"] = True
            if op.ttl_ms:
                row["ttl_ms"] = op.ttl_ms
        case Delete():
            row["op"] = "delete"
    return row


def _table(told: Mapping[str, Any]) -> TableInfo:
    columns = tuple(Column(c["name"], c["type"], c["nullable"]) for c in told["columns"])
    return TableInfo(
        told["namespace"],
        told["name"],
        told["id"],
        columns,
        tuple(told["primary_key"]),
        told.get("replicas"),
        tuple(told.get("tags", ())),
        told.get("state", "public"),
        told.get("partition_bytes"),
    )
