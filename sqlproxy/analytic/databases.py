"""The DuckDB databases of a process. Each bounds what all its queries hold together, and no query
by itself; so tenants that have queries at the same time have one each, and none has all memory.

They are all empty, so whoever comes takes one that nobody uses. All memory is divided equally among
those that are used (in the last RECENT_S: limits are not changed all the time). Who held more
before another one came gives up what DuckDB can put into a file, and the other one has what is
left then, at least a part of it (_LEAST). More tenants than SQL_ANALYTIC_DATABASES_MAX share. What
goes into files has a bound, too: `spill_room`, asked when a tenant begins.

After a fault of its own DuckDB refuses whatever is asked of that database: it is `lost`, and who
comes next gets a new one. A query that met the fault may run again in one that is its own and
leaves out what DuckDB is known to do wrong (`careful`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

import duckdb

from kv.base.limits import SQL_ANALYTIC_DATABASES_MAX, SQL_ANALYTIC_THREADS
from kv.base.shared_bytes import Who

RECENT_S: Final = 2.0
_LEAST: Final = 2 * SQL_ANALYTIC_DATABASES_MAX
_SETTINGS: Final = (
    "SET preserve_insertion_order = true",
    "SET default_null_order = 'nulls_last_on_asc_first_on_desc'",
    "SET enable_progress_bar = false",
    "SET enable_external_access = false",
)
_CAREFUL: Final = "SET disabled_optimizers = 'build_side_probe_side'"
"""DuckDB 2.0 fails over what comes of an outer join whose sides it has swapped: "dict-surviving
join: … build pipeline is not single-source".
"""


class Database:
    """`limit`: bytes of memory, those of all its queries together."""

    __slots__ = ("files_max", "limit", "queries", "root", "used_s", "who")

    def __init__(self, root: duckdb.DuckDBPyConnection, limit: int) -> None:
        self.root, self.limit = root, limit
        self.files_max = -1  # bytes; DuckDB has its own bound until the first one is set
        self.queries = 0  # under way
        self.used_s = 0.0  # when the last one began or ended
        self.who: Who = None  # who began it

    def bound(self, limit: int) -> bool:
        """From now on it has so many bytes, and free pages go back to the system; False: its
        queries hold more, which cannot go into a file.
        """
        try:
            with self.root.cursor() as cursor:
                cursor.execute(f"SET memory_limit = '{limit >> 20}MiB'").fetchall()
        except duckdb.OutOfMemoryException:
            return False
        self.limit = limit
        return True

    def spills(self, most: int) -> None:
        """From now on its files have at most so many bytes, about: nobody reckons finer."""
        if not 0.9 * self.files_max <= most <= 1.1 * self.files_max:
            with self.root.cursor() as cursor:
                cursor.execute(f"SET max_temp_directory_size = '{most >> 20}MiB'").fetchall()
            self.files_max = most


class Databases:
    """Of one process. All calls are made in threads. `directory`: where large things go."""

    def __init__(
        self,
        bytes_max: int,
        directory: Callable[[], Path],
        monotonic: Callable[[], float],
        spill_room: Callable[[], int],
    ) -> None:
        self._spill_room = spill_room
        self.bytes_max = bytes_max
        self._directory, self._monotonic = directory, monotonic
        self._all: list[Database] = []
        self._numbers = count()  # of their folders
        self._lock = threading.Lock()

    def enter(self, who: Who, *, careful: bool = False) -> Database:
        """The one for a query of that tenant; `leave` follows."""
        with self._lock:
            if careful:
                found = self._opened()
                found.root.execute(_CAREFUL)
                found.bound(self.bytes_max // _LEAST)
                found.queries = 1
                return found
            now_s = self._monotonic()
            found = self._of(who, now_s)
            found.who, found.used_s = who, now_s
            if not found.queries:
                found.spills(self._spill_room())
            self._divide(found, now_s)
            found.queries += 1  # last: whoever is not let in does not leave
            return found

    def leave(self, database: Database) -> None:
        """The query has ended."""
        with self._lock:
            database.queries -= 1
            database.used_s = self._monotonic()
            if not (database.queries or database in self._all):
                with suppress(duckdb.Error):
                    database.root.close()

    def lost(self, database: Database) -> None:
        """DuckDB has given it up; it is closed when its last query leaves it."""
        with self._lock:
            if database in self._all:
                self._all.remove(database)

    def flush(self) -> None:
        """Free pages go back to the system."""
        with self._lock, suppress(duckdb.Error):
            for one in self._all:
                one.bound(one.limit)

    def close(self) -> None:
        """No query is under way any more."""
        with self._lock:
            for one in self._all:
                one.root.close()
            self._all = []

    def _of(self, who: Who, now_s: float) -> Database:
        mine = [one for one in self._all if one.who is who]
        if mine:
            return max(mine, key=lambda one: one.queries)
        idle = [one for one in self._all if not one.queries]
        first = min(idle, key=lambda one: one.used_s, default=None)
        if first is not None and not self._recent(first, now_s):
            return first
        if len(self._all) < SQL_ANALYTIC_DATABASES_MAX:
            self._all.append(self._opened())
            return self._all[-1]
        return first or min(self._all, key=lambda one: one.queries)

    def _recent(self, one: Database, now_s: float) -> bool:
        return bool(one.queries) or now_s - one.used_s < RECENT_S

    def _divide(self, mine: Database, now_s: float) -> None:
        users = [one for one in self._all if self._recent(one, now_s)]
        part = self.bytes_max // len(users)
        left = self.bytes_max
        for one in users:
            if one is not mine:
                if one.limit > part:
                    one.bound(part)
                left -= one.limit
        limit = max(min(part, left), self.bytes_max // _LEAST)
        if mine.limit != limit:
            mine.bound(limit)

    def _opened(self) -> Database:
        root = duckdb.connect(
            ":memory:",
            config={
                "threads": SQL_ANALYTIC_THREADS,
                "memory_limit": f"{self.bytes_max >> 20}MiB",
                "temp_directory": str(self._directory() / f"duckdb-{next(self._numbers)}"),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
            },
        )
        for text in _SETTINGS:
            root.execute(text)
        return Database(root, self.bytes_max)
