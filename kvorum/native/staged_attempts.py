"""Reads what Spark's writers have staged, page by page (kvorum/api/sink_attempts.py).

An attempt is a row, and one for each of its tasks behind it. A page has at most SINK_LISTED_MAX
attempts and ends after SINK_LISTED_ROWS rows of those that are seen; of one attempt
SINK_TASKS_MAX tasks are counted. What is not seen does not count, ends no page and is named by
none, and its tasks are passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kv.base import system
from kv.base.errors import Forbidden, SnapshotTooOld
from kv.base.ids import TableId
from kv.base.keys import successor, table_range
from kv.base.limits import SCAN_ROWS_MAX, SINK_LISTED_MAX, SINK_LISTED_ROWS, SINK_TASKS_MAX
from kv.base.timestamps import physical_ms
from kvorum.api.sink_attempts import SinkAttempt
from procedures.sink.format.sink_records import (
    Attempt,
    AttemptState,
    Sealed,
    attempt_key,
    attempt_of,
    task_of,
)
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import Reader
from txn.client import TxnClient

_LEASELESS = (AttemptState.PREPARED, AttemptState.COMMITTING)


class Paths:
    """Names of tables, also of those that are gone."""

    def __init__(self, reader: Reader, txn: TxnClient) -> None:
        self._reader, self._txn = reader, txn
        self._known: dict[int, str] = {}

    async def of(self, table: int, at: int) -> str:
        """`at`: a version of when somebody wrote to it."""
        if not table:
            return "-"  # an attempt that was aborted before it staged anything
        if table not in self._known:
            found = await catalog.find_by_id(self._reader, TableId(table))
            self._known[table] = found.path if found else await self._before(table, at)
        return self._known[table]

    async def _before(self, table: int, at: int) -> str:
        """What it was called then, if that is still kept."""
        try:
            found = await catalog.find_by_id(_Past(self._txn, at), TableId(table))
        except (SnapshotTooOld, Forbidden):
            found = None
        return f"{found.path} (gone, id {table})" if found else f"(gone, id {table})"


class _Past:
    """`catalog.Reader` at a version, for gets."""

    def __init__(self, txn: TxnClient, at: int) -> None:
        self._txn, self._at = txn, at

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        return await self._txn.get(key, self._at)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Any:
        raise AssertionError("a table is found by its id with gets")


class _Gathered:
    """An attempt and what its tasks come to. `own` None: it is gone."""

    def __init__(self, name: str, own: Attempt | None, version: int) -> None:
        self.name, self.own, self.version = name, own, version
        self.table = own.table if own is not None else 0
        self.tasks = self.working = self.rows = self.chunks = 0
        self.more = False

    @property
    def full(self) -> bool:
        return self.tasks + self.working >= SINK_TASKS_MAX

    def add(self, task: Sealed) -> None:
        if self.full:
            self.more = True
        elif task.rows:
            self.tasks += 1
            self.rows += task.rows
            self.chunks += task.chunks
        else:
            self.working += 1

    async def shown(self, paths: Paths, now_ms: int) -> SinkAttempt:
        own = self.own
        began = own.about.began_ms if own is not None else 0
        since: int | None = None
        if own is not None:
            entered = began if own.state is AttemptState.OPEN else physical_ms(self.version)
            since = max(0, now_ms - entered) if entered else None
        leased = own is not None and own.state not in _LEASELESS
        return SinkAttempt(
            attempt=self.name,
            table=await paths.of(self.table, self.version) if own is not None else "?",
            state=own.state.name if own is not None else "ORPHAN",
            tasks=self.tasks,
            working=self.working,
            rows=self.rows,
            chunks=self.chunks,
            more=self.more,
            user=own.about.user if own is not None else "",
            app=own.about.app if own is not None else "",
            version=own.about.version if own is not None else 0,
            procedure=own.procedure if own is not None else 0,
            began_ms=began or None,
            since_ms=since,
            left_ms=max(0, own.lease_until_ms - now_ms) if own is not None and leased else None,
        )


async def page(
    reader: Reader,
    paths: Paths,
    now_ms: int,
    after: str = "",
    seen: Callable[[int], bool] | None = None,
) -> tuple[list[SinkAttempt], str]:
    """Attempts by name, behind `after`, and the name behind which there are more ("": there are
    none). `seen`: by a table's id, whether what is staged for it is seen; None: all that the reader
    gives.
    """
    start, end = table_range(system.SINK_ATTEMPTS)
    at: bytes | None = successor(attempt_key(after)) if after else start
    found: list[_Gathered] = []
    last, hidden, looked, full = _Gathered("", None, 0), False, 0, False
    while at is not None and not full:
        rows = await reader.scan(at, end, limit=SCAN_ROWS_MAX)
        at = rows.resume
        for key, value, version in rows.items:
            name, task = attempt_of(key), task_of(key)
            if name != last.name:
                last = _Gathered(name, None if task else Attempt.unpack(value), version)
                hidden = seen is not None and not seen(last.table)
                full = len(found) >= SINK_LISTED_MAX or looked >= SINK_LISTED_ROWS
                if not hidden:
                    if full:
                        break
                    found.append(last)
            if hidden:
                full = False
                continue
            if task:
                last.add(Sealed.unpack(value))
            looked += not last.more  # how many follow in these rows depends on what is hidden
        if at is not None and last.name and (hidden or last.more):
            at = max(at, successor(attempt_key(last.name)))
    shown = [await one.shown(paths, now_ms) for one in found]
    return shown, found[-1].name if full else ""
