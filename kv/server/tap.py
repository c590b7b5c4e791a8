"""Sees every request of the native port and its reply, for the log of stamps
(kvorum/audit/audit_log.py).

It stands between the connections and the dispatcher, and only where somebody listens: without it
the way of a request is the same, so it costs nothing. A request is reported when its reply is
queued, which is when its effects are known: of a read, what its partition shows at that moment is
what it was served from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kv.base.errors import KvorumError
from kv.base.intents import Author
from kv.base.internal_errors import Faults
from kv.base.rights import Identity
from kv.base.wire_row import WireRow
from kv.server.connection_rights import Rights
from kv.server.counters import Counters
from kv.server.dispatcher import Connection, Dispatcher
from kv.server.timestamp_connections import Express


class Listener(Protocol):
    """The receiver. Must not raise, and not take long."""

    def answered(
        self,
        client: str,
        node: int,
        who: Identity | None,
        request: list[object],
        reply: list[object],
        took_s: float,
    ) -> None:
        """`client`: HOST:PORT; `node`: whose connection it has proved to be, 0 = a client's; `who`:
        None if nobody has to say. The request's field 2 may be a deadline by now.
        """
        ...


class Tappable(Connection, Protocol):
    """kv.server.socket_server.ServerConnection."""

    node: int
    proved: bool
    identity: Identity | None
    author: Author
    tap: object

    @property
    def peer(self) -> str: ...

    def stand_in(self, row: list[object], to: Connection | None = None) -> None:
        """`to`: who is answered instead of this."""
        ...


class Tap:
    """Submitter of a socket server; see the module."""

    def __init__(
        self, dispatcher: Dispatcher, listener: Listener, monotonic: Callable[[], float]
    ) -> None:
        self._dispatcher, self._listener, self._monotonic = dispatcher, listener, monotonic

    @property
    def counters(self) -> Counters:
        return self._dispatcher.counters

    @property
    def express(self) -> Express:
        return self._dispatcher.express

    @property
    def faults(self) -> Faults:
        return self._dispatcher.faults

    def submit(self, conn: Tappable, requests: list[list[object]]) -> None:
        self._dispatcher.submit(self._came(conn, requests), requests)

    def refuse(self, conn: Tappable, row: list[object], error: KvorumError) -> None:
        """One that its connection may not send."""
        self._dispatcher.refuse(self._came(conn, [row]), row, error)

    def _came(self, conn: Tappable, requests: list[list[object]]) -> _Tapped:
        tapped = conn.tap
        if not isinstance(tapped, _Tapped):
            tapped = conn.tap = _Tapped(conn, self._listener, self._monotonic)
        tapped.came(requests)
        return tapped


class _Tapped:
    """One connection, as the dispatcher sees it."""

    __slots__ = ("_client", "_conn", "_listener", "_monotonic", "_open", "author")

    def __init__(self, conn: Tappable, listener: Listener, monotonic: Callable[[], float]) -> None:
        self._conn, self._listener, self._monotonic = conn, listener, monotonic
        self._client = conn.peer
        self._open: dict[int, tuple[list[object], float]] = {}  # bounded by the connection's window

    @property
    def user(self) -> str:
        return self._conn.user

    @property
    def rights(self) -> Rights | None:
        return self._conn.rights

    def stand_in(self, row: list[object]) -> None:
        self._conn.stand_in(row, self)

    def came(self, requests: list[WireRow]) -> None:
        self.author = self._conn.author
        now = self._monotonic()
        for request in requests:
            self._open[request[0]] = request, now

    def reply(self, row: WireRow) -> None:
        found = self._open.pop(row[0], None)
        if found is not None:
            request, began = found
            took_s, conn = self._monotonic() - began, self._conn
            node = conn.node if conn.proved else 0
            self._listener.answered(self._client, node, conn.identity, request, row, took_s)
        self._conn.reply(row)

    def flush(self) -> None:
        self._conn.flush()

    def ready(self, wake: Callable[[], None]) -> bool:
        return self._conn.ready(wake)
