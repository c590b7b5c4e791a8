"""What one session listens to, and what it heard and its client has not been told.

A LISTEN is joined to the process's feed before its transaction commits, so that nothing is missed
after it, and counts when that has committed. What was heard waits in the wire's channel until no
statement and no transaction is under way; a client that lets more than SQL_UNHEARD_BYTES_MAX wait
is hung up on, rather than that it misses something.
"""

from __future__ import annotations

from collections.abc import Iterable

from kv.base.limits import (
    SQL_CHANNELS_MAX,
    SQL_NOTIFICATION_TTL_MS,
    SQL_OWN_NOTIFICATION_MS,
    SQL_UNHEARD_BYTES_MAX,
)
from sqlproxy.catalog.notifications import Notification, encoded, row_key
from sqlproxy.session.shared.notifier import Notifier
from sqlproxy.session.state.notes import Notes, Wish
from sqlproxy.values.errors import (
    ADMIN_SHUTDOWN,
    CONFIGURATION_LIMIT,
    LIMIT_EXCEEDED,
    SqlError,
    unsupported,
)
from sqlproxy.wire.seam import Channel
from txn.transaction import Transaction


class Listening:
    """See the module. Of one session; `sqlproxy.session.shared.notifier.Listener`."""

    def __init__(self, notifier: Notifier | None, database: str, wire: Channel) -> None:
        """`notifier`: the process's; None: it has none."""
        self._notifier, self._database, self._wire = notifier, database, wire
        self.channels: dict[str, None] = {}
        self._joining: list[str] = []  # by the transaction that commits
        self._bytes = 0

    # -- a transaction commits

    async def join(self, wishes: Iterable[Wish]) -> None:
        """Before the commit: hear what the transaction wants to hear. Raises SqlError,
        KvorumError.
        """
        wanted = self._after(wishes)
        if len(wanted) > SQL_CHANNELS_MAX:
            raise SqlError(
                LIMIT_EXCEEDED, f"a session listens to at most {SQL_CHANNELS_MAX} channels"
            )
        new = [channel for channel in wanted if channel not in self.channels]
        if not new:
            return
        if self._notifier is None:
            raise unsupported("LISTEN here")
        since = await self._notifier.since(self._database)
        for channel in new:
            self._joining.append(channel)
            self._notifier.listen(self, self._database, channel, since)

    def write(self, notes: Notes, t: Transaction) -> None:
        """What the transaction says, as rows of it."""
        for number, (channel, payload) in enumerate(notes.said):
            key = row_key(self._database, int(t.id), number)
            one = Notification(channel, payload, self._wire.process)
            t.put(key, encoded(key, one), ttl_ms=SQL_NOTIFICATION_TTL_MS)

    async def committed(self, notes: Notes, version: int) -> None:
        """It has, at this version. What it said to its own session is heard before it answers, if
        that does not take long.
        """
        self._joining.clear()
        if notes.wishes:
            wanted = self._after(notes.wishes)
            self._leave(channel for channel in self.channels if channel not in wanted)
            self.channels = wanted
        if self._notifier is not None and any(one in self.channels for one, _ in notes.said):
            await self._notifier.reached(self._database, version, SQL_OWN_NOTIFICATION_MS)

    def failed(self) -> None:
        """It has not."""
        joining, self._joining = self._joining, []
        self._leave(joining)

    def _after(self, wishes: Iterable[Wish]) -> dict[str, None]:
        """The channels that it listens to then."""
        found = dict(self.channels)
        for wish in wishes:
            if wish.channel is None:
                found.clear()
            elif wish.listens:
                found[wish.channel] = None
            else:
                found.pop(wish.channel, None)
        return found

    def _leave(self, channels: Iterable[str]) -> None:
        gone = set(channels)
        if not gone or self._notifier is None:
            return
        for channel in gone:
            self._notifier.unlisten(self, self._database, channel)
        left = [one for one in self._wire.notifications if one.channel not in gone]
        self._wire.notifications[:] = left

    def close(self) -> None:
        """It listens to nothing more: the session is over, or begins anew."""
        self._leave((*self.channels, *self._joining))
        self.channels.clear()
        self._joining.clear()

    # -- sqlproxy.session.shared.notifier.Listener

    def hear(self, one: Notification) -> None:
        waiting = self._wire.notifications
        if not waiting:
            self._bytes = 0
        self._bytes += len(one.channel) + len(one.payload) + 100
        if self._bytes > SQL_UNHEARD_BYTES_MAX:
            self.close()
            self._end(
                CONFIGURATION_LIMIT,
                "terminating connection because too many notifications wait for it",
                "They are given between two transactions: listen in a session that has none open "
                "for long, and read its connection.",
            )
            return
        waiting.append(one)
        if self._wire.heard is not None:
            self._wire.heard()

    def lost(self) -> None:
        self.channels.clear()
        self._joining.clear()
        self._end(
            ADMIN_SHUTDOWN,
            "terminating connection because notifications were lost",
            "This process was cut off for longer than they are kept. Connect again, LISTEN, and "
            "look at what is there.",
        )

    def _end(self, sqlstate: str, message: str, hint: str) -> None:
        self._wire.notifications.clear()
        if self._wire.end is not None:
            self._wire.end(SqlError(sqlstate, message, hint=hint))
