"""Writes here what the other cluster committed: one transaction with the mark.

It begins after every timestamp that it takes over, by this cluster's clock: so whoever overwrites
what is taken has a higher timestamp than what he overwrites, though two clusters have two clocks.
It commits only if nobody wrote one of its keys, or the mark, since it looked (snapshot isolation);
otherwise it looks again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from kv.base.errors import RestartTxn, Unavailable
from kv.base.limits import (
    DEADLINE_MS_DEFAULT,
    SITE_AHEAD_MS_MAX,
    SITE_ASK_MS,
    SITE_CONFLICT_TTL_MS,
    SITE_CONFLICT_VALUE_BYTES,
    SITE_SPAN_MS,
)
from kv.base.ports import Clock
from kv.base.timestamps import physical_ms
from kvorum.api.model import Record, TableKey
from kvorum.api.site_links import CONFLICTS, NAMESPACE
from kvorum.native.native_session import NativeSession
from kvorum.sites.links import LinkedTable
from kvorum.sites.marks import CURSORS, Mark
from kvorum.sites.rules import Change, Joined, Standing, Verdict, asks, verdict
from txn.client import TxnClient
from txn.shared.deadlines import sleep

_READ_KEYS: Final = 32  # at once: as many values fit into one answer whatever their size, nearly
_AGAIN_S: Final = 0.01
_DIGEST_BYTES: Final = 12


class Cluster(Protocol):
    """What is needed of either cluster: kvorum.native.native.NativeBackend."""

    @property
    def txn(self) -> TxnClient: ...

    async def get(self, ns: str, table: str, key: bytes, at: int) -> Record | None: ...
    async def begin_of_link(self) -> NativeSession: ...
    async def storage_prefix(self, ns: str, table: str) -> bytes: ...


def digest_of(table: LinkedTable, key: bytes) -> bytes:
    """Of a key, as both clusters call it. (Of two that are alike one would be taken twice, which
    changes nothing.)
    """
    return hashlib.sha256(table.path.encode() + b"/" + key).digest()[:_DIGEST_BYTES]


class Taken(NamedTuple):
    """One row of the other cluster."""

    table: LinkedTable
    key: bytes
    change: Change

    @property
    def id(self) -> tuple[str, bytes]:
        return self.table.path, self.key

    @property
    def digest(self) -> bytes:
        return digest_of(self.table, self.key)


class Step(NamedTuple):
    """A transaction of the other cluster, or a part of a large one; `mark` of when it is taken."""

    rows: Sequence[Taken]
    mark: Mark


Join = Callable[[Taken, Standing, str], Awaitable[Joined]]
"""(row, what is here, a nonce) → what the table's procedure makes of both."""


class Counts:
    """Of one link, for metrics."""

    def __init__(self) -> None:
        self.position = 0  # of the other cluster: everything below was taken
        self.served_ms = 0  # when this node last served it
        self.rows = self.transactions = self.conflicts = self.failures = 0


def site_figures(links: Mapping[str, Counts], clock: Clock) -> dict[str, float]:
    """For metrics, of links by their sites."""
    figures: dict[str, float] = {}
    for site, counts in links.items():
        served = clock.now_ms() - counts.served_ms < 2 * SITE_SPAN_MS
        if counts.position and served:  # else another node knows better
            lag_ms = clock.now_ms() - physical_ms(counts.position)
            figures[f"lag_ms.{site}"] = max(0, lag_ms)
        for name in ("rows", "transactions", "conflicts", "failures"):
            figures[f"{name}.{site}"] = getattr(counts, name)
    return figures


