"""Advisory locks (pg_advisory_lock and its like): each is a `kvorum.lock` procedure that this
process keeps alive by heartbeats (procedures.engine.lock_procedure; docs/decisions/1066).

So a lock is one for all nodes and proxies, outlives the master, is listed by `kvorum locks` with
who waits for it, and ends ADVISORY_TTL_MS after its process was last heard of. How often it is held
is the session's business (sqlproxy.session.state.session_locks); here it is held once, shared or
exclusive.

    resource    sql/DATABASE/CLASS/OBJECT/KIND      as in pg_locks; KIND 1: a bigint, 2: two ints

A lock whose heartbeats were not answered for ADVISORY_TTL_MS counts as lost: others may have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kv.base.errors import KvorumError, NotFound
from kv.base.limits import (
    ADVISORY_BEAT_MS,
    ADVISORY_BEATS_MAX,
    ADVISORY_TTL_MS,
    LOCK_RESOURCE_CHARS_MAX,
)
from kv.base.node_methods import Nodes
from kv.base.ports import Timers
from procedures.engine.client import ENDED, ProcedureClient
from procedures.engine.lock_procedure import HELD, LOCK, WAITING
from procedures.verbs import LOCK_BEAT, LOCK_END
from txn.shared.deadlines import Background, sleep

_WORD: Final = "sql"
_BEAT_MARGIN_MS: Final = 1_000
_CLOSE_S: Final = 1.0  # what sessions had is given back in
EXCLUSIVE: Final = "ExclusiveLock"  # PostgreSQL's words for the modes
SHARE: Final = "ShareLock"


class Key(NamedTuple):
    """What is locked: the numbers as pg_locks shows them."""

    classid: int  # of two ints the first; of a bigint its upper half
    objid: int
    objsubid: int  # 1: a bigint, 2: two ints

    @staticmethod
    def of(numbers: Sequence[int]) -> Key:
        if len(numbers) == 1:
            whole = numbers[0] & 0xFFFF_FFFF_FFFF_FFFF
            return Key(whole >> 32, whole & 0xFFFF_FFFF, 1)
        first, second = numbers
        return Key(first & 0xFFFF_FFFF, second & 0xFFFF_FFFF, 2)


def resource_of(database: str, key: Key) -> str:
    """The name of what is locked; databases of any name that fits."""
    name = f"{_WORD}/{database}/{key.classid}/{key.objid}/{key.objsubid}"
    assert len(name) <= LOCK_RESOURCE_CHARS_MAX
    return name


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def rows(procedures: Sequence[Mapping[str, Any]], waiting: Collection[str]) -> list[dict[str, Any]]:
    """The locks of all databases for pg_locks, of a list of procedures. `waiting`: the ids of those
    that wait for theirs.
    """
    found = []
    for one in procedures:
        if one["name"] != LOCK or one["state"] in ENDED:
            continue
        for lock in one["locks"]:
            word, _, rest = lock["resource"].partition("/")
            parts = rest.rsplit("/", 3)
            database, *numbers = parts
            # A lock of somebody else's may have any name.
            if word == _WORD and len(numbers) == 3 and all(map(_is_number, numbers)):
                classid, objid, objsubid = map(int, numbers)
                found.append(
                    {
                        "locktype": "advisory",
                        "database": database,
                        "classid": classid,
                        "objid": objid,
                        "objsubid": objsubid,
                        "virtualtransaction": one["owner"],
                        "mode": EXCLUSIVE if lock["mode"] == "exclusive" else SHARE,
                        "granted": one["id"] not in waiting,
                        "fastpath": False,
                    }
                )
    return found


class Held:
    """One lock that a session of this process has, until `give_back`."""

    __slots__ = ("_heard", "_timers", "ended", "id")

    def __init__(self, id: int, timers: Timers, asked: float) -> None:
        """`asked`: when that was sent which said that it is held."""
        self.id = id
        self._timers, self._heard = timers, asked
        self.ended = False

    @property
    def lost(self) -> bool:
        """Whether others may have it."""
        return self.ended or self._timers.monotonic() - self._heard > ADVISORY_TTL_MS / 1000

    def heard(self, asked: float) -> None:
        self._heard = asked


class AdvisoryLocks:
    """Of one process. `close` ends it, when all sessions are closed."""

    def __init__(self, nodes: Nodes, timers: Timers) -> None:
        self._nodes, self._timers = nodes, timers
        self._held: dict[int, Held] = {}
        self._background = Background()
        self._beating = False

    async def take(
        self, resource: str, *, exclusive: bool, session: str, owner: str, nonce: str, wait: bool
    ) -> Held | None:
        """None: it is not free, and nobody waits for it (`wait` false). Who is cancelled here waits
        no more and holds nothing. Raises KvorumError; TxnAborted (DEADLOCK).
        """
        args = {
            "resource": resource,
            "exclusive": exclusive,
            "ttl_ms": ADVISORY_TTL_MS,
            "session": session,
        }
        client = ProcedureClient(self._nodes, self._timers, owner=owner)
        id = 0
        try:
            id = await client.submit(LOCK, args, nonce=nonce)
            while True:
                asked = self._timers.monotonic()
                state = await self._beat(id, ADVISORY_BEAT_MS if wait else 0)
                if state == HELD:
                    held = self._held[id] = Held(id, self._timers, asked)
                    self._keep()
                    return held
                if state == WAITING and wait:
                    continue
                if state == WAITING:
                    await self.end(id)
                return None  # else it was stolen, or nobody heard of us: who waits asks anew
        except BaseException:
            self._drop(client, args, nonce, id)
            raise

    def _drop(
        self, client: ProcedureClient, args: Mapping[str, object], nonce: str, id: int
    ) -> None:
        """Behind the scenes. `id` 0: whether it was submitted is not known, and asked by the nonce;
        it ends by itself if nobody can be asked.
        """

        async def work() -> None:
            with suppress(KvorumError):
                await self.end(id or await client.submit(LOCK, args, nonce=nonce))

        if not self._background.closed:
            self._background.spawn(work(), "advisory lock, not wanted")

    async def _beat(self, id: int, wait_ms: int) -> str:
        budget_ms = wait_ms + _BEAT_MARGIN_MS
        state, _ = await self._nodes.call_node(LOCK_BEAT, id, wait_ms, budget_ms=budget_ms)
        return str(state)

    async def give_back(self, held: Held) -> None:
        """When this returns, others may have it; at the latest ADVISORY_TTL_MS later, if nobody can
        be told now.
        """
        self._held.pop(held.id, None)
        held.ended = True
        await self.end(held.id)

    async def end(self, id: int) -> None:
        """Nobody has it, or waits for it, here."""
        with suppress(KvorumError):  # it ends by itself when nobody is heard of
            await self._nodes.call_node(LOCK_END, id)

    def give_back_soon(self, held: Held) -> None:
        """`give_back` of a session that is over."""
        if not self._background.closed:
            self._background.spawn(self.give_back(held), "advisory unlock")

    # -- heartbeats

    def _keep(self) -> None:
        if not self._beating and not self._background.closed:
            self._beating = True
            self._background.spawn(self._run(), "advisory locks")

    async def _run(self) -> None:
        try:
            while self._held:
                await sleep(self._timers, ADVISORY_BEAT_MS / 1000)
                if self._background.closed:
                    return
                one_by_one = iter(list(self._held.values()))
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(ADVISORY_BEATS_MAX, len(self._held))):
                        group.create_task(self._beat_all(one_by_one))
        finally:
            self._beating = False

    async def _beat_all(self, them: Iterator[Held]) -> None:
        for held in them:
            if held.ended:
                continue
            asked = self._timers.monotonic()
            try:
                state = await self._beat(held.id, 0)
            except NotFound:
                state = ""
            except KvorumError:
                continue  # the next time; it is lost when that goes on for too long
            if state == HELD:
                held.heard(asked)
            else:
                held.ended = True
                self._held.pop(held.id, None)

    async def close(self) -> None:
        await self._background.drain(_CLOSE_S)
