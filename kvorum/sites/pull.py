"""Reads what the other cluster commits to the linked tables, and hands it on to be taken over here.

    begin ──▶ its rows as of when it began its link, page by page ──▶ its feed from there on

Its mark for this cluster is watched together with the tables, as one feed: so it is known how far
the other one had seen us whenever it wrote something, and which of its transactions were taken from
here. Of those only what it made itself (Mark.ours) is taken.

Transactions are whole and in their order; several small ones are taken over in one. Of one that is
larger than SITE_WHOLE_ROWS or _BYTES parts are, and the mark has how far they went.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kv.base.errors import NotFound, Refused
from kv.base.keys import successor
from kv.base.limits import (
    DEADLINE_MS_DEFAULT,
    SITE_BATCH_BYTES,
    SITE_BATCH_ROWS,
    SITE_IDLE_MS,
    SITE_WHOLE_BYTES,
    SITE_WHOLE_ROWS,
)
from kv.base.timestamps import physical_ms
from kv.feed.changes import Row, size_of
from kvorum.api.names import PREFIX_BYTES
from kvorum.api.site_links import NAMESPACE
from kvorum.sites.links import Link, LinkedTable
from kvorum.sites.marks import CURSORS, Mark
from kvorum.sites.rules import Change
from kvorum.sites.taking import Cluster, Counts, Step, Taken, Taker, digest_of
from txn.reading.feed import Feed
from txn.reading.feed_parts import Part

_NOTHING: Final = Mark(0, 0)


class Pull:
    """While its connection stands. Of one task; `close` it, also when `begin` failed."""

    def __init__(self, there: Cluster, link: Link, me: str, taker: Taker, counts: Counts) -> None:
        """`me`: this cluster's id."""
        self._there, self._link, self._taker, self._counts = there, link, taker, counts
        self._me = me.encode()
        self._tables: dict[bytes, LinkedTable] = {}  # by their prefix there
        self._their_key = b""
        self._mark = self._peer = _NOTHING
        self._feed: Feed | None = None

    @property
    def history_from(self) -> int:
        """This cluster's history has to be there from here on."""
        return self._peer.at or self._mark.since

    @property
    def copied(self) -> bool:
        return self._mark.at > 0

    async def begin(self) -> None:
        """Raises NotFound: the other cluster has no link to this one yet (SITE_NOT_LINKED), or a
        table is not there; Refused: a link has to be made anew.
        """
        there, site = self._there, self._link.site
        mark = await self._taker.mark()
        if mark is None:
            raise Refused(f"the link to {site} is gone", code="SITE_GONE")
        for table in self._link.tables:
            self._tables[await there.storage_prefix(table.namespace, table.name)] = table
        newest = None
        with suppress(NotFound):
            self._their_key = await there.storage_prefix(NAMESPACE, CURSORS) + self._me
            newest = await self._mark_there(0)
        if newest is None:
            raise NotFound(f"{site} has no link to this cluster yet", code="SITE_NOT_LINKED")
        if 0 < (mark.at or mark.doing) < newest.since:
            raise Refused(
                f"{site} has made its link anew, and may not have kept what was committed there "
                "meanwhile: remove this one and make it anew, too",
                code="SITE_GONE",
            )
        self._mark, self._peer = mark, newest._replace(at=0)
        if self.copied:
            self._peer = await self._mark_there(mark.at) or self._peer
            self._watch()
        self._counts.position = max(self._counts.position, mark.at)

    async def close(self) -> None:
        if self._feed is not None:
            await self._feed.close()

    async def step(self, wait_s: float) -> bool:
        """Take over what comes next, if something does within `wait_s`: whether something did."""
        if not self.copied:
            await self._copy()
            return True
        assert self._feed is not None, "begin made it"
        try:
            async with asyncio.timeout(wait_s):
                parts = [await self._feed.next()]
        except TimeoutError:
            return False
        await self._gather(self._feed, parts)
        return await self._take(parts)

    # ------------------------------------------------------------------ the rows of before

    async def _copy(self) -> None:
        """One page of the other's rows as of when it began to hold its history: it had taken
        nothing from here then. Of a copy the mark has where it goes on.
        """
        txn, mark = self._there.txn, self._mark
        at = mark.doing or self._peer.since
        for prefix, table in sorted(self._tables.items()):
            low, high = max(prefix, mark.key), successor(prefix)
            if low >= high:
                continue
            page, due = await txn.reader_at(at).scan_expiring(
                low, high, at, limit=SITE_BATCH_ROWS, budget_ms=DEADLINE_MS_DEFAULT
            )
            rows = [
                Taken(table, key[PREFIX_BYTES:], Change(value, version, 0, due.get(place, 0)))
                for place, (key, value, version) in enumerate(page.items)
            ]
            if table.rule == "counter":
                rows = await self._taker.counted_before(rows, mark.since)
            if rows or page.resume is not None:
                step = Step(rows, mark._replace(doing=at, key=page.resume or high))
                await self._taken([step])
                return
        await self._taken([Step([], Mark(at, mark.since))])
        self._watch()

    # ------------------------------------------------------------------ the feed

    def _watch(self) -> None:
        ranges = [(prefix, successor(prefix)) for prefix in self._tables]
        ranges.append((self._their_key, self._their_key + b"\x00"))
        self._feed = self._there.txn.feed(sorted(ranges), above=self._mark.at, check=self._check)

    async def _check(self) -> None:
        """Raises NotFound: a table there is another one than it was."""
        for prefix, table in self._tables.items():
            if await self._there.storage_prefix(table.namespace, table.name) != prefix:
                raise NotFound(f"{table.path} of {self._link.site} was dropped and made anew")

    async def _gather(self, feed: Feed, parts: list[Part]) -> None:
        """What is there already; the rest of a transaction is waited for."""
        rows = size = 0
        while True:
            part = parts[-1]
            rows += len(part.rows)
            size += sum(map(size_of, part.rows))
            if not part.last and rows < SITE_WHOLE_ROWS and size < SITE_WHOLE_BYTES:
                parts.append(await feed.next())
                continue
            if rows >= SITE_BATCH_ROWS or size >= SITE_BATCH_BYTES:
                return
            ready = feed.ready()
            if ready is None:
                return
            parts.append(ready)

    async def _take(self, parts: Sequence[Part]) -> bool:
        """Whether there was anything to take."""
        rows: list[Taken] = []
        steps: list[Step] = []
        mark = self._mark
        for part in parts:
            if part.kind == "changes":
                rows += await self._rows(part)
            if part.last:
                mark = Mark(max(mark.at, part.version), mark.since)
            elif part.rows:
                mark = mark._replace(doing=part.version, key=part.rows[-1][0])
            if rows and (part.last or part is parts[-1]):
                steps.append(Step(rows, mark))
                rows = []
        if not steps and self._old(mark.at):
            steps.append(Step([], mark))
        await self._taken(steps)
        self._counts.position = mark.at
        return any(step.rows for step in steps)

    def _old(self, at: int) -> bool:
        """Whether the position on disk is so old that it is worth a write."""
        return physical_ms(at) - physical_ms(self._mark.at) >= SITE_IDLE_MS

    async def _taken(self, steps: Sequence[Step]) -> None:
        self._mark = await self._taker.take(steps, self._mark)

    async def _rows(self, part: Part) -> list[Taken]:
        """What of a part is to be taken."""
        mark = await self._mark_of(part)
        if mark is not None:
            self._peer = mark
        only = None if mark is None else frozenset(mark.ours)
        taken: list[Taken] = []
        for row in part.rows:
            table = self._tables.get(row[0][:PREFIX_BYTES])
            if table is None or self._mark.took(row[2], row[0]):
                continue
            if only is None or digest_of(table, row[0][PREFIX_BYTES:]) in only:
                taken.append(await self._row(table, row))
        return taken

    async def _mark_of(self, part: Part) -> Mark | None:
        """The mark that its transaction wrote, if it took something from here."""
        if part.part == 0 and part.last:
            data = next((row[1] for row in part.rows if row[0] == self._their_key), None)
            return None if data is None else Mark.decode(data)
        # It may be in a part that is yet to come.
        found = await self._there.get(NAMESPACE, CURSORS, self._me, part.version)
        if found is None or found.version != part.version:
            return None
        return Mark.decode(found.value)

    async def _row(self, table: LinkedTable, row: Row) -> Taken:
        key, value, version, expires_ms = row
        before = None
        if table.rule == "counter":
            before, _ = await self._there.txn.get(key, version - 1)
        change = Change(value, version, self._peer.at, expires_ms, before)
        return Taken(table, key[PREFIX_BYTES:], change)

    async def _mark_there(self, at: int) -> Mark | None:
        """What the other has taken from here, as of a moment of its own; 0 = now."""
        found = await self._there.get(NAMESPACE, CURSORS, self._me, at)
        return None if found is None else Mark.decode(found.value)
