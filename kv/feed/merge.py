"""Several ranges become one stream of whole transactions in commit order. Pure.

Each *leg* is a range of one partition with a frontier: all its versions at or below are known (kv/
feed/changes.py says why that can be known). A transaction's rows have one version, which no other
transaction has, because commit timestamps are the oracle's. So all rows of a version at or below
the lowest frontier are one whole transaction, and no lower one can come: it may be delivered.

A leg that is ahead waits: it is not asked again before its rows were delivered, so what is held is
bounded by what one look at each leg may find. A version that is too large for that (`large`) is
delivered when all legs have reached it, by reading it alone from each leg, in key order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from kv.feed.changes import Row
from kv.feed.collect import Collector
from kv.feed.spill import Spill

_version = itemgetter(2)


class Leg:
    """A range `[start, end)` within one partition, and how far it is known."""

    __slots__ = ("end", "frontier", "large", "mark", "more", "rows", "spill", "start")

    def __init__(self, start: bytes, end: bytes, frontier: int) -> None:
        self.start, self.end, self.frontier = start, end, frontier
        self.rows: list[Row] = []  # not delivered yet, by version; all at or below the frontier
        self.large = 0  # frontier + 1, if that version must be read by itself
        self.more = True  # there was more to find than was taken
        self.mark = 0  # the partition's, at the last look (kv/feed/recent.py)
        self.spill: Spill | None = None  # what the last look found beyond the frontier

    def looked(
        self, found: Collector, resolved: int, mark: int, spill: Spill | None = None
    ) -> None:
        """What a look found, which could have gone up to `resolved`. `spill` has a part of it: then
        `refill` comes next.
        """
        assert found.upto >= self.frontier, "a frontier never goes back"
        self.more, self.mark = found.upto < resolved, mark
        if spill is None:
            self.rows, self.frontier, self.large = found.rows(), found.upto, found.large
        else:
            spill.add(found.drain())
            spill.begin(found.upto)
            self.spill = spill

    def refill(self, *, rows_max: int, bytes_max: int) -> None:
        """Take what comes next from the spill."""
        assert self.spill is not None, "asked for what is not there"
        self.rows, self.frontier, self.large = self.spill.take(
            rows_max=rows_max, bytes_max=bytes_max
        )
        self.more = True
        if self.spill.done:
            self.spill.close()
            self.spill = None


class Merge:
    """The legs of one watcher, in key order, without gaps."""

    def __init__(self, legs: Sequence[Leg]) -> None:
        self.legs = list(legs)

    @property
    def position(self) -> int:
        """Every transaction at or below was delivered, once `take` was called."""
        return min(leg.frontier for leg in self.legs)

    def wanting(self) -> list[Leg]:
        """The legs to look at: what they found before was delivered."""
        return [leg for leg in self.legs if not leg.rows and not leg.large]

    def split(self, leg: Leg, borders: Sequence[bytes]) -> None:
        """The leg's range belongs to several partitions now, which meet at `borders`."""
        assert leg in self.wanting(), "it is split when it is looked at"
        assert leg.spill is None, "what it found is delivered first"
        starts, ends = [leg.start, *borders], [*borders, leg.end]
        at = self.legs.index(leg)
        self.legs[at : at + 1] = [
            Leg(start, end, leg.frontier) for start, end in zip(starts, ends, strict=True)
        ]

    def take(self) -> list[tuple[int, list[Row]]]:
        """The transactions that may be delivered now, (version, rows by key), in commit order."""
        upto = self.position
        ready: list[Row] = []
        for leg in self.legs:
            n = next((i for i, row in enumerate(leg.rows) if row[2] > upto), len(leg.rows))
            ready += leg.rows[:n]
            del leg.rows[:n]
        ready.sort(key=lambda row: (row[2], row[0]))
        return [(version, list(rows)) for version, rows in groupby(ready, key=_version)]

    def large(self) -> int:
        """The version that is next, too large to be held, and complete in all legs; 0 = none."""
        lowest = min((leg.large for leg in self.legs if leg.large), default=0)
        if lowest and all(leg.large == lowest or leg.frontier >= lowest for leg in self.legs):
            return lowest
        return 0

    def delivered(self, version: int) -> None:
        """A large version was delivered."""
        for leg in self.legs:
            leg.rows = [row for row in leg.rows if row[2] > version]
            if leg.large == version:
                leg.large, leg.frontier, leg.more = 0, version, True
