"""Tickets of one queue: procedures with keys, of which few may run at once, at a limited rate.

Each notes in rows that it began and that it ended, in the transactions of its steps; so what the
queue let happen can be read from the versions of these rows, whoever was killed meanwhile. They are
submitted again and again under one text, which makes each one procedure (`dedup`).

enqueue        {"ticket", "key"}  → the procedure's id
mark           {"ticket"}         → null: written after the first answer, so that it waits by then
await          {"ticket", "id"}   → the ticket, that it has ended
final enqueue  {"ticket", "key"}  → the id again, of those whose answer is unknown
final await    {"ticket", "id"}   → of every one
final read     null               → {ticket: [began, times, ended, times]}, by versions of rows
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, Final

from kv.base.errors import DeadlineExceeded, KvorumError, NotFound
from kvorum.sdk.database import AsyncDatabase
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.counting import TICKET
from kvorum.verify.workloads.base import Workload
from kvorum.verify.workloads.procedure import not_known

AT_ONCE: Final = 2
RATE: Final = 25
BURST: Final = 5
TURNS: Final = 2
KEYS: Final = ("hot", "ada", "bob", "cyd")
HOT: Final = 0.6
"""Share of the first key, which always has some that wait."""
_OPEN_MAX: Final = 24
_AGAIN: Final = 0.2
_LATEST: Final = 200
_DEDUP_MS: Final = 3_600_000
_WAIT_MS: Final = 1_000
_WAIT_MS_FINAL: Final = 10_000


class Queues(Workload):
    name: ClassVar[str] = "queue"
    about: ClassVar[str] = "procedures of a queue with keys, limits and a rate: order, turns, once"
    splits: ClassVar = ("n3", "n6")
    modules: ClassVar = ("kvorum.verify.counting",)

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[str, str] = {}  # of each ticket
        self._latest: deque[str] = deque(maxlen=_LATEST)  # which may be submitted again
        self._open: dict[int, str] = {}  # id → ticket, of which nobody knows that it has ended
        self._ended: set[int] = set()
        self._marked: set[str] = set()
        self._unknown: list[str] = []

    def parameters(self) -> dict[str, object]:
        return {"at_once": AT_ONCE, "rate": RATE, "burst": BURST, "turns": TURNS}

    async def prepare(self, db: AsyncDatabase, table: str) -> None:
        """Raises Refused (NO_MODULE) where nodes do not know the procedure."""
        await super().prepare(db, table)
        await db.set_limit(table, max_concurrent=AT_ONCE, rate_per_s=RATE, burst=BURST)
        try:
            await self._asked(db, table, "probe", "probe")
        except NotFound as e:
            raise not_known(TICKET, self) from e

    async def clean(self, db: AsyncDatabase, table: str) -> None:
        await super().clean(db, table)
        await db.set_limit(table)

    async def step(self, client: Client) -> None:
        chance = client.chance
        if len(self._open) >= _OPEN_MAX or (self._open and chance.happens(0.3)):
            id = chance.pick(sorted(self._open))
            await self._await(client, "await", id, self._open[id], _WAIT_MS)
        elif self._latest and chance.happens(_AGAIN):
            await self._enqueue(client, "enqueue", chance.pick(self._latest))
        else:
            # The last digit first, so that rows lie in all partitions.
            ticket = f"n{str(self.unique())[::-1]}"
            hot = chance.happens(HOT)
            self._keys[ticket] = KEYS[0] if hot else chance.pick(KEYS[1:])
            self._latest.append(ticket)
            await self._enqueue(client, "enqueue", ticket)

    async def final(self, client: Client) -> bool:
        for ticket in list(self._unknown):
            if not await self._enqueue(client, "final enqueue", ticket):
                return False
            self._unknown.remove(ticket)
        for id, ticket in list(self._open.items()):
            if not await self._await(client, "final await", id, ticket, _WAIT_MS_FINAL):
                return False

        async def noted() -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            async for item in client.table.rows(prefix="n"):
                ticket, _, what = item.key.decode().partition("/")
                mine = found.setdefault(ticket, [0, 0, 0, 0])
                at = 0 if what == "began" else 2
                mine[at : at + 2] = item.version, int(item.value)
            return found

        return await client.read("final read", None, noted)

    @staticmethod
    async def _asked(db: AsyncDatabase, table: str, ticket: str, key: str) -> int:
        args = {"ns": NAMESPACE, "table": table, "ticket": ticket}
        text = f"{table}/{ticket}"
        got = await db.enqueue(TICKET, args, queue=table, key=key, dedup=text, dedup_ms=_DEDUP_MS)
        return got.id

    async def _enqueue(self, client: Client, f: str, ticket: str) -> bool:
        """The text makes it one procedure however often it is submitted."""
        key = self._keys[ticket]
        op = client.invoke(f, {"ticket": ticket, "key": key})
        try:
            id = await self._asked(client.db, client.table_name, ticket, key)
        except KvorumError as e:
            client.refused(op, e)
            unknown = client.recorder.history.events[-1].type == "unknown"
            if unknown and f == "enqueue" and ticket not in self._unknown:
                self._unknown.append(ticket)
            return False
        client.ok(op, id)
        if id not in self._ended:
            self._open[id] = ticket
        if f == "enqueue" and ticket not in self._marked:
            self._marked.add(ticket)
            await client.write(
                "mark", {"ticket": ticket}, lambda: client.table.put(f"mark {ticket}", "1")
            )
        return True

    async def _await(self, client: Client, f: str, id: int, ticket: str, wait_ms: int) -> bool:
        op = client.invoke(f, {"ticket": ticket, "id": id})
        result: Any
        try:
            result = await client.db.wait(id, timeout_ms=wait_ms)
        except DeadlineExceeded as e:
            client.failed(op, e)
            return False
        except KvorumError as e:
            # It may have ended in an error: the checker hears it; no later answer is waited for.
            client.failed(op, e)
            return e.disposition == "no"
        client.ok(op, result)
        self._ended.add(id)
        self._open.pop(id, None)
        return True
