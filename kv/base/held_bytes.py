"""What clients make a process hold, in bytes, over all its ports: messages that came in part or are
worked on, and answers that are not read. One bound for both, so that no number of clients fills the
memory, and each tenant has a share of it (kv/base/shared_bytes.py).

A message for which there is no room is refused (BUSY), as long as that lasts. Who does not read its
answers cannot be answered: if there is no room, the connection that has waited longest for its
peer is dropped, of the tenant that has no room, or else of the one that holds most. A client that
has begun a message has to go on with it, faster when room is scarce: who holds half a message and
says nothing more holds it for MESSAGE_MS_MAX.

Small ones (CLIENT_SMALL_BYTES) are not counted: the number of connections bounds them.
"""

from __future__ import annotations

from typing import Final, Protocol

from kv.base.accounts import USER, Account
from kv.base.errors import Busy, DeadlineExceeded, KvorumError
from kv.base.limits import (
    CLIENT_BYTES_MAX,
    MESSAGE_BYTES_PER_S_FULL,
    MESSAGE_BYTES_PER_S_MIN,
    MESSAGE_MS_MAX,
)
from kv.base.shared_bytes import SharedBytes, Who

STRANGERS: Final = Account(USER, "(not logged in)", lambda: 0, shown=False)
"""Who have not said who they are: one tenant."""


class Reader(Protocol):
    """A connection whose peer does not read."""

    def drop(self) -> None:
        """Close it at once. `flows` follows, at once or later."""
        ...


class Held:
    """Of one process."""

    def __init__(self, limit: int = CLIENT_BYTES_MAX) -> None:
        self.bytes = SharedBytes(limit)  # of both:
        self.messages = 0
        self.unread = 0
        self.refused = 0
        self.dropped = 0
        self.late = 0
        # Who waits longest is the first.
        self._stalled: dict[Reader, tuple[Who, int]] = {}

    def change(self, before: int, now: int, who: Who = None) -> None:
        """Of one message of a tenant, that so much was held of and is now. Raises Busy: there is no
        room, and nothing was changed.
        """
        more = now - before
        if more <= 0:
            self.bytes.give(who, -more)
        elif not self.bytes.take(who, more):
            self.refused += 1
            raise self._no_room(who, more)
        self.messages += more

    def _no_room(self, who: Who, more: int) -> Busy:
        limit, actual = self.bytes.limit, self.bytes.used + more
        whose = "clients make"
        if who is not None and actual <= limit:
            limit, actual = self.bytes.share(more), self.bytes.of(who) + more
            whose = f"{who.kind} {who.name} makes"
        return Busy(
            f"{whose} this node hold {actual} bytes of messages and unread answers; the limit is "
            f"{limit} now: try again in a moment",
            details={
                "what": "bytes held for clients",
                "limit": limit,
                "actual": actual,
                "retry_after_ms": 1_000,
            },
        )

    def stalled(self, reader: Reader, unread: int, who: Who = None) -> None:
        """So many bytes are not read by the peer of a connection of that tenant; called again when
        it is more or less.
        """
        self._forget(*self._stalled.get(reader, (who, 0)))
        self._stalled[reader] = (who, unread)
        self._forget(who, -unread)
        while (first := self._first_to_go(who)) is not None:
            self.flows(first)
            self.dropped += 1
            first.drop()

    def _first_to_go(self, who: Who) -> Reader | None:
        """Somebody who does not read, as there is no room, or `who` has more than its share."""
        if self.bytes.fits(who, 0):
            return None
        if self.bytes.used > self.bytes.limit:  # whoever holds most pays
            who = max(
                (tenant for tenant, _ in self._stalled.values()), key=self.bytes.of, default=who
            )
        found = (reader for reader, (tenant, _) in self._stalled.items() if tenant is who)
        return next(found, None)

    def flows(self, reader: Reader) -> None:
        """Its peer reads again, or is gone."""
        self._forget(*self._stalled.pop(reader, (None, 0)))

    def _forget(self, who: Who, unread: int) -> None:
        self.unread -= unread
        self.bytes.give(who, unread)

    def patience_s(self, received: int) -> float:
        """How long a message may take until so many bytes of it are there."""
        scarce = self.messages + self.unread > self.bytes.limit // 2
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
            "held_bytes_limit": self.bytes.limit,
            "messages_refused": self.refused,
            "messages_late": self.late,
            "unread_dropped": self.dropped,
        }
