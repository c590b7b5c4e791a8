"""What a transaction says to others (NOTIFY) and wants to hear (LISTEN, UNLISTEN) once it commits.

As in PostgreSQL the same text on the same channel is said once, and what is taken back to a
savepoint is not said.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kv.base.limits import (
    SQL_CHANNELS_MAX,
    SQL_NOTIFICATION_BYTES_MAX,
    SQL_NOTIFICATIONS_MAX,
    SQL_PAYLOAD_BYTES_MAX,
)
from sqlproxy.values.errors import INVALID_PARAMETER, LIMIT_EXCEEDED, SqlError

_NAME_BYTES_MAX: Final = 63
NoteMark = tuple[int, int]


class Wish(NamedTuple):
    """LISTEN, or UNLISTEN (`listens` false); `channel` None: UNLISTEN *."""

    listens: bool
    channel: str | None


class Notes:
    """Of one transaction. `said`: (channel, payload), in order."""

    __slots__ = ("_bytes", "said", "wishes")

    def __init__(self) -> None:
        self.said: dict[tuple[str, str], None] = {}
        self.wishes: list[Wish] = []
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self.said or self.wishes)

    def say(self, channel: str, payload: str) -> None:
        """NOTIFY. Raises SqlError (22023, 54000)."""
        check_channel(channel)
        if len(payload.encode()) > SQL_PAYLOAD_BYTES_MAX:
            raise SqlError(
                INVALID_PARAMETER,
                "payload string too long",
                hint=f"It has up to {SQL_PAYLOAD_BYTES_MAX} bytes: keep the rest in a table.",
            )
        if (channel, payload) in self.said:
            return
        size = self._bytes + len(channel) + len(payload)
        if len(self.said) >= SQL_NOTIFICATIONS_MAX or size > SQL_NOTIFICATION_BYTES_MAX:
            raise SqlError(
                LIMIT_EXCEEDED,
                f"a transaction sends at most {SQL_NOTIFICATIONS_MAX} notifications of "
                f"{SQL_NOTIFICATION_BYTES_MAX} bytes together",
                hint="Send one that says where to look.",
            )
        self.said[channel, payload] = None
        self._bytes = size

    def wish(self, wish: Wish) -> None:
        """Raises SqlError (54000)."""
        if len(self.wishes) >= SQL_CHANNELS_MAX:
            raise SqlError(
                LIMIT_EXCEEDED, f"more than {SQL_CHANNELS_MAX} LISTEN and UNLISTEN in a transaction"
            )
        self.wishes.append(wish)

    def mark(self) -> NoteMark:
        """A savepoint."""
        return len(self.said), len(self.wishes)

    def undo_to(self, mark: NoteMark) -> None:
        said, wishes = mark
        if mark == (len(self.said), len(self.wishes)):
            return
        for one in list(self.said)[said:]:
            del self.said[one]
        del self.wishes[wishes:]
        self._bytes = sum(len(channel) + len(payload) for channel, payload in self.said)


def check_channel(channel: str) -> None:
    """Raises SqlError (22023)."""
    if not channel:
        raise SqlError(INVALID_PARAMETER, "channel name cannot be empty")
    if len(channel.encode()) > _NAME_BYTES_MAX:
        raise SqlError(INVALID_PARAMETER, "channel name too long")
