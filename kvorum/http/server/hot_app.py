"""The hot routes as a bare ASGI application, in front of FastAPI: 25 µs a request instead of 150.

Routes: /v1/kv, /v1/batch, /v1/multi-get, /v1/multi-write, /v1/txn, and the streams of /v1/watch
(watch_streams.py). Anything else is passed on to the FastAPI application. Parsing, checks and error
bodies are those of kvorum.http.wire.codec and .fields, which the cold routes use too.

A request is parsed and checked completely before anything is done, so a refused one has changed
nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Final, Protocol
from urllib.parse import unquote_to_bytes

from kv.base.errors import Busy, InvalidArgument, KvorumError, NotFound, to_json
from kv.base.limits import (
    IN_FLIGHT_PER_CONNECTION_MAX,
    SCAN_ROWS_MAX,
    TTL_MS_MAX,
    TXN_TTL_MS_DEFAULT,
    VALUE_BYTES_MAX,
)
from kv.base.rights import PUT, Action
from kvorum.api.backend import Backend, Session
from kvorum.api.model import (
    BatchOp,
    Delete,
    Item,
    Page,
    Put,
    Record,
    ScanSpec,
    TableKey,
    condition,
    user_key,
    user_value,
)
from kvorum.audit.audited_backend import is_refused
from kvorum.http.routes.rights import OPERATE_CLUSTER, SELF
from kvorum.http.server import watch_streams as watch
from kvorum.http.server.authentication import Door, owned
from kvorum.http.server.causal_tokens import CausalTokens
from kvorum.http.server.http_sessions import Sessions
from kvorum.http.wire import fields
from kvorum.http.wire.codec import (
    OCTETS,
    Query,
    Reply,
    path_text,
    plain,
    refusal,
    reply,
    show,
    show_record,
)
from kvorum.http.wire.request import (
    READING,
    Asgi,
    Disconnected,
    Receive,
    Request,
    Scope,
    Send,
    internal,
    no_such_route,
    send_reply,
    wrong_method,
)
from kvorum.local import logs
from kvorum.sdk.database import checked_ops
from procedures.engine.plain_data import Plain
from txn.shared.wait_terms import terms


class Observer(Protocol):
    """Who counts requests (kvorum.http.metrics.metrics)."""

    def observe(self, route: str, status: int, seconds: float) -> None: ...

    def failed(self, route: str, error: BaseException) -> None:
        """An exception that is no KvorumError: a bug of ours, to be logged."""
        ...


Handler = Callable[[Request], Awaitable[Reply]]
READS: Final = watch.READS
_READING_VERBS: Final = (b"get", b"multi-get", b"scan")  # of a transaction
DELETES: Final = frozenset({Action.DELETE})
LOCKS: Final = frozenset({Action.READ, Action.UPDATE})


class HotApi:
    """The ASGI application: hot routes itself, the rest by `behind`."""

    def __init__(
        self,
        backend: Backend,
        sessions: Sessions,
        behind: Asgi,
        observer: Observer,
        monotonic: Callable[[], float],
        watches: watch.Watches,
        door: Door,
        tokens: CausalTokens,
    ) -> None:
        self._backend = backend
        self._tokens = tokens
        self._sessions = sessions
        self._watches = watches
        self._door = door
        self._behind = behind
        self._observer = observer
        self._monotonic = monotonic
        self._in_flight = 0
        self._turns = asyncio.Lock()  # to decode large bodies
        self._exact: dict[bytes, tuple[str, Handler]] = {
            b"/v1/batch": ("/v1/batch", self._batch),
            b"/v1/multi-get": ("/v1/multi-get", self._multi_get),
            b"/v1/multi-write": ("/v1/multi-write", self._multi_write),
            b"/v1/txn": ("/v1/txn", self._begin),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._behind(scope, receive, send)
            return
        path: bytes = scope["raw_path"]
        handler: Handler
        if path.startswith(b"/v1/kv/"):
            route, handler = "/v1/kv", self._kv
        elif path in self._exact:
            route, handler = self._exact[path]
        elif path.startswith(b"/v1/txn/"):
            route, handler = "/v1/txn", self._txn
        elif path.startswith(watch.PATH):
            await self._watches.serve(scope, receive, send)
            return
        elif watch.is_of_procedure(path, scope["headers"]):
            await self._watches.serve_emitted(scope, receive, send)
            return
        else:  # a name's own slashes are still encoded there, and part it from others here
            # FastAPI's routes know GET alone; uvicorn leaves out the body of what was a HEAD.
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            passed = {**scope, "path": path.decode("latin-1"), "method": method}
            await self._behind(passed, receive, send)
            return
        began = self._monotonic()
        self._in_flight += 1
        try:
            answer = await self._answer(route, handler, Request(scope, receive, self._turns))
        except Disconnected:
            return
        finally:
            self._in_flight -= 1
        await send_reply(send, self._tokens.tell(answer) if self._tokens.on else answer)
        seconds = self._monotonic() - began
        self._observer.observe(route, answer.status, seconds)
        if logs.access.isEnabledFor(logging.DEBUG):
            logs.request(scope["method"], path, answer.status, seconds)

    async def _answer(self, route: str, handler: Handler, request: Request) -> Reply:
        try:
            if self._in_flight > IN_FLIGHT_PER_CONNECTION_MAX:
                raise Busy(
                    f"{self._in_flight} HTTP requests are being served, the limit is "
                    f"{IN_FLIGHT_PER_CONNECTION_MAX}; try again later",
                    details={"limit": IN_FLIGHT_PER_CONNECTION_MAX, "actual": self._in_flight},
                )
            if not self._door.trusting() or self._door.tenants.limited:
                request.task = asyncio.current_task()
                await self._door.enter(request)
            if self._tokens.on:
                await self._tokens.hear(request)
            answer = await handler(request)
            request.bytes += len(answer.body)
            return answer
        except KvorumError as e:
            is_refused(e)
            return refusal(e, request.formats.reply)
        except asyncio.CancelledError:
            if (lost := request.cut()) is None:
                raise
            is_refused(lost)
            return refusal(lost, request.formats.reply)
        except Disconnected:
            raise
        except Exception as e:  # noqa: BLE001 - an application boundary: the node must stay up
            self._observer.failed(route, e)
            return refusal(internal(), request.formats.reply)
        finally:
            if request.use is not None:
                self._door.leave(request)

    # -------------------------------------------------------------------------------------- kv

    async def _kv(self, request: Request) -> Reply:
        """/v1/kv/{ns}/{table} and /v1/kv/{ns}/{table}/{key}"""
        parts = request.path[len(b"/v1/kv/") :].split(b"/", 2)
        if len(parts) < 2 or not parts[0] or not parts[1]:
            raise no_such_route(request.path)
        ns, table = path_text(parts[0], "namespace"), path_text(parts[1], "table")
        query = Query(request.query_string)
        if len(parts) == 2:
            if request.method not in READING:
                raise wrong_method(request.method, READING)
            return await self._scan_table(request, ns, table, query)
        key = unquote_to_bytes(parts[2])
        if query.encoded():
            key = fields.from_b64(key.decode("ascii", "replace"), "key")
        key = user_key(key)
        match request.method:
            case "GET" | "HEAD":
                return await self._get(request, ns, table, key, query)
            case "PUT":
                return await self._put(request, ns, table, key, query)
            case "DELETE":
                if_version = query.version("if_version")
                query.done()
                request.needs(DELETES, ns, table)
                cond = condition(False, if_version)
                version = await self._backend.delete(ns, table, key, cond)
                return reply({"version": str(version)}, request.formats.reply)
            case method:
                raise wrong_method(method, (*READING, "PUT", "DELETE"))

    async def _get(self, request: Request, ns: str, table: str, key: bytes, query: Query) -> Reply:
        at = query.snapshot()
        query.done()
        request.needs(READS, ns, table)
        record = await self._backend.get(ns, table, key, at)
        if record is None:
            raise NotFound(
                f"there is no such key in table {ns}.{table}",
                code="KEY_NOT_FOUND",
                details={"ns": ns, "table": table, "key": key},
            )
        return Reply(200, record.value, OCTETS, ((b"etag", b'"%d"' % record.version),))

    async def _put(self, request: Request, ns: str, table: str, key: bytes, query: Query) -> Reply:
        cond, ttl_ms = None, 0
        if request.query_string:
            cond = condition(query.flag("if_absent"), query.version("if_version"))
            ttl_ms = query.integer("ttl_ms", 1, TTL_MS_MAX) or 0
            query.done()
        request.needs(PUT, ns, table)
        value = await request.body(VALUE_BYTES_MAX, "value")
        version = await self._backend.put(ns, table, key, value, cond, ttl_ms)
        return reply({"version": str(version)}, request.formats.reply)

    async def _scan_table(self, request: Request, ns: str, table: str, query: Query) -> Reply:
        b64 = query.encoded()
        spec = ScanSpec(
            prefix=query.data("prefix", b64),
            start=query.data("start", b64),
            end=query.data("end", b64),
            reverse=query.flag("reverse"),
            limit=query.integer("limit", 1, SCAN_ROWS_MAX) or 0,
            cursor=query.text("cursor"),
            at=query.snapshot(),
        )
        query.done()
        request.needs(READS, ns, table)
        page = await self._backend.scan(ns, table, spec)
        request.rows = len(page.items)
        packed = request.formats.reply
        return reply({**_show_page(page, packed), "at": str(page.at)}, packed)

    # ------------------------------------------------------------------------------- many keys

    async def _batch(self, request: Request) -> Reply:
        ops = parse_ops(await _post(request, fields.OPS))
        _may_write(request, ops)
        version = await self._backend.batch(ops)
        return reply({"version": str(version)}, request.formats.reply)

    async def _multi_write(self, request: Request) -> Reply:
        ops = parse_ops(await _post(request, fields.OPS))
        _may_write(request, ops)
        packed = request.formats.reply
        results = [
            {"version": str(r)} if isinstance(r, int) else plain(to_json(r), packed)
            for r in await self._backend.multi_write(ops)
        ]
        return reply({"results": results}, packed)

    async def _multi_get(self, request: Request) -> Reply:
        body = await _post(request, fields.MULTI_GET)
        request.changes = False
        keys = [TableKey(k["ns"], k["table"], user_key(k["key"])) for k in body["keys"]]
        _may_read(request, keys)
        records, at = await self._backend.multi_get(keys, body.get("at", 0))
        packed = request.formats.reply
        items = [show_record(r, packed) for r in records]
        return reply({"items": items, "at": str(at)}, packed)

    # ---------------------------------------------------------------------------- transactions

    async def _begin(self, request: Request) -> Reply:
        await self._door.check(request, SELF, {}, None)
        body = await _post(request, fields.BEGIN)
        session = await self._sessions.begin(
            request.identity.name,
            self._door.standing(request),
            ttl_ms=body.get("ttl_ms", TXN_TTL_MS_DEFAULT),
            isolation=body.get("isolation", "snapshot"),
            terms=terms(
                owner=body.get("owner", ""),
                priority=body.get("priority", "normal"),
                lock_wait_ms=body.get("lock_wait_ms"),
            ),
        )
        answer = {"txn": str(session.id), "start_ts": str(session.start_ts)}
        return reply(answer, request.formats.reply)

    async def _txn(self, request: Request) -> Reply:
        """/v1/txn/{id} and /v1/txn/{id}/{verb}"""
        parts = request.path[len(b"/v1/txn/") :].split(b"/")
        await self._door.check(request, SELF, {}, None)
        txn = fields.VERSION.convert(path_text(parts[0], "transaction id"), "transaction id")
        if len(parts) == 1:
            if request.method not in READING:
                raise wrong_method(request.method, READING)
            Query(request.query_string).done()
            state = await self._sessions.status(txn)
            shown = {"status": state.status}
            if state.commit_ts:
                shown["commit_ts"] = str(state.commit_ts)
            return reply(shown, request.formats.reply)
        verb = parts[1] if len(parts) == 2 else b""
        handler = self._txn_verbs.get(verb)
        if handler is None:
            raise no_such_route(request.path)
        if request.method != "POST":
            raise wrong_method(request.method, ("POST",))
        request.changes = verb not in _READING_VERBS
        return reply(await handler(self, txn, request), request.formats.reply)

    async def _txn_get(self, txn: int, request: Request) -> object:
        body = await request.fields(fields.KEY)
        key = user_key(body["key"])
        request.needs(READS, body["ns"], body["table"])
        session = await self._session(txn, request)
        record = await session.get(body["ns"], body["table"], key)
        if record is None:
            return {"value": None, "version": None}
        return _show_own(record, request.formats.reply)

    async def _txn_multi_get(self, txn: int, request: Request) -> object:
        body = await request.fields(fields.TXN_MULTI_GET)
        keys = [TableKey(k["ns"], k["table"], user_key(k["key"])) for k in body["keys"]]
        _may_read(request, keys)
        session = await self._session(txn, request)
        packed = request.formats.reply
        records = await session.multi_get(keys)
        return {"items": [None if r is None else _show_own(r, packed) for r in records]}

    async def _txn_put(self, txn: int, request: Request) -> object:
        body = await request.fields(fields.TXN_PUT)
        key, value = user_key(body["key"]), user_value(body["value"])
        cond = condition(body.get("if_absent", False), body.get("if_version"))
        request.needs(PUT, body["ns"], body["table"])
        session = await self._session(txn, request)
        await session.put(body["ns"], body["table"], key, value, cond, body.get("ttl_ms", 0))
        return {}

    async def _txn_delete(self, txn: int, request: Request) -> object:
        body = await request.fields(fields.TXN_DELETE)
        key = user_key(body["key"])
        cond = condition(False, body.get("if_version"))
        request.needs(DELETES, body["ns"], body["table"])
        session = await self._session(txn, request)
        await session.delete(body["ns"], body["table"], key, cond)
        return {}

    async def _txn_lock(self, txn: int, request: Request) -> object:
        body = await request.fields(fields.TXN_LOCK)
        key = user_key(body["key"])
        request.needs(LOCKS, body["ns"], body["table"])
        how = body.get("wait", "wait"), body.get("strength", "update")
        session = await self._session(txn, request)
        with self._sessions.waiting(txn):
            record = await session.lock(body["ns"], body["table"], key, *how)
        if record is None:
            return {"value": None, "version": None}
        return _show_own(record, request.formats.reply)

    async def _txn_scan(self, txn: int, request: Request) -> object:
        body = await request.fields(fields.SCAN)
        ns, table = body.pop("ns"), body.pop("table")
        request.needs(READS, ns, table)
        session = await self._session(txn, request)
        page = await session.scan(ns, table, ScanSpec(**body))
        request.rows = len(page.items)
        return _show_page(page, request.formats.reply)

    async def _txn_commit(self, txn: int, request: Request) -> object:
        await request.fields(fields.NOTHING)
        self._own(txn, request)
        return {"version": str(await self._sessions.commit(txn))}

    async def _txn_abort(self, txn: int, request: Request) -> object:
        await request.fields(fields.NOTHING)
        if self._sessions.owner(txn) != request.identity.name:
            await self._door.check(request, OPERATE_CLUSTER, {}, None)
        await self._sessions.abort(txn)
        return {}

    async def _txn_heartbeat(self, txn: int, request: Request) -> object:
        await request.fields(fields.NOTHING)
        await (await self._session(txn, request)).heartbeat()
        return {}

    async def _session(self, txn: int, request: Request) -> Session:
        """Of one that who asks has begun. Raises Forbidden, too."""
        self._own(txn, request)
        return await self._sessions.get(txn, self._door.standing(request))

    def _own(self, txn: int, request: Request) -> None:
        owner = self._sessions.owner(txn)
        if owner is not None:
            owned(request, owner, f"transaction {txn}")

    _txn_verbs: ClassVar[dict[bytes, Callable[[HotApi, int, Request], Awaitable[object]]]] = {
        b"get": _txn_get,
        b"multi-get": _txn_multi_get,
        b"put": _txn_put,
        b"delete": _txn_delete,
        b"scan": _txn_scan,
        b"lock": _txn_lock,
        b"commit": _txn_commit,
        b"abort": _txn_abort,
        b"heartbeat": _txn_heartbeat,
    }


async def _post(request: Request, table: fields.Fields) -> Plain:
    if request.method != "POST":
        raise wrong_method(request.method, ("POST",))
    return await request.fields(table)


def parse_ops(body: Plain) -> list[BatchOp]:
    """The ops of a batch body, checked. Raises InvalidArgument, TooLarge naming the op."""
    ops: list[BatchOp] = []
    for i, op in enumerate(body["ops"]):
        kind, ns, table, key = op["op"], op["ns"], op["table"], op["key"]
        if kind == "put":
            if "value" not in op:
                raise InvalidArgument(f"ops[{i}] is a put without a value")
            ops.append(
                Put(
                    ns,
                    table,
                    key,
                    op["value"],
                    op.get("if_absent", False),
                    op.get("if_version"),
                    op.get("ttl_ms", 0),
                    _fence(op),
                )
            )
            continue
        extra = op.keys() & {"value", "if_absent", "ttl_ms"}
        if extra:
            raise InvalidArgument(f"ops[{i}] is a delete and takes no {min(extra)}")
        ops.append(Delete(ns, table, key, op.get("if_version"), _fence(op)))
    return checked_ops(ops)


def _may_read(request: Request, keys: Sequence[TableKey]) -> None:
    """Raises Forbidden, Busy."""
    if request.use is not None:
        request.rows = len(keys)
        for ns, table in dict.fromkeys((key.ns, key.table) for key in keys):
            request.needs(READS, ns, table)


def _may_write(request: Request, ops: Sequence[BatchOp]) -> None:
    """Raises Forbidden, Busy: then none is done."""
    if request.use is not None:
        request.rows = len(ops)
        for kind, ns, table in dict.fromkeys((type(op), op.ns, op.table) for op in ops):
            request.needs(PUT if kind is Put else DELETES, ns, table)


def _fence(op: Plain) -> tuple[str, int] | None:
    fence = op.get("fence")
    return None if fence is None else (fence["resource"], fence["token"])


def _show_own(record: Record, packed: bool) -> dict[str, object]:
    """A record that a transaction reads: what it wrote itself has no version before it commits."""
    version = str(record.version) if record.version else None
    return {"value": show(record.value, packed), "version": version}


def _show_page(page: Page, packed: bool) -> dict[str, object]:
    def row(item: Item) -> Plain:
        version = str(item.version) if item.version else None
        return {
            "key": show(item.key, packed),
            "value": show(item.value, packed),
            "version": version,
        }

    shown: dict[str, object] = {"items": [row(item) for item in page.items]}
    if page.cursor is not None:
        shown["cursor"] = page.cursor
    return shown
