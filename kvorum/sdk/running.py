"""Procedures: started, sent signals, limited, looked at and waited for (docs/guides/procedures.md).
What operators do to them: operating.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import Any

from kv.base.errors import DeadlineExceeded, Refused
from kv.base.limits import UPDATE_WAIT_MS, WAIT_MS_MAX
from kv.base.ports import Rng
from kvorum.api.backend import Backend
from kvorum.api.handles import A, Enqueued, Handle, T, Workflow
from kvorum.api.model import ProcedureInfo
from kvorum.api.outcome import answer_of, result_of
from kvorum.api.procedure_events import AsyncProcedureEvents
from kvorum.api.submit_options import queue_options, start_options, submitted
from kvorum.sdk.operating import myself
from kvorum.sdk.operation_deadlines import MARGIN_MS
from kvorum.sdk.tables import snapshot_at
from procedures.engine.client import Earlier
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import procedure_name
from procedures.engine.records import Record as ProcedureRecord
from procedures.engine.records import decode as decode_record
from procedures.engine.registry import Declared


def _whole_s(timeout_ms: int) -> float:
    """A node that lives answers before it."""
    return (timeout_ms + MARGIN_MS) / 1000


class AsyncRunning:
    """A part of `AsyncDatabase`."""

    _backend: Backend
    _rng: Rng
    patience_ms: int | None

    async def submit(
        self,
        name: str | Declared,
        args: object = None,
        *,
        nonce: str | None = None,
        queue: str = "",
        priority: int | None = None,
        delay_ms: int = 0,
        at: datetime | int | None = None,
        pool: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> int:
        """Start a procedure, by name or by what declares it; its id. The same nonce gives the same
        one as long as it is kept: until it has ended and its result was acknowledged, or
        `retention_ms` after its end (over HTTP nothing is acknowledged). Then the nonce is free,
        and starts another one. Raises Refused (NONCE_REUSED) if the nonce is that of another
        procedure, or of other arguments. `attributes`: by which it can be found (`search`), of
        those that its declaration names.
        """
        options = start_options(queue, priority, delay_ms, at, pool, attributes)
        args = submitted(name, args)
        return await self._backend.submit(procedure_name(name), args, nonce, options or None)

    async def enqueue(
        self,
        name: str | Declared,
        args: object = None,
        *,
        queue: str = "",
        key: str = "",
        dedup: str = "",
        dedup_ms: int = 0,
        debounce_ms: int = 0,
        debounce_max_ms: int = 0,
        debounce: str = "last",
        needs: Mapping[str, float | str] | None = None,
        nonce: str | None = None,
        priority: int | None = None,
        delay_ms: int = 0,
        at: datetime | int | None = None,
        pool: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> Enqueued:
        """`submit`, with what queues can do (docs/guides/queues.md); whether an earlier one stands
        for it.

        key          of one key the queue runs one at a time (its `key_concurrent`), in the order of
                     submission, and keys take turns
        dedup        for `dedup_ms` after the first submission with this text it is the one; others
                     start nothing
        debounce_ms  begin so long after the last submission of this key, at most
                     `debounce_max_ms` after the first, with the arguments of the "last" or the
                     "first"
        needs        of the worker that runs it: amounts and labels
        """
        options = start_options(queue, priority, delay_ms, at, pool, attributes)
        options |= queue_options(
            key=key,
            dedup=dedup,
            dedup_ms=dedup_ms,
            debounce_ms=debounce_ms,
            debounce_max_ms=debounce_max_ms,
            debounce=debounce if debounce_ms else "",
            needs=needs,
        )
        given = submitted(name, args)
        id = await self._backend.submit(procedure_name(name), given, nonce, options or None)
        return Enqueued(int(id), id.why if isinstance(id, Earlier) else "")

    async def start(
        self,
        workflow: Workflow[A, T],
        args: A,
        *,
        nonce: str | None = None,
        queue: str = "",
        key: str = "",
        priority: int | None = None,
        delay_ms: int = 0,
        at: datetime | int | None = None,
        pool: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> Handle[T]:
        """`submit` of a workflow by its function, with the types that its annotations say;
        the handle has its id, and `result(handle)` gives what it returns.
        """
        options = start_options(queue, priority, delay_ms, at, pool, attributes)
        options |= queue_options(key=key)
        given = submitted(workflow, args)
        name = procedure_name(workflow)
        return Handle(await self._backend.submit(name, given, nonce, options or None), workflow)

    async def result(self, handle: Handle[T], *, timeout_ms: int | None = None) -> T:
        """`wait`, for what `start` gave: the result as its type. Raises as `wait` does."""
        return handle.read(await self.wait(handle.id, timeout_ms=timeout_ms))

    async def signal(
        self, procedure: int, name: str, payload: object = None, *, key: str | None = None
    ) -> bool:
        """Send a signal to a running procedure; its step takes it with `ctx.receive(name)`. The
        same `key` is sent once (False: it was there already). Raises NotFound, Refused (ENDED).
        """
        request = {"id": procedure, "name": name, "payload": payload}
        request["key"] = key or self._rng.token(12).hex()
        return bool((await self._backend.control("signal", request))["sent"])

    async def signal_with_start(
        self,
        name: str | Declared,
        args: object = None,
        *,
        nonce: str,
        signal: str,
        payload: object = None,
        key: str | None = None,
        queue: str = "",
        priority: int | None = None,
        pool: str = "",
    ) -> int:
        """Send a signal to the procedure that has this nonce, which is started if there is none, in
        one write with it; its id. To be repeated with the same `nonce` and `key`: it is started
        once, and gets the signal once. Raises as `submit` and `signal` do: Refused (ENDED) while
        one of this nonce is kept that has ended.
        """
        options = start_options(queue, priority, 0, None, pool)
        said = {"name": signal, "payload": payload, "key": key or self._rng.token(12).hex()}
        given = submitted(name, args)
        return await self._backend.submit(
            procedure_name(name), given, nonce, {**options, "signal": said}
        )

    async def query(self, procedure: int, name: str, args: object = None) -> Any:
        """What a procedure answers from what it has stored (`@kvorum.query`), whatever it does
        meanwhile, or how it ended. Raises NotFound, InvalidArgument (QUERY_UNKNOWN), Refused,
        Unavailable (no worker that has its code).
        """
        request = {"id": procedure, "name": name, "args": args}
        return (await self._backend.control("query", request))["result"]

    async def update(
        self,
        procedure: int,
        name: str,
        args: object = None,
        *,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send an update to a running procedure and wait for what it answers (`ctx.answer`). With
        the same `key` it is carried out once, and gives the same answer. `timeout_ms` left out:
        that of `connect`, else for ever. Raises what it refuses it with, Refused (ENDED: without an
        answer), DeadlineExceeded: then it may still be carried out, ask again with the same key.
        Raises what its validator says of it (UPDATE_REFUSED, or that one's code): then nothing is.
        """
        timeout_ms = self.patience_ms if timeout_ms is None else timeout_ms
        request: Plain = {"id": procedure, "name": name, "args": args}
        request["key"] = key = key or self._rng.token(12).hex()
        left_ms = timeout_ms
        while True:
            request["wait_ms"] = UPDATE_WAIT_MS if left_ms is None else min(left_ms, UPDATE_WAIT_MS)
            found = await self._backend.control("update", request)
            left_ms = None if left_ms is None else left_ms - request["wait_ms"]
            if found["done"] or (left_ms is not None and left_ms <= 0):
                return answer_of(found, procedure, name, key, timeout_ms or 0)

    def events(
        self, procedure: int, *, after: int = 0, name: str = "", follow: bool = True
    ) -> AsyncProcedureEvents:
        """What a procedure emits (`ctx.emit`, `flow.emit`), in order and each once: `async for
        event in db.events(id)`. Above position `after`, which is where to go on after a break; only
        those of this `name`. Ends with the procedure; without `follow` once all that is there was
        given. Raises NotFound (PROCEDURE_NOT_FOUND): it is forgotten, and its events with it.
        """

        def ask(after: int, wait_ms: int) -> Awaitable[Any]:
            asked = {"id": procedure, "after": after, "name": name, "wait_ms": wait_ms}
            return self._backend.control("events", asked)

        return AsyncProcedureEvents(ask, after, follow=follow)

    async def complete(self, token: str, result: object = None, *, error: object = None) -> bool:
        """End what a procedure asked of an outside system (`ctx.external()` gave the token), with a
        result or an error. Raises Refused (ALREADY_COMPLETED: otherwise; ENDED).
        """
        request = {"token": token, "result": result, "error": error}
        return bool((await self._backend.control("complete", request))["completed"])

    async def set_limit(
        self,
        name: str,
        *,
        kind: str = "queue",
        max_concurrent: int = 0,
        rate_per_s: float = 0,
        rate: str = "",
        burst: int = 0,
        key_concurrent: int = 1,
        key_rate: str = "",
        key_burst: int = 0,
        aging_ms: int = 0,
        weights: Mapping[str, int] | None = None,
    ) -> Plain:
        """Limit how many procedures of a queue (or "type", or "pool") may have begun and not ended,
        and how many begin per second, or `rate`: "100/1h"; 0 = no limit. What is left out is as if
        it had never been set.

        burst                           so many at once after a pause; 0 = one second's worth
        key_concurrent, _rate, _burst   the same of each key of a queue; key_concurrent 0 = any
                                        number
        aging_ms                        waiting for so long counts as one priority; 0 = not
        weights                         key → how many turns it has, in place of 1
        """
        request: dict[str, object] = {"name": name, "kind": kind, "max_concurrent": max_concurrent}
        request["rate_per_s"] = rate_per_s
        more: dict[str, object] = {"rate": rate, "burst": burst, "key_rate": key_rate}
        more |= {"key_burst": key_burst, "aging_ms": aging_ms, "weights": dict(weights or {})}
        request |= {what: value for what, value in more.items() if value}  # older nodes know less
        if key_concurrent != 1:
            request["key_concurrent"] = key_concurrent
        return dict(await self._backend.control("queue.set", request))

    async def queue(self, name: str) -> Plain:
        """What waits in a queue: how many, the oldest, and the same of each key (of the
        QUEUE_KEYS_SHOWN_MAX that have most).
        """
        return dict(await self._backend.control("queue.show", {"name": name}))

    async def queues(self) -> list[Plain]:
        """Everything that has a limit, or waits for one: how many run, how many wait."""
        return list(await self._backend.control("queue.list", {}))

    async def versions(self, name: str | Declared | None = None) -> list[Plain]:
        """The versions of procedure types, or of one: how many live procedures each has, its share
        of new ones, which workers have it, and whether these are safe to stop.
        """
        of = None if name is None else procedure_name(name)
        return list((await self._backend.control("version.page", {"name": of}))["items"])

    async def set_version(
        self,
        name: str | Declared,
        *,
        default: int | None = None,
        ramp: int | None = None,
        percent: float | None = None,
        drain: int | None = None,
        undrain: int | None = None,
    ) -> Plain:
        """Choose the version that new procedures of a type begin with: the `default` (0 = the
        newest), and `percent` of them with `ramp` (0 = none). `drain`: none begins with this one
        any more; `undrain`: they may again. What is left out stays as it is.
        """
        request: dict[str, object] = {"default": default, "ramp": ramp, "percent": percent}
        request |= {"drain": drain, "undrain": undrain}
        said = {what: value for what, value in request.items() if value is not None}
        said["name"] = procedure_name(name)
        return dict(await self._backend.control("version.set", said))

    async def roll_back_version(self, name: str | Declared) -> Plain:
        """New procedures of a type begin with the version that they began with before."""
        request = {"name": procedure_name(name)}
        return dict(await self._backend.control("version.rollback", request))

    async def move_version(
        self,
        name: str | Declared,
        to: int,
        *,
        from_: int = 0,
        dry_run: bool = False,
        partial: bool = False,
        reason: str = "",
    ) -> Plain:
        """Let live procedures of a type (of version `from_`, 0 = of all others) go on with another
        version, where the rule of `kvorum proc check-upgrade` allows it. Raises Refused
        (NOT_MOVABLE, with their ids): some cannot, and none is moved (`partial`: the others are).
        """
        request: dict[str, object] = {"name": procedure_name(name), "to": to, "from": from_ or None}
        request |= {"reason": reason or None, "actor": myself(), "dry_run": True, "partial": True}
        found = await self._moves(request)
        if dry_run:
            return found
        if found["refused"] and not partial:
            first = ", ".join(one["id"] for one in found["refused"][:10])
            raise Refused(
                f"{len(found['refused'])} of {found['count']} live procedures of {request['name']} "
                f"cannot go on with version {to} ({first}): {found['refused'][0]['why']}; keep "
                "workers of their version, or move the others (partial=True)",
                code="NOT_MOVABLE",
                details={"refused": found["refused"]},
            )
        return await self._moves(request | {"dry_run": False})

    async def _moves(self, request: dict[str, object]) -> Plain:
        """Request after request, for there may be many."""
        found: Plain = {}
        after = ""
        while True:
            page = await self._backend.control("version.move", request | {"after": after or None})
            after = str(page.pop("after"))
            for what in ("moved", "count", "refused"):
                page[what] = page[what] if not found else found[what] + page[what]
            found = page
            if after in ("", "0"):
                return found

    async def procedure(
        self, procedure: int, *, wait_ms: int = 0, at: int | str | None = None
    ) -> ProcedureInfo:
        """What a procedure is doing; waits up to `wait_ms` for its end. `at`: what its record said
        then, as `at` of a read; also of one that is forgotten by now. Raises SnapshotTooOld.
        """
        if at is None:
            return await self._backend.procedure(procedure, wait_ms)
        request = {"id": procedure, "at": str(snapshot_at(at))}
        return ProcedureInfo.of(await self._backend.control("past", request))

    async def wait(self, procedure: int, *, timeout_ms: int | None = None) -> Any:
        """The result of a procedure, once it has one. `timeout_ms` left out: that of `connect`, if
        one was given there, else for ever. Raises the error that ended it, DeadlineExceeded in
        time: then it goes on.
        """
        timeout_ms = self.patience_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(None if timeout_ms is None else _whole_s(timeout_ms)):
                return await self._waited(procedure, timeout_ms)
        except TimeoutError:
            raise DeadlineExceeded(
                f"procedure {procedure}: no node answered within {timeout_ms} ms; it goes on if it "
                "has not ended: wait again, or longer (wait(…, timeout_ms=…))",
                details={"procedure": str(procedure)},
            ) from None

    async def _waited(self, procedure: int, timeout_ms: int | None) -> Any:
        left_ms = timeout_ms
        while True:
            wait_ms = WAIT_MS_MAX if left_ms is None else min(left_ms, WAIT_MS_MAX)
            info = await self._backend.procedure(procedure, wait_ms)
            left_ms = None if left_ms is None else left_ms - wait_ms
            if info.finished or left_ms == 0:
                return result_of(info, timeout_ms or 0)

    async def acknowledge(self, procedure: int) -> None:
        """Tell that the result was fetched: the procedure may be forgotten."""
        await self._backend.acknowledge(procedure)

    async def procedures(
        self, *, state: str | None = None, owner: str | None = None, name: str | None = None
    ) -> list[ProcedureInfo]:
        return await self._backend.procedures(state=state, owner=owner, name=name)

    async def live_records(self) -> list[ProcedureRecord]:
        """The durable records of everything that has not ended. Not over HTTP."""
        found: list[ProcedureRecord] = []
        after: int | None = 0
        while after is not None:
            page, after = await self._backend.control("live", {"after": after})
            found += [decode_record(row, "a live procedure") for row in page]
        return found

    async def workers(self) -> list[Plain]:
        """The worker processes that are here: pool, slots, what each runs."""
        return await self._backend.workers()
