"""What clients make a process hold, in bytes, over all its ports: messages that came in part or are
worked on, and answers that are not read. One bound for both, so that no number of clients fills the
memory.

A message for which there is no room is refused (BUSY), as long as that lasts. Who does not read its
answers cannot be answered: if there is no room, the connection that has waited longest for its
peer is dropped. A client that has begun a message has to go on with it, faster when room is scarce:
who holds half a message and says nothing more holds it for MESSAGE_MS_MAX.

Small ones (CLIENT_SMALL_BYTES) are not counted: the number of connections bounds them.
"""

from __future__ import annotations

from typing import Protocol

from kv.base.errors import Busy, DeadlineExceeded, KvorumError
from kv.base.limits import (
    CLIENT_BYTES_MAX,
    MESSAGE_BYTES_PER_S_FULL,
    MESSAGE_BYTES_PER_S_MIN,
    MESSAGE_MS_MAX,
)


class Reader(Protocol):
    """A connection whose peer does not read."""

    def drop(self) -> None:
        """Close it at once. `flows` follows, at once or later."""
        ...


class Held:
    """Of one process."""

    def __init__(self, limit: int = CLIENT_BYTES_MAX) -> None:
        self.limit = limit
        self.messages = 0  # bytes
        self.unread = 0  # bytes
        self.refused = 0
        self.dropped = 0
        self.late = 0
        self._stalled: dict[Reader, int] = {}  # who waits longest is the first

    def change(self, before: int, now: int) -> None:
        """Of one message, that so much was held of and is now. Raises Busy: there is no room, and
        nothing was changed.
        """
        if now > before and self.messages + self.unread + now - before > self.limit:
            self.refused += 1
            raise Busy(
                f"clients make this node hold {self.limit} bytes of messages and unread answers, "
                "the limit: try again in a moment",
                details={
                    "what": "bytes held for clients",
                    "limit": self.limit,
                    "actual": self.messages + self.unread + now - before,
                    "retry_after_ms": 1_000,
                },
            )
        self.messages += now - before

    def stalled(self, reader: Reader, unread: int) -> None:
        """So many bytes are not read by its peer; called again when it is more or less."""
        self.unread += unread - self._stalled.get(reader, 0)
        self._stalled[reader] = unread
        while self._stalled and self.messages + self.unread > self.limit:
            first = next(iter(self._stalled))
            self.flows(first)
            self.dropped += 1
            first.drop()

    def flows(self, reader: Reader) -> None:
        """Its peer reads again, or is gone."""
        self.unread -= self._stalled.pop(reader, 0)

    def patience_s(self, received: int) -> float:
        """How long a message may take until so many bytes of it are there."""
        scarce = self.messages + self.unread > self.limit // 2
        pace = MESSAGE_BYTES_PER_S_FULL if scarce else MESSAGE_BYTES_PER_S_MIN
        return MESSAGE_MS_MAX / 1_000 + received / pace

    def too_late(self) -> KvorumError:
        """The refusal of a message that does not come on."""
        self.late += 1
        error = DeadlineExceeded(
            "the client stopped in the middle of a message, or sends it too slowly: at least "
            f"{MESSAGE_BYTES_PER_S_MIN} bytes a second after {MESSAGE_MS_MAX} ms, "
            f"{MESSAGE_BYTES_PER_S_FULL} while memory for clients is scarce",
            details={"what": "bytes per second", "limit": MESSAGE_BYTES_PER_S_MIN},
        )
        error.status = 408
        return error

    def figures(self) -> dict[str, int]:
        """For the metrics."""
        return {
            "held_message_bytes": self.messages,
            "held_unread_bytes": self.unread,
            "held_bytes_limit": self.limit,
            "messages_refused": self.refused,
            "messages_late": self.late,
            "unread_dropped": self.dropped,
        }
