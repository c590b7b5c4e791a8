"""What the measurements of kills and loads conclude from their notes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from bench import many_procedures
from bench.goals import GOALS, judge
from bench.recovery_procedures import STEPS, judged
from bench.spread import Load, Watcher, check, key_of, value_of
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.limits import PROCEDURES_LIVE_MAX
from kvorum import UnknownOutcome


def _ticks(*parts: tuple[int, float, int]) -> list[tuple[int, float]]:
    """(who, from when, how many), a second apart."""
    return [(pid, at + i) for pid, at, count in parts for i in range(count)]


def test_time_counts_from_the_kill_to_the_first_step_elsewhere() -> None:
    """Steps of procedures that were elsewhere all the time would make every recovery instant."""
    moved = _ticks((1, 0.0, 10), (2, 12.5, STEPS - 10))
    later = _ticks((1, 0.0, 10), (2, 13.0, STEPS - 10))
    untouched = _ticks((2, 0.25, STEPS))
    found = judged([moved, later, untouched], 1, 10.0)
    assert found == {"first_s": 2.5, "all_s": 3.0, "resumed": 2, "wrong": 0}


def test_a_lost_or_doubled_step_is_counted() -> None:
    """A fast recovery that runs a step twice must not look like a good one."""
    lost = _ticks((1, 0.0, 10), (2, 12.0, STEPS - 11))
    doubled = _ticks((1, 0.0, 10), (2, 12.0, STEPS - 9))
    assert judged([lost, doubled], 1, 10.0)["wrong"] == 2


def test_a_kill_that_hit_nothing_is_no_measurement() -> None:
    """Who kills an idle process has measured nothing, which must not pass as zero seconds."""
    with pytest.raises(ValueError, match="nothing was measured"):
        judged([_ticks((2, 0.0, STEPS))], 1, 10.0)


def test_as_many_may_live_as_the_goal_names() -> None:
    """10,000 that work beside 100,000 that wait: the limit was 100,000, and refused the rest."""
    assert max(many_procedures.COUNTS) == 100_000
    assert PROCEDURES_LIVE_MAX >= 100_000 + 10_000


class _Table:
    def __init__(self, rows: dict[int, bytes]) -> None:
        self._rows = rows

    async def rows(self) -> Any:
        for number, value in sorted(self._rows.items()):
            yield SimpleNamespace(key=key_of(number), value=value)


def _check(rows: dict[int, bytes], count: int) -> tuple[int, int, int]:
    database: Any = SimpleNamespace(table=lambda _namespace, _table: _Table(rows))
    return asyncio.run(check(database, count))


def test_lost_and_wrong_rows_are_counted() -> None:
    """A row that is gone, at the end too, or has another's value: the load lost a write."""
    rows = {n: value_of(n) for n in range(10)}
    assert _check(rows, 10) == (10, 0, 0)
    assert _check({n: v for n, v in rows.items() if n not in (0, 4, 9)}, 10) == (7, 3, 0)
    assert _check(rows | {3: value_of(4)}, 10) == (10, 0, 1)
    assert _check(rows | {10: value_of(10)}, 10) == (11, 0, 1)


def test_every_error_of_a_load_is_counted_and_its_batch_sent_again() -> None:
    """An error that the loader swallows would prove that there was none."""
    sent: list[bytes] = []

    class Flaky:
        calls = 0

        async def batch(self, ops: list[Any]) -> int:
            self.calls += 1
            if self.calls == 1:
                raise UnknownOutcome("the connection was lost")
            sent.extend(op.key for op in ops)
            return self.calls

    database: Any = Flaky()
    load = Load(database, 700)
    asyncio.run(load.client())
    assert (load.errors["UNKNOWN_OUTCOME"], load.errors.total(), load.written) == (1, 1, 700)
    assert sent == [key_of(n) for n in range(700)]


def test_only_partitions_of_the_table_count() -> None:
    """The other tables' leaders would make every load look spread."""

    def part(table: int, leader: int | None, size: int, replicas: list[int]) -> dict[str, Any]:
        start = table_prefix(TableId(table))
        return {"start": start, "leader": leader, "size": size, "replicas": replicas}

    async def partitions() -> list[dict[str, Any]]:
        return [part(7, 1, 10**6, [1, 2]), part(7, None, 10**6, [2]), part(8, 3, 10**6, [3])]

    database: Any = SimpleNamespace(partitions=partitions)
    watcher = Watcher(database, 7)
    look = asyncio.run(watcher.look(5))
    assert (look["partitions"], look["leaders"], look["rows"]) == (2, [1, 0, 0], 5)
    assert (look["led_mb"], look["stored_mb"]) == ([1.0, 0.0, 0.0], [1.0, 2.0, 0.0])
    assert watcher.spread_s is None


@pytest.mark.parametrize(("clients", "nodes", "bound"), [(1, None, 15), (64, None, 15), (16, 3, 5)])
def test_steps_are_compared_with_dbos_at_the_same_number(
    clients: int, nodes: int | None, bound: float
) -> None:
    """One node's figures taken for the three nodes' would meet a goal that nobody measured."""
    wanted = {"op": "1-step", "clients": clients, "nodes": nodes}
    (goal,) = (
        g for g in GOALS if g.peer.get("peer") == "dbos" and wanted.items() <= g.ours.items()
    )
    ours = {"bench": "procedures", "op": "1-step", "clients": clients, "steps_s": bound * 10}
    peer = {"bench": "peer", "peer": "dbos", "op": "1-step", "clients": clients, "steps_s": 10}
    here = ours | ({} if nodes is None else {"nodes": nodes})
    elsewhere = ours | ({"nodes": 3} if nodes is None else {})
    assert judge(goal, [here, peer]).met is True
    assert judge(goal, [here | {"steps_s": bound * 10 - 1}, peer]).met is False
    assert judge(goal, [elsewhere, peer]).met is None
