"""Commit timestamps of an oracle in this process, and what waits for one that lives elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base.errors import KvorumError
from kv.base.methods import FRESH_READS
from kv.partition.admission import Item
from kv.partition.ports import Taken


class OfOracle:
    """What `Timestamps` says of an oracle: its order is everybody's, there is nothing to hear."""

    step: Final = 1
    hybrid: Final = False
    causal_token: Final = 0  # txn.shared.ports.Tso

    def hear(self, ts: int) -> KvorumError | None:
        raise NotImplementedError

    def floor(self, top_ts: int) -> int:
        raise NotImplementedError


class AtOnce(OfOracle):
    """`Timestamps` from a function."""

    def __init__(self, take: Callable[[int], int]) -> None:
        """take(n) → the first of n fresh timestamps. Raises Unavailable."""
        self.known = 0
        self._take = take

    def request(self, n: int, done: Taken) -> None:
        try:
            first = self._take(n)
        except KvorumError as error:
            done(0, error)
        else:
            self.known = first + n - 1
            done(first, None)


class Asked:
    """A request for timestamps, and the commands that it was made for."""

    __slots__ = ("doubted", "fresh", "late", "n", "outdated", "reads", "writes")

    def __init__(
        self, reads: list[Item], writes: list[Item], n: int, *, doubted: bool = False
    ) -> None:
        self.reads = reads  # at timestamps that may not be over yet, or at one of these
        self.writes = writes  # in order of arrival
        self.fresh = sum(r[1] in FRESH_READS and not r[6] for _, r in reads)
        self.n = self.fresh + n  # the first ones are for those reads
        self.doubted = doubted  # some of the commands claim what was not known (claims.py)
        self.late = False  # the answer comes in a later step
        # What was known of records was forgotten since; the answer may be older than some of them.
        self.outdated = False
