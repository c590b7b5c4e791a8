"""Below which start_ts no transaction has an intent anywhere in the cluster.

The record of a transaction that committed may be the only proof that its leftover intents are
versions, and they may lie in any partition. So every node is asked for the oldest intent among its
replicas. The answer is sound if every partition's leader gave one. An intent that is laid later
belongs to a transaction that began at most TXN_LIFETIME_MS_MAX before (kv.mvcc.refusals.check_age),
and what is reported stays twice as far back; so it only rises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kv.base.limits import TXN_LIFETIME_MS_MAX
from kv.base.timestamps import compose, physical_ms
from kv.base.wire_row import WireRow

_AGAIN_S: Final = 60.0


class OldestIntent:
    """Asks at most once a minute."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[Sequence[WireRow]]],
        partitions: Callable[[], Awaitable[set[int]]],
        now_ts: Callable[[], Awaitable[int]],
        monotonic: Callable[[], float],
    ) -> None:
        """`ask()`: what OLDEST_INTENT answers at the nodes that answer; `partitions()`: the ids of
        all there are.
        """
        self._ask, self._partitions, self._now_ts = ask, partitions, now_ts
        self._monotonic = monotonic
        self._found = 0
        self._again_s = 0.0

    async def find(self) -> int:
        """The floor; 0 while nothing is known. Raises KvorumError."""
        if self._monotonic() < self._again_s:
            return self._found
        now_ts = await self._now_ts()
        needed = await self._partitions()
        answers = await self._ask()
        self._again_s = self._monotonic() + _AGAIN_S
        if needed <= {id for answer in answers for id in answer[1]}:
            oldest = min((answer[0] for answer in answers if answer[0]), default=now_ts)
            bound = compose(max(0, physical_ms(now_ts) - 2 * TXN_LIFETIME_MS_MAX))
            self._found = max(self._found, min(oldest, bound))
        return self._found
