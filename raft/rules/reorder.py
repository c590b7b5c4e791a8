"""Messages that overtook others wait for them instead of being refused (F10): the follower's half
of pipelining. Refusing them would make the leader send again all that it had pipelined after a
late message.

Invariants
  * bounded in bytes and messages, like the window of the leader that fills it; what does not fit is
    refused as before;
  * it holds messages of one leader's term only; nothing here is part of the log or answered for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Parked:
    """AppendEntries whose predecessor is not in the log yet, by the index of that predecessor."""

    def __init__(self, *, bytes_max: int, messages_max: int) -> None:
        self._bytes_max, self._messages_max = bytes_max, messages_max
        self._messages: dict[int, tuple[Mapping[str, object], int]] = {}
        self._bytes = 0
        self._term = 0

    def waiting(self, term: int) -> int:
        """How many messages of this term's leader wait."""
        return len(self._messages) if term == self._term else 0

    def put(self, prev: int, message: Mapping[str, Any], size: int) -> bool:
        """Keep `message` until `prev` is there; False if there is no room."""
        if message["term"] != self._term:
            self._messages.clear()
            self._bytes, self._term = 0, message["term"]
        known = self._messages.get(prev)
        if known is not None and known[1] >= size:
            return True
        before = 0 if known is None else known[1]
        full = len(self._messages) >= self._messages_max and known is None
        if full or self._bytes - before + size > self._bytes_max:
            return False
        self._messages[prev] = (message, size)
        self._bytes += size - before
        return True

    def take(self, last: int, term: int) -> Mapping[str, object] | None:
        """A message that the log, which ends at `last`, may have been waiting for."""
        if not self._messages or term != self._term:
            return None
        prev = min(self._messages)
        if prev > last:
            return None
        message, size = self._messages.pop(prev)
        self._bytes -= size
        return message
