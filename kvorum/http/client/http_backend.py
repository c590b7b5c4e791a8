"""`HttpBackend`: the database behind an `http://` URL, in msgpack.

What becomes of a request whose answer is lost: calls.py. Transactions: http_session.py.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from kv.base.errors import (
    KvorumError,
    NotFound,
    from_json,
)
from kv.base.limits import PROCEDURE_LIST_DEFAULT, WAIT_MS_MAX
from kvorum.api.model import (
    BatchOp,
    Column,
    Delete,
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
from kvorum.api.sink_attempts import SinkAttempt
from kvorum.api.watching import WatchSpec
from kvorum.http.client.calls import HEADERS, RAW, Calls, Effect, rows_of, version_of
from kvorum.http.client.control_requests import control_request
from kvorum.http.client.http_session import HttpSession
from kvorum.http.client.transport import HttpTransport
from kvorum.http.client.watch_client import HttpWatcher
from procedures.engine.client import Earlier
from procedures.engine.plain_data import Plain
from txn.shared.wait_terms import NAMES, USUAL, Terms

_SETTINGS_MS = 35_000  # more than kvorum.set_setting waits for nodes that do not answer
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class HttpBackend:
    """One node's HTTP API. `timeout_ms` bounds every request, waiting for procedures apart, and
    where it is not `whole` those that usually take longer.
    """

    def __init__(self, transport: HttpTransport, timeout_ms: int, *, whole: bool = False) -> None:
        self._transport = transport
        self._timeout_ms = timeout_ms
        self._extra_ms = 0 if whole else _SETTINGS_MS
        self._calls = calls = Calls(transport, timeout_ms)
        self._call, self._send = calls.call, calls.send
        self._watchers: weakref.WeakSet[HttpWatcher] = weakref.WeakSet()

    # ------------------------------------------------------------------------------------ data

    async def get(self, ns: str, table: str, key: bytes, at: int) -> Record | None:
        target = _kv(ns, table, key, {"at": str(at)} if at else {})
        try:
            answer = await self._send("GET", target, b"", RAW, twice="none")
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
        answer = await self._send("PUT", _kv(ns, table, key, params), value, RAW)
        return version_of(_decode(answer.body))

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None) -> int:
        answer = await self._send("DELETE", _kv(ns, table, key, _condition(cond)), b"", RAW)
        return version_of(_decode(answer.body))

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
        answer = await self._call("GET", f"/v1/kv/{_q(ns)}/{_q(table)}?{urlencode(params)}")
        return Page(rows_of(answer), answer.get("cursor"), int(answer["at"]))

    async def multi_get(self, keys: Sequence[TableKey], at: int) -> tuple[list[Record | None], int]:
        body: dict[str, object] = {"keys": [k._asdict() for k in keys]}
        if at:
            body["at"] = str(at)
        answer = await self._call("POST", "/v1/multi-get", body, twice="none")
        items = [None if i is None else Record(i["value"], version_of(i)) for i in answer["items"]]
        return items, int(answer["at"])

    async def batch(self, ops: Sequence[BatchOp]) -> int:
        return version_of(await self._call("POST", "/v1/batch", {"ops": [_op(o) for o in ops]}))

    async def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]:
        answer = await self._call("POST", "/v1/multi-write", {"ops": [_op(o) for o in ops]})
        return [version_of(r) if "version" in r else from_json(409, r) for r in answer["results"]]

    async def watch(self, ns: str, table: str, spec: WatchSpec) -> HttpWatcher:
        watcher = HttpWatcher(self._transport, ns, table, spec, self._timeout_ms)
        self._watchers.add(watcher)
        return watcher

    # ---------------------------------------------------------------------------- transactions

    async def begin(
        self, *, ttl_ms: int, isolation: str, terms: Terms = USUAL, recorded: bool = False
    ) -> HttpSession:
        body: dict[str, object] = {"ttl_ms": ttl_ms, "isolation": isolation}
        if terms.owner:
            body["owner"] = terms.owner
        if terms.priority:
            body["priority"] = NAMES[terms.priority]
        if terms.lock_wait_ms is not None:
            body["lock_wait_ms"] = terms.lock_wait_ms
        # An answer that was lost leaves a transaction that expires: beginning another is harmless.
        reply = await self._call("POST", "/v1/txn", body, twice="none")
        return HttpSession(self._calls, int(reply["txn"]), int(reply["start_ts"]))

    async def status(self, txn: int) -> TxnState:
        answer = await self._call("GET", f"/v1/txn/{txn}")
        commit_ts = answer.get("commit_ts")
        return TxnState(answer["status"], int(commit_ts) if commit_ts else None)

    async def abort_transaction(self, txn: int) -> None:
        await self._call("POST", f"/v1/txn/{txn}/abort", {}, twice="same")

    def causal_token(self) -> int:
        return self._transport.heard.at

    async def timestamps(self, count: int, above: int = 0) -> int:
        body: dict[str, object] = {"count": count}
        if above:
            body["above"] = str(above)
        answer = await self._call("POST", "/v1/tso", body, twice="none")
        return int(answer["first"])

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int, user: str = "") -> SnapshotInfo:
        body: dict[str, object] = {"owner": owner, "ttl_ms": ttl_ms}
        if at:
            body["at"] = str(at)
        # One whose answer was lost expires: taking another is harmless.
        return SnapshotInfo.of(await self._call("POST", "/v1/snapshots", body, twice="none"))

    async def renew_snapshot(self, id: int, user: str = "") -> None:
        await self._call("POST", f"/v1/snapshots/{id}/heartbeat", {}, twice="none")

    async def release_snapshot(self, id: int, user: str = "") -> bool:
        answer = await self._send("DELETE", f"/v1/snapshots/{id}", b"", HEADERS, twice="none")
        return bool(_decode(answer.body)["held"])

    async def beat_lock(self, id: int, wait_ms: int) -> tuple[str, int]:
        answer = await self._call(
            "POST", f"/v1/locks/{id}/heartbeat", {"wait_ms": wait_ms}, twice="same"
        )
        return answer["state"], int(answer["token"])

    async def end_lock(self, id: int) -> None:
        await self._send("DELETE", f"/v1/locks/{id}", b"", HEADERS, twice="same")

    async def snapshots(self) -> list[SnapshotInfo]:
        answer = await self._call("GET", "/v1/snapshots")
        return [SnapshotInfo.of(one) for one in answer["items"]]

    # ------------------------------------------------------------------- namespaces and tables

    async def namespaces(self) -> list[NamespaceInfo]:
        answer = await self._call("GET", "/v1/namespaces")
        return [NamespaceInfo.of(one) for one in answer["items"]]

    async def create_namespace(self, name: str, change: dict[str, object] | None = None) -> None:
        await self._call("POST", "/v1/namespaces", {**(change or {}), "name": name})

    async def alter_namespace(
        self, name: str, what: str, change: dict[str, object] | None = None
    ) -> NamespaceInfo:
        answer = await self._altered(f"/v1/namespaces/{_q(name)}", what, change)
        return NamespaceInfo.of(answer)

    async def drop_namespace(self, name: str) -> None:
        await self._call("DELETE", f"/v1/namespaces/{_q(name)}")

    async def tables(self, ns: str) -> list[TableInfo]:
        answer = await self._call("GET", f"/v1/namespaces/{_q(ns)}/tables")
        return [_table(t) for t in answer["items"]]

    async def create_table(self, ns: str, name: str, spec: TableSpec) -> TableInfo:
        body: dict[str, object] = {"name": name}
        for field in ("replicas", "partition_bytes"):
            if (value := getattr(spec, field)) is not None:
                body[field] = value
        for field in ("shard", "survive", "leaders"):
            if value := getattr(spec, field):
                body[field] = value
        for field in ("tags", "split_keys", "primary_key"):
            body[field] = list(getattr(spec, field))
        body["columns"] = [column.to_plain() for column in spec.columns]
        return _table(await self._call("POST", f"/v1/namespaces/{_q(ns)}/tables", body))

    async def alter_table(
        self, ns: str, name: str, what: str, change: dict[str, object] | None = None
    ) -> TableInfo:
        target = f"/v1/namespaces/{_q(ns)}/tables/{_q(name)}"
        return _table(await self._altered(target, what, change))

    async def _altered(self, target: str, what: str, change: dict[str, object] | None) -> Any:
        if what != "modify":
            return await self._call("POST", f"{target}/{what}")
        body = dict(change or {})
        if "replicas" in body:
            body["replicas"] = body["replicas"] or 0
        return await self._call("PATCH", target, body)

    async def drop_table(self, ns: str, name: str) -> None:
        await self._call("DELETE", f"/v1/namespaces/{_q(ns)}/tables/{_q(name)}")

    # ------------------------------------------------------------------------------ procedures

    async def control(self, what: str, args: Plain) -> Any:
        method, target, body = control_request(what, args)
        effect: Effect = "none" if method == "GET" or what == "query" else "same"
        extra_ms = args.get("wait_ms") or 0
        found = await self._call(method, target, body, twice=effect, extra_ms=extra_ms)
        return found["items"] if what.endswith(".list") else found

    access = control

    async def submit(
        self, name: str, args: object, nonce: str | None, options: dict[str, object] | None = None
    ) -> int:
        options = dict(options or {})
        trace = options.pop("trace", "")
        if "signal" in options:
            said = {**options, **options["signal"], "args": args, "nonce": nonce}  # type: ignore[dict-item]
            said["signal"] = said.pop("name")
            started = await self._call(
                "POST", f"/v1/procedures/{_q(name)}/signal-with-start", said, twice="same"
            )
            return int(started["id"])
        if "attributes" in options:
            options["attributes"] = msgspec.json.encode(options["attributes"]).decode()
        headers = HEADERS if nonce is None else (*HEADERS, ("idempotency-key", nonce))
        if trace:
            headers = (*headers, ("traceparent", str(trace)))
        body = b"" if args is None else _encode(args)
        said = dict(options or {})
        if "needs" in said:
            said["needs"] = json.dumps(said["needs"])
        answer = await self._send(
            "POST",
            f"/v1/procedures/{_q(name)}" + (f"?{urlencode(said)}" if said else ""),
            body,
            headers,
            twice="more" if nonce is None else "same",
        )
        found = _decode(answer.body)
        id = int(found["id"])
        return Earlier(id, found["earlier"]) if "earlier" in found else id

    async def procedure(self, procedure: int, wait_ms: int) -> ProcedureInfo:
        query = f"?wait_ms={min(wait_ms, WAIT_MS_MAX)}" if wait_ms else ""
        answer = await self._call("GET", f"/v1/procedures/{procedure}{query}", extra_ms=wait_ms)
        return ProcedureInfo.of(answer)

    async def procedures(
        self, *, state: str | None, owner: str | None, name: str | None, before: int | None = None
    ) -> list[ProcedureInfo]:
        asked: Plain = {"state": state, "owner": owner, "name": name}
        found, on = await self.procedure_page(**asked, before=before)
        while on and len(found) < PROCEDURE_LIST_DEFAULT:
            page, on = await self.procedure_page(**asked, before=on)
            found += page
        return found[:PROCEDURE_LIST_DEFAULT]

    async def procedure_page(
        self,
        *,
        state: str | None,
        owner: str | None,
        name: str | None,
        before: int | None,
        seen: Sequence[str] | None = None,  # the server knows who asks
    ) -> tuple[list[ProcedureInfo], int]:
        wanted = {"state": state, "owner": owner, "name": name, "before": before}
        query = urlencode({k: v for k, v in wanted.items() if v is not None})
        answer = await self._call("GET", f"/v1/procedures?{query}")
        return [ProcedureInfo.of(p) for p in answer["items"]], int(answer.get("before", 0))

    async def acknowledge(self, procedure: int) -> None:
        """Nothing to do: over HTTP results are kept for their time."""

    async def workers(self) -> list[dict[str, object]]:
        return list((await self._call("GET", "/v1/workers"))["items"])

    # --------------------------------------------------------------------------------- cluster

    async def cluster(self) -> Plain:
        return dict(await self._call("GET", "/v1/cluster"))

    async def set_settings(self, values: dict[str, int]) -> list[dict[str, object]]:
        body = {"settings": values}
        answer = await self._call(
            "POST", "/v1/cluster", body, twice="same", extra_ms=self._extra_ms
        )
        return list(answer["settings"])

    async def nodes(self) -> list[Plain]:
        return list((await self._call("GET", "/v1/nodes"))["items"])

    async def partitions(self) -> list[dict[str, object]]:
        return list((await self._call("GET", "/v1/partitions"))["items"])

    async def hour(self, after_ms: int = 0) -> list[dict[str, object]]:
        return list((await self._call("GET", f"/v1/hour?after_ms={after_ms}"))["items"])

    async def locks(self, every: bool = False) -> dict[str, object]:
        return dict(await self._call("GET", "/v1/locks?all=true" if every else "/v1/locks"))

    async def sink_attempts(
        self,
        after: str = "",
        seen: Callable[[int], bool] | None = None,  # the server knows who asks
    ) -> tuple[list[SinkAttempt], str]:
        query = f"?{urlencode({'after': after})}" if after else ""
        answer = await self._call("GET", f"/v1/sinks{query}")
        return [SinkAttempt.of(one) for one in answer["items"]], answer.get("after", "")

    async def close(self) -> None:
        for watcher in list(self._watchers):
            await watcher.close()
        self._transport.close()


def _q(part: str | bytes) -> str:
    return quote(part, safe="")


def _kv(ns: str, table: str, key: bytes, params: Mapping[str, str]) -> str:
    target = f"/v1/kv/{_q(ns)}/{_q(table)}/{_q(key)}"
    return f"{target}?{urlencode(params)}" if params else target


def _condition(cond: int | None) -> dict[str, str]:
    if cond is None:
        return {}
    return {"if_version": str(cond)} if cond else {"if_absent": "true"}


def _op(op: BatchOp) -> Plain:
    row: dict[str, object] = {"ns": op.ns, "table": op.table, "key": op.key}
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


def _table(answer: Plain) -> TableInfo:
    columns = tuple(Column(c["name"], c["type"], c["nullable"]) for c in answer["columns"])
    return TableInfo(
        answer["namespace"],
        answer["name"],
        answer["id"],
        columns,
        tuple(answer["primary_key"]),
        answer.get("replicas"),
        tuple(answer.get("tags", ())),
        answer.get("state", "public"),
        answer.get("partition_bytes"),
        *(answer.get(name, "") for name in ("shard", "survive", "leaders")),
    )