class Taker:
    """Takes over at this cluster. Of one task."""

    def __init__(self, here: Cluster, me: str, other: str, join: Join, counts: Counts) -> None:
        """`me`, `other`: the clusters' ids."""
        self._here, self._join, self._counts = here, join, counts
        self._me, self._other = me, other
        self._key = other.encode()

    async def mark(self) -> Mark | None:
        """How far it is; None: there is no link."""
        found = await self._here.get(NAMESPACE, CURSORS, self._key, 0)
        return None if found is None else Mark.decode(found.value)

    async def take(self, steps: Sequence[Step], was: Mark) -> Mark:
        """All of them in their order, in as few transactions as local writers let through; the last
        mark. Raises Unavailable: the mark is not `was` any more, somebody else is at it; and what a
        transaction raises: what was taken then is known by the mark.
        """
        at, count = 0, len(steps)
        while at < len(steps):
            some = steps[at : at + count]
            if await self._taken([row for step in some for row in step.rows], was, some[-1].mark):
                was, at = some[-1].mark, at + count
            else:
                count = max(1, count // 2)
                await sleep(self._here.txn.timers, _AGAIN_S)
        return was

    async def counted_before(self, rows: Sequence[Taken], since: int) -> list[Taken]:
        """Counters of before the links began: of both clusters' the later one stays, as both may
        have what was counted once. Those that are to be taken, with what is replaced here.
        """
        found: list[Taken] = []
        for row in rows:
            had = await self._here.get(row.table.namespace, row.table.name, row.key, since)
            if had is None:
                found.append(row)
            elif (row.change.version, self._other) > (had.version, self._me):
                found.append(row._replace(change=row.change._replace(before=had.value)))
        return found

    async def _taken(self, rows: Sequence[Taken], was: Mark, mark: Mark) -> bool:
        """False: nothing was, as somebody wrote one of the keys meanwhile."""
        await self._pass(max((row.change.version for row in rows), default=0))
        session = await self._here.begin_of_link()
        try:
            conflicts = await self._write(session, rows, was, mark)
            await session.commit()
        except RestartTxn:
            await session.abort()
            return False
        except BaseException:
            await session.abort()
            raise
        self._counts.rows += len(rows)
        self._counts.conflicts += conflicts
        self._counts.transactions += 1
        return True

    async def _pass(self, top: int) -> None:
        """Until this cluster's clock has passed `top`. Raises Unavailable: it is too far ahead."""
        while top and (now := await self._here.txn.now()) <= top:
            ahead_ms = physical_ms(top) - physical_ms(now) + 1
            if ahead_ms > SITE_AHEAD_MS_MAX:
                raise Unavailable(
                    f"the other cluster's clock is {ahead_ms} ms ahead of this one's, more than "
                    f"{SITE_AHEAD_MS_MAX}; set the clocks right"
                )
            await sleep(self._here.txn.timers, ahead_ms / 1000)

    async def _write(
        self, session: NativeSession, rows: Sequence[Taken], was: Mark, mark: Mark
    ) -> int:
        """How many conflicts there were."""
        found = await session.get(NAMESPACE, CURSORS, self._key)
        if found is None or Mark.decode(found.value)._replace(ours=()) != was._replace(ours=()):
            raise Unavailable("somebody else has taken over from this site meanwhile")
        standing = await self._standing(session, rows, was)
        conflicts = 0
        ours: set[bytes] = set()
        for row in rows:
            here = standing[row.id]
            joined = None
            if asks(row.table.rule, here, row.change):
                nonce = _nonce(self._other, row, here, session.start_ts)
                joined = await self._join(row, here, nonce)
            ends = verdict(
                row.table.rule, here, row.change, higher=self._me > self._other, joined=joined
            )
            if ends.write:
                await self._put(session, row, ends)
                ours.discard(row.digest)
                if ends.ours:
                    ours.add(row.digest)
            if ends.conflict:
                conflicts += 1
                await self._tell(session, row, here, ends)
            standing[row.id] = ends.standing(here)
        data = mark._replace(ours=tuple(sorted(ours))).encode()
        await session.put(NAMESPACE, CURSORS, self._key, data)
        return conflicts

    async def _put(self, session: NativeSession, row: Taken, what: Verdict) -> None:
        table, key = row.table, row.key
        ttl_ms = 0
        if row.change.expires_ms and what.value == row.change.value:
            ttl_ms = max(1, row.change.expires_ms - physical_ms(session.start_ts))
        if what.value is None:
            await session.delete(table.namespace, table.name, key)
        else:
            await session.put(table.namespace, table.name, key, what.value, None, ttl_ms)

    async def _tell(
        self, session: NativeSession, row: Taken, here: Standing, what: Verdict
    ) -> None:
        there = "there" if what.value == row.change.value else "both"
        kept = there if what.write else "here"
        told = {
            "table": row.table.path,
            "key": _shown(row.key),
            "kept": kept,
            "here": {"version": str(here.version), "value": _shown(here.value)},
            "there": {"version": str(row.change.version), "value": _shown(row.change.value)},
        }
        key = f"{self._other}/{row.change.version:020d}/{row.digest.hex()}".encode()
        data = json.dumps(told).encode()
        await session.put(NAMESPACE, CONFLICTS, key, data, None, SITE_CONFLICT_TTL_MS)

    # ------------------------------------------------------------------ what is here

    async def _standing(
        self, session: NativeSession, rows: Sequence[Taken], was: Mark
    ) -> dict[tuple[str, bytes], Standing]:
        """By `Taken.id`, as of the session's snapshot."""
        seen: dict[tuple[str, bytes], tuple[Taken, int]] = {}
        for row in rows:
            lowest = min(row.change.seen, seen.get(row.id, (row, row.change.seen))[1])
            seen[row.id] = row, lowest
        asked = list(seen.values())
        standing: dict[tuple[str, bytes], Standing] = {}
        marks: dict[int, Mark | None] = {}
        for at in range(0, len(asked), _READ_KEYS):
            some = asked[at : at + _READ_KEYS]
            keys = [TableKey(row.table.namespace, row.table.name, row.key) for row, _ in some]
            found = await session.multi_get(keys)
            for (row, low), record in zip(some, found, strict=True):
                version = 0 if record is None else record.version
                if record is None:
                    version = await self._deleted(row, max(low, was.since), session.start_ts)
                ours = version > low and await self._is_ours(row, version, was, marks)
                value = None if record is None else record.value
                standing[row.id] = Standing(value, version, ours)
        return standing

    async def _deleted(self, row: Taken, above: int, at: int) -> int:
        """The version of the deletion of a key that has no row; 0: none above `above`."""
        prefix = await self._here.storage_prefix(row.table.namespace, row.table.name)
        reader = self._here.txn.reader
        return await reader.newest_change(prefix + row.key, above, at, DEADLINE_MS_DEFAULT)

    async def _is_ours(
        self, row: Taken, version: int, was: Mark, marks: dict[int, Mark | None]
    ) -> bool:
        """Whether that version was written here."""
        if version <= was.since:
            return True
        if version not in marks:
            found = await self._here.get(NAMESPACE, CURSORS, self._key, version)
            taken = found is not None and found.version == version
            marks[version] = Mark.decode(found.value) if found is not None and taken else None
        mark = marks[version]
        return mark is None or row.digest in mark.ours


def _nonce(other: str, row: Taken, here: Standing, at: int) -> str:
    """Of what is asked: who asks it again gets the same procedure, also one that failed. After
    SITE_ASK_MS it may be mended, and is asked anew.
    """
    asked = [row.table.procedure.encode(), b"" if here.value is None else b"=" + here.value]
    digest = hashlib.sha256(b"/".join(asked)).hexdigest()[: 2 * _DIGEST_BYTES]
    span = physical_ms(at) // SITE_ASK_MS
    return f"site-{other}-{row.change.version}-{row.digest.hex()}-{digest}-{span}"


def _shown(value: bytes | None) -> str | None:
    if value is None:
        return None
    part = value[:SITE_CONFLICT_VALUE_BYTES]
    try:
        return part.decode()
    except UnicodeDecodeError:
        return "0x" + part.hex()
