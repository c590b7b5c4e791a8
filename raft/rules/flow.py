"""What may be on its way to one follower, and what of it must be sent again: thesis 10.2.1
(pipelining), with the fixes P4, P10 and P14. Also the token bucket that snapshots share.

A follower is either *probed* (one message at a time, until its log is known to match somewhere) or
in step (messages are pipelined up to a window of bytes and messages).

Invariants
  * an acknowledgement never pulls `next` back below what is in flight (P4: retransmission storms);
  * while probing, `next` only goes down, and an answer to an older question changes nothing: with
    messages pipelined to a follower whose log differs, the later rejections would raise it again,
    for ever (P14);
  * a message is sent again only when the follower answered one that left later by more than the
    network reorders: a slow disk or a long way alone cost no retransmission.

Times are of the leader's clock; a follower echoes them and compares nothing. Left out: estimating
the round trip, growing and shrinking the window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class InFlight:
    """A message with items `first`..`last` (log indexes, or chunk numbers) left at `sent_s`."""

    first: int
    last: int
    size: int
    sent_s: float


class Flow:
    """See the module. `bytes_max` may be exceeded by one item: an empty window takes any."""

    def __init__(self, *, bytes_max: int, messages_max: int, reorder_s: float) -> None:
        self._bytes_max, self._messages_max = bytes_max, messages_max
        self._reorder_s = reorder_s
        self._in_flight: deque[InFlight] = deque()
        self._bytes = 0
        self.probing = True
        self._asked = False

    def restart(self) -> None:
        """Nothing is known of the follower: probe it."""
        self._in_flight.clear()
        self._bytes = 0
        self.probing, self._asked = True, False

    def room(self) -> int:
        """Bytes that may leave now, 0 for none."""
        if self.probing:
            return 0 if self._asked else self._bytes_max
        if len(self._in_flight) >= self._messages_max:
            return 0
        return max(0, self._bytes_max - self._bytes)

    def sent(self, first: int, last: int, size: int, now_s: float) -> None:
        """A message left. While probing it is a question, and moves nothing."""
        if self.probing:
            self._asked = True
            return
        self._in_flight.append(InFlight(first, last, size, now_s))
        self._bytes += size

    def accepted(self, match: int, *, next_item: int) -> int:
        """The follower has everything up to `match`, as far as we ever heard; the new `next`."""
        if self.probing:
            self.probing = self._asked = False
            return match + 1
        while self._in_flight and self._in_flight[0].last <= match:
            self._bytes -= self._in_flight.popleft().size
        return max(next_item, match + 1)

    def rejected(self, wanted: int, *, next_item: int, match: int) -> int:
        """The follower lacks what comes before our message and names what it wants; the new `next`.

        Honest answers to the last question want less than `next`; others are older than it.
        """
        if not self.probing or wanted >= next_item:
            return next_item
        self._asked = False
        return max(wanted, match + 1)

    def lost(self, wanted: int, answered_s: float) -> InFlight | None:
        """The message that carries `wanted`, if it must be lost: the follower has seen one that
        left at `answered_s`, and lacks this.
        """
        for message in self._in_flight:
            if message.last >= wanted:
                overtaken = message.sent_s + self._reorder_s < answered_s
                return message if overtaken and message.first <= wanted else None
        return None

    def mostly_lost(self, answered_s: float, waiting: int) -> bool:
        """A connection broke: of what is in flight, most is lost, and little waits at the follower
        or may still arrive. Then sending it again in large messages costs less than one by one.
        """
        late = sum(sent.sent_s + self._reorder_s < answered_s for sent in self._in_flight)
        return late > 2 * (waiting + len(self._in_flight) - late)

    def reconnected(self) -> None:
        """The way to the follower is a new one: what it does not have by now, it will not get."""
        for sent in self._in_flight:
            sent.sent_s = float("-inf")

    def forget_in_flight(self) -> int:
        """None of it arrived: the window is empty, the follower still in step. Its bytes."""
        size, self._bytes = self._bytes, 0
        self._in_flight.clear()
        return size

    @property
    def in_flight_bytes(self) -> int:
        return self._bytes

    @property
    def oldest_sent_s(self) -> float | None:
        """When the oldest unanswered message left (again); None if there is none."""
        return self._in_flight[0].sent_s if self._in_flight else None


class Bucket:
    """A rate in bytes per second. May be overdrawn by one piece, which is then paid off."""

    def __init__(self, bytes_per_s: int, burst_bytes: int) -> None:
        self._rate, self._burst = bytes_per_s, burst_bytes
        self._filled_s = float("-inf")
        self._tokens = float(burst_bytes)

    def wait_s(self, now_s: float) -> float:
        """How long until something may be taken; 0 for now."""
        if now_s > self._filled_s:
            self._tokens = min(self._burst, self._tokens + (now_s - self._filled_s) * self._rate)
            self._filled_s = now_s
        return 0.0 if self._tokens > 0 else (1 - self._tokens) / self._rate

    def take(self, size: int) -> None:
        self._tokens -= size
