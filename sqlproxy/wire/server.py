"""The PostgreSQL port of a node: accepts clients, bounds them, cancels for them, stops them.

Everything of a client is its Connection's; the server knows who is there, whose key is whose, how
much large messages take together, and looks once a second at those with a deadline, while there
are any.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kv.base.connection_slots import Comer, Seats, Strangers
from kv.base.fair_turns import FairTurns
from kv.base.limits import SQL_CANCEL_MS_MAX, SQL_CONNECTIONS_MAX, SQL_INPUT_BYTES_MAX
from kv.base.ports import Clock, Rng
from kv.base.rights import Identity
from kv.base.shared_bytes import SharedBytes, Who
from kv.base.throttle import Throttle
from raft.listener import stop_listening
from raft.log_bound import LogBound
from sqlproxy.values.errors import (
    ADMIN_SHUTDOWN,
    CANNOT_CONNECT_NOW,
    TOO_MANY_CONNECTIONS,
    SqlError,
)
from sqlproxy.wire.codec import Fatal
from sqlproxy.wire.connection import Connection
from sqlproxy.wire.seam import Sessions
from sqlproxy.wire.startup import Tls

log = logging.getLogger(__name__)
_SWEEP_S: Final = 1.0
_BACKLOG: Final = 1024
_KEEPALIVE_IDLE_S: Final = 60
_SECRET_BYTES: Final = 32
_PROCESS_MAX: Final = (1 << 31) - 1
_UNGREETED_EXTRA: Final = 100  # beyond the limit they are let in far enough to get the error


@dataclass(slots=True)
class Counters:
    opened: int = 0
    refused: int = 0
    cancels: int = 0
    expired: int = 0
    logins_failed: int = 0


class SqlServer:
    """`clock` only measures; `rng` makes nonces and keys; `connections_max` is for tests."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        clock: Clock,
        rng: Rng,
        tls: Tls | None = None,
        connections_max: int = SQL_CONNECTIONS_MAX,
        seats: Seats | None = None,
        turns: FairTurns | None = None,
    ) -> None:
        self.sessions = sessions
        self.rng = rng
        self.tls = tls
        self.secret = rng.token(_SECRET_BYTES)
        self.counters = Counters()
        self._throttle = Throttle()
        self._lines = LogBound()
        self.turns = turns or FairTurns(clock.monotonic)
        self.on_login: Callable[[Identity, str, SqlError | None], None] | None = None
        """Told who was let in from where, or why not."""
        self.gone: Callable[[], None] | None = None  # called when a connection has ended
        self.elsewhere: Callable[[int, bytes], None] | None = None  # a cancel for another's session
        self._clock = clock
        self._connections_max = connections_max
        self._seats = seats or Seats()
        self._strangers = Strangers()
        self._connections: set[Connection] = set()
        self._unfinished: set[Connection] = set()  # those, and whose session is being closed
        self._keys: dict[int, tuple[bytes, Connection]] = {}
        self._last_process = 0
        self._first, self._step = 1, 1  # the numbers it gives out
        self.large = SharedBytes(SQL_INPUT_BYTES_MAX)  # messages
        self._watched: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._listener: asyncio.Server | None = None
        self._stopping = False
        self._all_gone: asyncio.Event | None = None

    # -- life

    async def start(
        self, host: str = "127.0.0.1", port: int = 0, *, listener: socket.socket | None = None
    ) -> int:
        """Listens, on a socket that is bound already if one is given; returns the port."""
        loop = asyncio.get_running_loop()
        if listener is not None:
            self._listener = await loop.create_server(
                lambda: Connection(self), sock=listener, backlog=_BACKLOG
            )
        else:
            self._listener = await loop.create_server(
                lambda: Connection(self), host, port, backlog=_BACKLOG
            )
        address = self._listener.sockets[0].getsockname()
        return int(address[1]) if isinstance(address, tuple) else 0

    def number_by(self, first: int, step: int) -> None:
        """Give sessions the numbers `first`, `first + step`, …: others have those between."""
        self._first, self._step = first, step

    async def take(self, client: socket.socket) -> None:
        """Serve a client that somebody else has accepted."""
        loop = asyncio.get_running_loop()
        try:
            client.setblocking(False)
            if client.family in (socket.AF_INET, socket.AF_INET6):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(lambda: Connection(self), client)
        except OSError:  # it is gone already
            client.close()
            if self.gone is not None:
                self.gone()

    async def stop(self, grace_s: float = 5.0) -> None:
        """No new clients; those at rest get 57P01 and are closed, statements that run may end
        within `grace_s`; then they are canceled, and at last killed.
        """
        self._stopping = True
        if self._listener is not None:
            await stop_listening(self._listener)
        self._all_gone = asyncio.Event()
        for connection in list(self._connections):
            connection.end(
                Fatal(ADMIN_SHUTDOWN, "terminating connection due to administrator command")
            )
        if not await self._gone_within(grace_s):
            for connection in list(self._connections):
                connection.cancel()
            if not await self._gone_within(SQL_CANCEL_MS_MAX / 1_000):
                for connection in list(self._unfinished):
                    connection.kill()
                await self._gone_within(SQL_CANCEL_MS_MAX / 1_000)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._listener is not None:
            await self._listener.wait_closed()
            self._listener = None

    async def _gone_within(self, seconds: float) -> bool:
        assert self._all_gone is not None
        if not self._unfinished:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._all_gone.wait()
        except TimeoutError:
            return False
        return True

    @property
    def connections(self) -> int:
        return len(self._connections)

    # -- of connections

    def opened(self, connection: Connection) -> None:
        self.counters.opened += 1
        self._connections.add(connection)
        self._unfinished.add(connection)
        seated = self._seats.take(connection)
        self._strangers.come(connection)
        crowd = len(self._connections) > self._connections_max + _UNGREETED_EXTRA
        if not seated or (crowd and not self._strangers.make_room(connection)):
            connection.end(self._too_many(min(self._connections_max, self._seats.limit)))

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._seats.give(connection)
        self._strangers.go(connection)
        self._watched.discard(connection)
        self._keys.pop(connection.process, None)
        if self.gone is not None:
            self.gone()

    def finished(self, connection: Connection) -> None:
        self._unfinished.discard(connection)
        if self._all_gone is not None and not self._unfinished:
            self._all_gone.set()

    def admit(self, comer: Comer) -> None:
        if self._stopping:
            raise Fatal(CANNOT_CONNECT_NOW, "the database system is shutting down")
        if self._seats.full(comer):
            raise self._too_many(min(self._connections_max, self._seats.limit))
        if len(self._keys) >= self._connections_max:
            raise self._too_many(self._connections_max)

    def _too_many(self, limit: int) -> Fatal:
        self.counters.refused += 1
        return Fatal(
            TOO_MANY_CONNECTIONS,
            "sorry, too many clients already",
            detail=f"At most {limit} are served by one node.",
        )

    def register(self, connection: Connection, key: bytes) -> int:
        process = self._last_process
        while True:
            process = process + self._step if process else self._first
            if process > _PROCESS_MAX:
                process = self._first
            if process not in self._keys:
                break
        self._seats.prove(connection)
        self._strangers.go(connection)
        self._last_process = process
        self._keys[process] = (key, connection)
        return process

    def login_wait_ms(self, address: str, user: str) -> int:
        """How long a login has to wait after failed ones."""
        return self._throttle.wait_ms(address, user, self._now_ms())

    def login_failed(self, address: str, user: str) -> None:
        """It slows down the next ones, is counted and logged."""
        self._throttle.failed(address, user, self._now_ms())
        self.counters.logins_failed += 1
        tail = self._lines.tail(address, self._clock.monotonic())
        if tail is not None:
            where = address or "this machine"
            log.warning("a login of %.64r over SQL from %s failed%s", user, where, tail)

    def login_decided(self, address: str, who: Identity, refused: SqlError | None) -> None:
        if self.on_login is not None:
            self.on_login(who, address, refused)

    def login_succeeded(self, address: str, user: str) -> None:
        self._throttle.succeeded(address, user)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1_000)

    def cancel(self, process: int, key: bytes) -> None:
        """Wrong keys get no answer."""
        if self.elsewhere is not None and (process - self._first) % self._step:
            self.elsewhere(process, key)
        else:
            self.cancel_here(process, key)

    def cancel_here(self, process: int, key: bytes) -> None:
        """Of a session of this process."""
        found = self._keys.get(process)
        if found is not None and hmac.compare_digest(found[0], key):
            self.counters.cancels += 1
            found[1].cancel()

    def reserve(self, more: int, who: Who) -> bool:
        if more > 0:
            return self.large.take(who, more)
        self.large.give(who, -more)
        return True

    # -- time

    def watch(self, connection: Connection, ms: int) -> None:
        connection.deadline = self._clock.monotonic() + ms / 1_000
        self._watched.add(connection)
        if self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(_SWEEP_S, self._look)

    def _look(self) -> None:
        self._sweep = None
        now = self._clock.monotonic()
        try:
            for connection in list(self._watched):
                if not connection.deadline:
                    self._watched.discard(connection)
                elif connection.deadline <= now:
                    self._watched.discard(connection)
                    self.counters.expired += 1
                    connection.expired()
        finally:
            if self._watched and self._sweep is None:
                self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._look)
