"""Timestamps for one node of a cluster with hybrid clocks: of its own clock, always at once.

    partitions ── request ──┐
    clients ───── take ─────┼── HybridClock (hybrid.py)
    the master ── take ─────┘   … under the lease of the meta partition (HybridMaster)

They stand where NodeTso and TsoService stand with an oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base.errors import KvorumError, NotLeader, Unavailable
from kv.base.limits import DEADLINE_MS_DEFAULT
from kv.base.ports import Rng, Timers
from kv.base.timestamps import STEP
from kv.base.wire_row import WireRow
from tso.client import Patience
from tso.hybrid import HybridClock

Taken = Callable[[int, KvorumError | None], None]
"""(first, None), or (0, why there are none)"""


class HybridTso:
    """See the module."""

    step: Final = STEP
    hybrid: Final = True
    waits: Final = 0

    def __init__(
        self,
        clock: HybridClock,
        timers: Timers,
        rng: Rng,
        *,
        budget_ms: int = DEADLINE_MS_DEFAULT,
    ) -> None:
        self._clock = clock
        self._patience = Patience(timers, rng, budget_ms)

    # -- clients of this node

    @property
    def causal_token(self) -> int:
        return self._clock.at

    async def now(self) -> int:
        """A timestamp above every one that this node has given out or heard of."""
        return await self.take(1)

    async def take(self, count: int) -> int:
        """The first of `count` timestamps, STEP apart. Raises what `HybridClock.take` raises, if
        that does not pass in time.
        """
        try:
            return self._clock.take(count)
        except Unavailable:
            return await self._patience.ask(self._fetch, count)

    async def _fetch(self, count: int, _budget_ms: int) -> int:
        return self._clock.take(count)

    async def above(self, at: int) -> int:
        """A timestamp above `at`, as all later ones here. Raises InvalidArgument for one that no
        node can have given out, Unavailable.
        """
        return await self._patience.ask(self._above, at)

    async def _above(self, at: int, _budget_ms: int) -> int:
        if (error := self._clock.hear(at)) is not None:
            raise error
        return self._clock.take(1)

    # -- its partitions (kv.partition.ports.Timestamps)

    @property
    def known(self) -> int:
        return self._clock.at

    def hear(self, ts: int) -> KvorumError | None:
        return self._clock.hear(ts)

    def floor(self, top_ts: int) -> int:
        return self._clock.floor(top_ts)

    def request(self, n: int, done: Taken) -> None:
        try:
            first = self._clock.take(n)
        except KvorumError as error:
            done(0, error)
        else:
            done(first, None)

    async def close(self) -> None:
        """Nobody waits."""


class HybridMaster:
    """The timestamps of the meta partition's leader, for what it decides (tso.service.TsoService).
    `handle` answers at every node.
    """

    def __init__(
        self, clock: HybridClock, *, lease: Callable[[], bool], not_leader: Callable[[], NotLeader]
    ) -> None:
        self.handed_out = self.requests = 0
        self._clock, self._lease, self._not_leader = clock, lease, not_leader
        self._leading = False

    @property
    def leading(self) -> bool:
        return self._leading

    @property
    def last(self) -> int:
        return self._clock.at

    def role(self, *, leader: bool) -> None:
        self._leading = leader

    def close(self) -> None:
        self._leading = False

    def take(self, n: int = 1) -> int:
        """Raises NotLeader, too."""
        if not self._leading or not self._lease():
            raise self._not_leader()
        return self._clock.take(n)

    def trouble(self) -> str | None:
        """Of every node: what keeps it from giving out timestamps."""
        return self._clock.trouble()

    def skip(self, above: int) -> None:
        """Go on above `above`, which must not be far ahead of this node's clock: there is no way
        to have all of them leap. Raises NotLeader, Unavailable, InvalidArgument.
        """
        if not self._leading or not self._lease():
            raise self._not_leader()
        if (error := self._clock.hear(above)) is not None:
            raise error

    def handle(self, _context: object, args: WireRow) -> list[object]:
        """The node method TSO, of any node. Raises what `hear` and `take` say."""
        if len(args) > 1 and (error := self._clock.hear(args[1])) is not None:
            raise error
        first = self._clock.take(args[0])
        self.requests += 1
        self.handed_out += args[0]
        return [first]

    def stats(self) -> dict[str, int]:
        return {"tso.requests": self.requests, "tso.handed_out": self.handed_out, "tso.raises": 0}
