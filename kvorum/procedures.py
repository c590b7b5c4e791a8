"""Procedures without a cluster: durable in a directory of this process, nothing else to run.

    from kvorum import procedures

    with procedures.open("directory", procedures=[Transfer]) as p:
        id = p.submit(Transfer, {"amount": 30}, nonce="order 17")
        print(p.wait(id))

One process at a time has the directory; what had not ended when it stopped, or was killed, goes on
when it is opened again. docs/guides/embedded-procedures.md says what a node has beyond this.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from kv.base import limits
from kv.base.adapters import LoopTimers, SystemClock
from kvorum.api.model import ProcedureInfo
from kvorum.api.outcome import answer_of, result_of
from kvorum.api.procedure_events import ProcedureEvent
from kvorum.sdk.portal import Portal
from procedures.engine import plain_data
from procedures.engine.executor import Executor
from procedures.engine.plain_data import Plain
from procedures.engine.registry import Declared, declaration
from procedures.engine.service import ProcedureService
from procedures.engine.submission import Submission
from procedures.pools.talk import Talk
from procedures.wal.embedded import serving
from procedures.wal.journal import Terms
from procedures.wal.store import WalStore

_OWNER = "embedded"


class AsyncProcedures:
    """The procedures of one directory, on the running loop."""

    def __init__(self, executor: Executor, store: WalStore) -> None:
        timers = LoopTimers(asyncio.get_running_loop())
        self.executor = executor
        self.store = store
        self._service = ProcedureService(executor, SystemClock(), timers)
        self._talk = Talk(executor, store)

    @property
    def recovered(self) -> str:
        """What was found when the directory was opened, in a sentence."""
        return self.store.report.text()

    async def submit(self, name: str | Declared, args: object = None, *, nonce: str = "") -> int:
        """Start a procedure, by name or by what declares it; its id. The same nonce gives the same
        one, as long as it is kept; with other arguments it is refused (NONCE_REUSED).
        """
        name = name if isinstance(name, str) else declaration(name).name
        return await self.executor.submit(Submission(name, args, _OWNER, nonce))

    async def wait(self, procedure: int, *, timeout_ms: int | None = None) -> Any:
        """The result, once there is one. Raises the error that ended it, DeadlineExceeded."""
        left_ms = timeout_ms
        while True:
            wait_ms = limits.WAIT_MS_MAX if left_ms is None else min(left_ms, limits.WAIT_MS_MAX)
            info = await self.procedure(procedure, wait_ms=wait_ms)
            left_ms = None if left_ms is None else left_ms - wait_ms
            if info.finished or left_ms == 0:
                return result_of(info, timeout_ms or 0)

    async def procedure(self, procedure: int, *, wait_ms: int = 0) -> ProcedureInfo:
        """What a procedure is doing; waits up to `wait_ms` for its end."""
        return ProcedureInfo.of(await self._service.get(procedure, wait_ms=wait_ms))

    async def procedures(
        self, *, state: str | None = None, name: str | None = None
    ) -> list[ProcedureInfo]:
        """The newest PROCEDURE_LIST_DEFAULT that fit, those that ended and are kept included."""
        wanted: Plain = {"state": state, "name": name}
        rows, before = await self._service.page(wanted)
        while before:
            left = limits.PROCEDURE_LIST_DEFAULT - len(rows)
            more, before = await self._service.page(wanted | {"limit": left, "before": before})
            rows += more
        return [ProcedureInfo.of(plain_data.read(row, "a procedure")) for row in rows]

    async def signal(self, event: str) -> None:
        """Wake everything that is suspended on `event`."""
        self.executor.signal(event)

    async def send(
        self, procedure: int, name: str, payload: object = None, *, key: str | None = None
    ) -> bool:
        """Send a signal to a running procedure; its step takes it with `ctx.receive(name)`. The
        same `key` is sent once (False: it was there already). Raises NotFound, Refused (ENDED).
        """
        request = {"id": procedure, "name": name, "payload": payload, "key": key}
        return bool((await self._talk.signal(request))["sent"])

    async def complete(self, token: str, result: object = None, *, error: object = None) -> bool:
        """End what a procedure asked of an outside system. Raises Refused (ALREADY_COMPLETED)."""
        request = {"token": token, "result": result, "error": error}
        return bool((await self._talk.complete(request))["completed"])

    async def query(self, procedure: int, name: str, args: object = None) -> Any:
        """What a procedure answers from what it has stored (`@kvorum.query`)."""
        return (await self._talk.query({"id": procedure, "name": name, "args": args}))["result"]

    async def update(
        self, procedure: int, name: str, args: object = None, *, key: str, timeout_ms: int
    ) -> Any:
        """Send an update to a running procedure and wait for its answer. Raises what it refuses it
        with, Refused (ENDED), DeadlineExceeded: ask again with the same key.
        """
        request = {"id": procedure, "name": name, "args": args, "key": key, "wait_ms": timeout_ms}
        return answer_of(await self._talk.update(request), procedure, name, key, timeout_ms)

    async def events(
        self, procedure: int, *, after: int = 0, timeout_ms: int = 0
    ) -> list[ProcedureEvent]:
        """What it emitted above a position, some at once; waits so long if there is nothing. Raises
        NotFound.
        """
        found = await self._talk.events({"id": procedure, "after": after, "wait_ms": timeout_ms})
        return [ProcedureEvent(**one) for one in found["items"]]

    async def acknowledge(self, procedure: int) -> None:
        """The result was fetched: the procedure may be forgotten."""
        await self.executor.acknowledge(procedure)

    async def abort(self, procedure: int, reason: str) -> None:
        """Make it fail and roll back. Raises Refused when it cannot any more."""
        await self.executor.abort(procedure, reason)


@asynccontextmanager
async def aopen(
    directory: str | os.PathLike[str],
    *,
    procedures: Iterable[Declared],
    workers: int = limits.PROCEDURE_WORKERS_DEFAULT,
    terms: Terms | None = None,
) -> AsyncIterator[AsyncProcedures]:
    """The procedures of a directory, on the running loop, until the block ends.

    Raises InvalidArgument (in use, or not ours), Corruption (file and offset), Refused.
    """
    async with serving(directory, procedures, terms=terms, workers=workers) as (executor, store):
        yield AsyncProcedures(executor, store)


class Procedures:
    """The same for any thread, without `await`. `close` it, or use it in a `with` block."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        procedures: Iterable[Declared],
        workers: int,
        terms: Terms | None,
    ) -> None:
        self._portal = Portal("kvorum-procedures")
        self._stop: asyncio.Event | None = None
        self._life: asyncio.Task[None] | None = None
        try:
            self._inner = self._portal.call(self._begin(directory, procedures, workers, terms))
        except BaseException:
            self._portal.close()
            raise

    async def _begin(
        self,
        directory: str | os.PathLike[str],
        procedures: Iterable[Declared],
        workers: int,
        terms: Terms | None,
    ) -> AsyncProcedures:
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[AsyncProcedures] = loop.create_future()
        self._stop = stop = asyncio.Event()

        async def life() -> None:  # one task enters and leaves: the executor's group wants that
            try:
                opened = aopen(directory, procedures=procedures, workers=workers, terms=terms)
                async with opened as inner:
                    begun.set_result(inner)
                    await stop.wait()
            except BaseException as error:
                if begun.done():
                    raise
                begun.set_exception(error)

        self._life = loop.create_task(life())
        return await begun

    @property
    def recovered(self) -> str:
        """What was found when the directory was opened, in a sentence."""
        return self._inner.recovered

    def submit(self, name: str | Declared, args: object = None, *, nonce: str = "") -> int:
        """Start a procedure, by name or by what declares it; its id. The same nonce gives the same
        one, as long as it is kept; with other arguments it is refused (NONCE_REUSED).
        """
        return self._portal.call(self._inner.submit(name, args, nonce=nonce))

    def wait(self, procedure: int, *, timeout_ms: int | None = None) -> Any:
        """The result, once there is one. Raises the error that ended it, DeadlineExceeded."""
        return self._portal.call(self._inner.wait(procedure, timeout_ms=timeout_ms))

    def procedure(self, procedure: int, *, wait_ms: int = 0) -> ProcedureInfo:
        """What a procedure is doing; waits up to `wait_ms` for its end."""
        return self._portal.call(self._inner.procedure(procedure, wait_ms=wait_ms))

    def procedures(
        self, *, state: str | None = None, name: str | None = None
    ) -> list[ProcedureInfo]:
        """The newest PROCEDURE_LIST_DEFAULT that fit, those that ended and are kept included."""
        return self._portal.call(self._inner.procedures(state=state, name=name))

    def signal(self, event: str) -> None:
        """Wake everything that is suspended on `event`."""
        self._portal.call(self._inner.signal(event))

    def send(
        self, procedure: int, name: str, payload: object = None, *, key: str | None = None
    ) -> bool:
        """Send a signal to a running procedure; its step takes it with `ctx.receive(name)`. The
        same `key` is sent once (False: it was there already). Raises NotFound, Refused (ENDED).
        """
        return self._portal.call(self._inner.send(procedure, name, payload, key=key))

    def complete(self, token: str, result: object = None, *, error: object = None) -> bool:
        """End what a procedure asked of an outside system. Raises Refused (ALREADY_COMPLETED)."""
        return self._portal.call(self._inner.complete(token, result, error=error))

    def query(self, procedure: int, name: str, args: object = None) -> Any:
        """What a procedure answers from what it has stored (`@kvorum.query`)."""
        return self._portal.call(self._inner.query(procedure, name, args))

    def update(
        self, procedure: int, name: str, args: object = None, *, key: str, timeout_ms: int
    ) -> Any:
        """Send an update to a running procedure and wait for its answer. Raises what it refuses it
        with, Refused (ENDED), DeadlineExceeded: ask again with the same key.
        """
        asked = self._inner.update(procedure, name, args, key=key, timeout_ms=timeout_ms)
        return self._portal.call(asked)

    def events(
        self, procedure: int, *, after: int = 0, timeout_ms: int = 0
    ) -> list[ProcedureEvent]:
        """What it emitted above a position, some at once; waits so long if there is nothing. Raises
        NotFound.
        """
        return self._portal.call(self._inner.events(procedure, after=after, timeout_ms=timeout_ms))

    def acknowledge(self, procedure: int) -> None:
        """The result was fetched: the procedure may be forgotten."""
        self._portal.call(self._inner.acknowledge(procedure))

    def abort(self, procedure: int, reason: str) -> None:
        """Make it fail and roll back. Raises Refused when it cannot any more."""
        self._portal.call(self._inner.abort(procedure, reason))

    def close(self) -> None:
        """Let running steps end, write all, and let others have the directory."""
        if not self._portal.usable:
            return
        try:
            self._portal.call(self._end())
        finally:
            self._portal.close()

    async def _end(self) -> None:
        assert self._stop is not None
        assert self._life is not None
        self._stop.set()
        await self._life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open(
    directory: str | os.PathLike[str],
    *,
    procedures: Iterable[Declared],
    workers: int = limits.PROCEDURE_WORKERS_DEFAULT,
    terms: Terms | None = None,
) -> Procedures:
    """The procedures of a directory, on a loop in a thread of its own; see `aopen`."""
    return Procedures(directory, procedures, workers, terms)


__all__ = [
    "AsyncProcedures",
    "ProcedureInfo",
    "Procedures",
    "Terms",
    "aopen",
    "open",
]
