"""How much of a node one client may use, whoever else is there. Pure: times are milliseconds of a
clock that does not jump.

    rate        requests a second, from a bucket that holds one second's worth: who was quiet may
                catch up, once
    concurrent  requests that are under way at once

Both are of each name, the same for all, 0 = as many as it likes. A request beyond them is refused
(BUSY) and told when to come again; a refused one takes nothing from the bucket, so that who asks
too often still gets its rate. A name that asks for nothing is forgotten: NAMES_MAX are remembered
at most, and of those that have nothing under way the oldest goes first, which is full by then.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from kv.base.errors import Busy

NAMES_MAX: Final = 10_000


@dataclass(slots=True)
class _Used:
    level: float  # of the bucket, in requests
    at_ms: int
    under_way: int = 0


class Shares:
    """Of one node."""

    def __init__(self) -> None:
        self.rate = 0
        self.concurrent = 0
        self.refused = 0
        self._used: OrderedDict[str, _Used] = OrderedDict()

    @property
    def limited(self) -> bool:
        """Whether anything is; else nobody has to be asked."""
        return bool(self.rate or self.concurrent)

    def set_rate(self, requests_per_s: int) -> None:
        """Buckets keep what they have."""
        self.rate = requests_per_s

    def set_concurrent(self, requests: int) -> None:
        """What is under way ends as it would have."""
        self.concurrent = requests

    def begin(self, name: str, now_ms: int) -> None:
        """A request of this name; `end` follows. Raises Busy: then it does not."""
        used = self._of(name, now_ms)
        if self.concurrent and used.under_way >= self.concurrent:
            raise self._refusal(name, "requests under way", self.concurrent, 100)
        if self.rate:
            if used.level < 1:
                wait_ms = round((1 - used.level) * 1_000 / self.rate) + 1
                raise self._refusal(name, "requests per second", self.rate, wait_ms)
            used.level -= 1
        used.under_way += 1

    def end(self, name: str) -> None:
        """It is answered, or given up."""
        used = self._used.get(name)
        if used is not None and used.under_way:
            used.under_way -= 1

    def figures(self) -> dict[str, int]:
        """For the metrics."""
        return {
            "names": len(self._used),
            "requests_under_way": sum(used.under_way for used in self._used.values()),
            "requests_refused": self.refused,
        }

    def _of(self, name: str, now_ms: int) -> _Used:
        used = self._used.get(name)
        if used is None:
            used = self._used[name] = _Used(float(self.rate), now_ms)
            self._forget()
            return used
        self._used.move_to_end(name)
        came = (now_ms - used.at_ms) * self.rate / 1_000
        used.level = min(float(self.rate), used.level + came)
        used.at_ms = now_ms
        return used

    def _forget(self) -> None:
        if len(self._used) <= NAMES_MAX:
            return
        for name, used in self._used.items():
            if not used.under_way:
                del self._used[name]
                return

    def _refusal(self, name: str, what: str, limit: int, wait_ms: int) -> Busy:
        self.refused += 1
        return Busy(
            f"{name} has had its {limit} {what} at this node: try again in {wait_ms} ms",
            details={"what": what, "user": name, "limit": limit, "retry_after_ms": wait_ms},
        )
