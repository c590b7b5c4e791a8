"""How a backfill gives way to those who are served by the same loop."""

from __future__ import annotations

import asyncio

from kv.base.adapters import LoopTimers
from kv.base.limits import (
    SQL_BACKFILL_ROWS_MIN,
    SQL_IDLE_PASS_S,
    SQL_REST_MS_MAX,
    SQL_SLICE_ROWS,
    SQL_SLICE_ROWS_MAX,
)
from sqlproxy.change.backfill import Pace, fewer
from tests.support import simloop


class Watched(LoopTimers):
    """Each look at the clock finds that others had the loop for `pass_s`."""

    def __init__(self, loop: simloop.SimLoop) -> None:
        super().__init__(loop)
        self.pass_s = self._more = 0.0
        self.monotonic = self._looked_at

    def _looked_at(self) -> float:
        self._more += self.pass_s
        return self._loop.time() + self._more


def test_q4_slices_grow_while_nobody_else_is_there() -> None:
    """An index of an idle cluster would take three times as long."""

    async def main(loop: simloop.SimLoop) -> None:
        pace, sizes = Pace(LoopTimers(loop), 0), []
        for _ in range(6):
            sizes.append(pace.rows)
            await pace.rest()
        assert sizes == [SQL_SLICE_ROWS << n for n in range(4)] + [SQL_SLICE_ROWS_MAX] * 2
        assert loop.time() < 0.01, "it does not rest"

    simloop.run(main)


def test_q4_slices_are_small_and_rest_beside_others() -> None:
    """Readers beside CREATE INDEX would wait for large slices, one after the other."""

    async def main(loop: simloop.SimLoop) -> None:
        timers = Watched(loop)
        pace = Pace(timers, 0)
        await pace.rest()
        assert pace.rows == 2 * SQL_SLICE_ROWS
        timers.pass_s = 10 * SQL_IDLE_PASS_S
        for worked_s in (0.003, 0.020, 1.0):
            await asyncio.sleep(worked_s)
            began = loop.time()
            await pace.rest()
            rested = loop.time() - began
            assert pace.rows == SQL_SLICE_ROWS
            wanted = min(worked_s, SQL_REST_MS_MAX / 1000)
            assert wanted <= rested < wanted + 0.005

    simloop.run(main)


def test_q4_conflicts_make_slices_small() -> None:
    """A table that changes all the time would never get its index."""
    assert [fewer(1_000, tries) for tries in (0, 1, 4, 40)] == [1_000, 500, 62, 8]

    async def main(loop: simloop.SimLoop) -> None:
        assert Pace(LoopTimers(loop), 3).rows == SQL_BACKFILL_ROWS_MIN

    simloop.run(main)
