"""The timestamp oracle: pure allocation below a durable bound.

A timestamp is 64 bits, milliseconds of the wall clock << 18 | logical (kv/base/timestamps.py),
after the oracle of Percolator (Peng & Dabek 2010, section 2.3) in TiDB's form: what may have been
handed out is below a bound that is durable *before*; who starts, starts at that bound.

Invariants
  * strictly increasing, whatever the clock does: set back, it goes on from the last timestamp (the
    logical part runs over into the milliseconds); set forward, it follows as soon as the bound
    does;
  * nothing at or above `bound` is handed out: a crash, or a new leader, never repeats a timestamp;
  * nothing below the bound that `start` was given.

A call reads a clock and adds: no I/O, no lock. Left out: leases. A leader that was deposed without
knowing could go on below its bound; service.py asks for the lease.
"""

from __future__ import annotations

from kv.base import timestamps
from kv.base.errors import InvalidArgument, Unavailable
from kv.base.limits import TSO_AHEAD_MS, TSO_COUNT_MAX, TSO_RAISE_BELOW_MS
from kv.base.ports import Clock

_AHEAD = timestamps.compose(TSO_AHEAD_MS)
_RAISE_BELOW = timestamps.compose(TSO_RAISE_BELOW_MS)


class Oracle:
    """`start` with the durable bound, then `raised` whenever a higher one is durable, then
    `take`.
    """

    __slots__ = ("_bound", "_last", "_now_ms")

    def __init__(self, clock: Clock) -> None:
        self._now_ms = clock.now_ms
        self._last = 0  # the highest that was handed out, or may have been
        self._bound = 0  # exclusive; durable

    @property
    def last(self) -> int:
        return self._last

    @property
    def bound(self) -> int:
        return self._bound

    def start(self, durable_bound: int) -> None:
        """Begin above everything that may have been handed out below `durable_bound`."""
        self._last = max(self._last, durable_bound)
        self._bound = durable_bound

    def take(self, n: int = 1) -> int:
        """The first of `n` consecutive new timestamps.

        Raises InvalidArgument for n outside 1 … TSO_COUNT_MAX, Unavailable (TSO_BOUND) if they
        would reach the durable bound; then nothing is handed out.
        """
        if not 0 < n <= TSO_COUNT_MAX:
            raise InvalidArgument(f"count must be in 1 … {TSO_COUNT_MAX} timestamps, got {n}")
        first = timestamps.compose(self._now_ms())
        if first <= self._last:
            first = self._last + 1
        last = first + n - 1
        if last >= self._bound:
            raise Unavailable(
                "the oracle's durable bound is reached and not raised yet: ask again in a moment",
                code="TSO_BOUND",
            )
        self._last = last
        return first

    def bound_needed(self) -> int | None:
        """The bound to make durable now, None while TSO_RAISE_BELOW_MS of it is left."""
        reached = max(timestamps.compose(self._now_ms()), self._last)
        return reached + _AHEAD if self._bound - reached < _RAISE_BELOW else None

    def skip(self, above: int) -> None:
        """Hand out nothing at or below `above` any more. What it is handed out next must still be
        below the durable bound: until that is raised, nothing is.
        """
        self._last = max(self._last, above)

    def raised(self, bound: int) -> None:
        """`bound` is durable."""
        self._bound = max(self._bound, bound)
