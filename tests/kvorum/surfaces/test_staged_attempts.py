"""What Spark has staged is read page by page, whoever else stages there (kvorum/native)."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgpack
import pytest

from kv.base.limits import SINK_LEASE_MS, SINK_PREPARED_WARN_MS
from kvorum.api.sink_attempts import SinkAttempt
from kvorum.native import staged_attempts
from procedures.sink.format.sink_records import (
    About,
    Attempt,
    AttemptState,
    Sealed,
    attempt_key,
    task_key,
)
from sqlproxy.catalog.visible_catalog import Rows

NOW: Final = 1_700_000_000_000
MINE, OTHERS = 100, 101


class Store:
    """`sqlproxy.catalog.catalog.Reader` of rows in memory."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.scanned = 0

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        return self.rows.get(key), 1

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Rows:
        keys = sorted(self.rows)
        low, high = bisect_left(keys, start), bisect_left(keys, end)
        found = keys[low : min(high, low + limit)]
        self.scanned += len(found)
        more = low + limit < high
        return Rows([(k, self.rows[k], 1) for k in found], keys[low + limit] if more else None)

    def attempt(self, name: str, table: int, tasks: int, state: AttemptState) -> None:
        own = Attempt(state, table, NOW + SINK_LEASE_MS)
        self.rows[attempt_key(name)] = own.pack()
        self.tasks(name, tasks)

    def tasks(self, name: str, count: int) -> None:
        for n in range(count):
            self.rows[task_key(name, f"t{n:04d}")] = Sealed(n, 2, 10, 0).pack()


class Names:
    """`staged_attempts.Paths`."""

    async def of(self, table: int, at: int) -> str:
        return f"t{table}"


def pages(store: Store, seen: Callable[[int], bool] | None) -> list[list[SinkAttempt]]:
    async def read() -> list[list[SinkAttempt]]:
        names: Any = Names()
        found, on = await staged_attempts.page(store, names, NOW, "", seen)
        every = [found]
        while on:
            assert found, "a page with nothing, and more behind it, tells of what is hidden"
            assert on == found[-1].attempt
            found, on = await staged_attempts.page(store, names, NOW, on, seen)
            every.append(found)
        return every

    return asyncio.run(read())


@pytest.mark.parametrize("seed", range(40))
def test_pages_have_what_is_seen_and_no_trace_of_the_rest(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others stage shows in where pages end, or takes the place of one's own."""
    rng = random.Random(seed)
    for name, value in (
        ("SCAN_ROWS_MAX", rng.randint(1, 8)),
        ("SINK_LISTED_MAX", rng.randint(1, 4)),
        ("SINK_LISTED_ROWS", rng.randint(1, 20)),
        ("SINK_TASKS_MAX", rng.randint(1, 6)),
    ):
        monkeypatch.setattr(staged_attempts, name, value)
    every, mine = Store(), Store()
    for n in range(rng.randint(0, 20)):
        table, tasks, state = rng.choice((MINE, OTHERS)), rng.randint(0, 9), AttemptState.OPEN
        if rng.random() < 0.1:
            every.tasks(f"a{n:02d}", tasks)  # its own row is gone
            continue
        every.attempt(f"a{n:02d}", table, tasks, state)
        if table == MINE:
            mine.attempt(f"a{n:02d}", table, tasks, state)
    told = pages(every, lambda table: table == MINE)
    assert told == pages(mine, None)
    most = staged_attempts.SINK_TASKS_MAX
    for one in (one for page in told for one in page):
        staged = sum(key.startswith(attempt_key(one.attempt)) for key in mine.rows) - 1
        assert (one.tasks, one.rows, one.more) == (
            min(staged, most),
            10 * min(staged, most),
            staged > most,
        )
    assert {one.state for page in pages(every, None) for one in page} <= {"OPEN", "ORPHAN"}


def test_a_page_has_read_so_many_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes a table stages a million tasks for it, and whoever looks has the node read all."""
    monkeypatch.setattr(staged_attempts, "SCAN_ROWS_MAX", 10)
    monkeypatch.setattr(staged_attempts, "SINK_TASKS_MAX", 20)
    monkeypatch.setattr(staged_attempts, "SINK_LISTED_ROWS", 50)
    store = Store()
    names: Any = Names()
    for n in range(10):
        store.attempt(f"a{n}", MINE, 1_000, AttemptState.OPEN)
    everything: list[Callable[[int], bool] | None] = [None, lambda table: table == OTHERS]
    for seen in everything:
        store.scanned = 0
        asyncio.run(staged_attempts.page(store, names, NOW, "", seen))
        assert store.scanned <= 150


def test_programs_before_read_what_is_said_of_an_attempt() -> None:
    """A node that is not upgraded yet takes the row for broken, and removes nothing any more."""
    said = About(NOW, "ann", "nightly", 7)
    new = Attempt(AttemptState.PREPARED, MINE, NOW, 9, said)
    assert Attempt.unpack(new.pack()).about == said
    _, *row = msgpack.unpackb(new.pack())  # as they did it
    assert row == [AttemptState.PREPARED, MINE, NOW, 9]
    old = Attempt.unpack(msgpack.packb([1, *row]))
    assert (old, old.about) == (new, About())


def told(state: str, since_ms: int, left_ms: int | None) -> SinkAttempt:
    return SinkAttempt(
        *("a1", "shop.orders", state, 3, 0, 30, 6, False, "ann", "nightly", 7, 12),
        *(NOW, since_ms, left_ms),
    )


def test_what_helps_is_said_of_each() -> None:
    """One looks at what is left behind, and does not know whether it goes by itself."""
    for state, since_ms, left_ms, level, word in (
        ("OPEN", 5, SINK_LEASE_MS, "good", "being written"),
        ("OPEN", 5, 60_000, "warn", "kvorum spark abort a1"),
        ("PREPARED", 5, None, "good", "kvorum spark commit 12"),
        ("PREPARED", SINK_PREPARED_WARN_MS, None, "warn", "kvorum spark abort 12"),
        ("COMMITTING", 5, None, "good", "kvorum proc show 12"),
        ("COMMITTING", SINK_PREPARED_WARN_MS, None, "warn", "kvorum proc show 12"),
        ("DONE", 5, 60_000, "good", "visible"),
        ("ABORTED", 5, 60_000, "note", "forgotten in a minute"),
        ("EXPIRED", 5, 7_200_000, "warn", "run the batch again"),
        ("ORPHAN", 5, None, "note", "within a minute"),
    ):
        one = told(state, since_ms, left_ms)
        assert one.level == level, state
        assert word in one.do, state
        assert SinkAttempt.of(one.to_plain()) == one
    evil = replace(told("OPEN", 5, 60_000), attempt="x; reboot")
    assert "kvorum spark abort 'x; reboot'" in evil.do, "who copies it runs it"
