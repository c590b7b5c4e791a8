"""Statements over HTTP (kvorum/sql/http_statements.py), over sessions of this test's own: how many
at once, what a session is told, and that nothing runs on for who has hung up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kv.base.errors import Busy, DeadlineExceeded, KvorumError, Unauthenticated, UnknownOutcome
from kv.base.limits import (
    SQL_HTTP_NOTICES_BYTES_MAX,
    SQL_HTTP_STATEMENTS_MAX,
    SQL_HTTP_STATEMENTS_OF_USER_MAX,
)
from kv.base.rights import Identity
from kvorum.sql.http_statements import Statements
from sqlproxy.pg import oids
from sqlproxy.pg.answers import Field
from sqlproxy.values.errors import SqlError
from sqlproxy.wire.seam import Channel, Notice


class Session:
    """Answers one row, when `go` is set."""

    status = "I"

    def __init__(self, go: asyncio.Event, settings: Mapping[str, str]) -> None:
        self._go, self.settings = go, settings
        self.channel = Channel()
        self.cancelled, self.closed = asyncio.Event(), False
        self.cancel = self.cancelled.set

    async def split(self, text: str) -> list[str]:
        return text.split(";")

    async def parse(self, text: str, _oids: object) -> Any:
        return SimpleNamespace(parameters=())

    async def bind(self, _statement: object, _values: object) -> Any:
        left = [[(1, None)], []]

        async def fetch(_most: int) -> Any:
            await self._go.wait()
            return left.pop(0)

        async def close() -> None:
            return None

        fields = (Field("n", oids.INT4), Field("t", oids.TEXT))
        portal = SimpleNamespace(copy_in=None, copy_out=None, fields=fields)
        portal.fetch, portal.close, portal.tag = fetch, close, lambda: "SELECT 1"
        return portal

    async def guard(self, work: Awaitable[object]) -> Any:
        return await work

    async def sync(self) -> None:
        """Nothing was begun."""

    async def failed(self, _error: SqlError) -> None:
        """The same."""

    async def close(self) -> None:
        self.closed = True


class Scene:
    def __init__(self) -> None:
        self.go, self.left = asyncio.Event(), asyncio.Event()
        self.lost: KvorumError | None = None  # why who asks may not go on
        self.opened: list[Session] = []
        self.many = asyncio.Semaphore(0)
        self.statements = Statements(self, lambda: 0.0)  # type: ignore[arg-type]

    async def open(self, _who: object, _at: str, _of: str, settings: Mapping[str, str]) -> Session:
        self.opened.append(Session(self.go, settings))
        self.many.release()
        return self.opened[-1]

    async def _left(self) -> KvorumError | None:
        await self.left.wait()
        return self.lost

    def run(
        self, *, read_only: bool = True, who: str = "ann", text: str = "SELECT 1", ms: int = 60_000
    ) -> asyncio.Task[dict[str, Any]]:
        how = {"read_only": read_only, "rows_max": 10, "timeout_ms": ms, "left": self._left}
        asks = Identity(who, "password")
        work = self.statements.run(asks, "", "default", text, **how)  # type: ignore[arg-type]
        return asyncio.get_running_loop().create_task(work)


async def test_m12_a_session_is_told_what_it_may() -> None:
    """A statement that only reads would write; one without a time would run for ever."""
    scene = Scene()
    scene.go.set()
    told = await scene.run()
    assert (told["rows"], told["tag"], told["more"]) == ([["1", None]], "SELECT 1", False)
    await scene.run(read_only=False)
    said = [one.settings for one in scene.opened]
    assert [one["default_transaction_read_only"] for one in said] == ["on", "off"]
    assert {one["statement_timeout"] for one in said} == {"60000"}
    assert all(one.closed for one in scene.opened)


async def test_m12_so_many_run_at_once() -> None:
    """Each has a session, which costs memory: browsers would take the node's."""
    scene = Scene()
    users = SQL_HTTP_STATEMENTS_MAX // SQL_HTTP_STATEMENTS_OF_USER_MAX
    one = [scene.run(who="0") for _ in range(SQL_HTTP_STATEMENTS_OF_USER_MAX)]
    for _ in one:
        await scene.many.acquire()
    with pytest.raises(Busy, match="of '0'"):  # the others have theirs
        await scene.run(who="0")
    running = [scene.run(who=str(n)) for n in range(1, users) for _ in one]
    for _ in running:
        await scene.many.acquire()
    with pytest.raises(Busy, match="the limit"):
        await scene.run(who="new")
    scene.go.set()
    await asyncio.gather(*one, *running)
    await scene.run(who="0")


async def test_m12_all_statements_share_the_time() -> None:
    """Many statements, each within its timeout, held a place for as long as one likes."""
    scene = Scene()
    running = scene.run(text=";".join(["SELECT 1"] * 100), ms=20)
    await scene.many.acquire()
    await scene.opened[0].cancelled.wait()
    scene.go.set()
    with pytest.raises(DeadlineExceeded, match="timeout_ms, 20"):
        await running
    assert scene.opened[0].closed


@pytest.mark.parametrize("read_only", [True, False])
async def test_m12_what_may_have_committed_is_not_called_a_failure(read_only: bool) -> None:
    """A text whose first statements had committed when its token was revoked was refused for good,
    as if nothing of it had been done.
    """
    scene = Scene()
    running = scene.run(text="BEGIN;INSERT;COMMIT;SELECT", read_only=read_only)
    await scene.many.acquire()
    scene.lost = Unauthenticated("it was revoked")
    scene.left.set()
    await scene.opened[0].cancelled.wait()
    scene.go.set()
    with pytest.raises(Unauthenticated if read_only else UnknownOutcome, match="it was revoked"):
        await running


async def test_m12_notices_have_a_bound() -> None:
    """A statement that raises notices filled the memory of its node."""
    scene = Scene()
    running = scene.run()
    await scene.many.acquire()
    channel = scene.opened[0].channel
    for n in range(10_000):
        channel.add(Notice("NOTICE", "00000", f"{n}" * 100))
    assert len(channel.notices) < 1_000
    scene.go.set()
    told = (await running)["notices"]
    assert sum(len(one["message"]) for one in told) <= SQL_HTTP_NOTICES_BYTES_MAX
    assert told[-1]["message"].startswith(f"{10_000 - len(told) + 1} notices more")


async def test_m12_who_hangs_up_ends_his_statement() -> None:
    """A browser that was closed would leave its query running."""
    scene = Scene()
    running = scene.run()
    await scene.many.acquire()
    scene.left.set()
    await scene.opened[0].cancelled.wait()
    scene.go.set()
    await running
    assert scene.opened[0].closed
