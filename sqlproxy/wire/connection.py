"""One client's socket: bytes to the conversation and back, back-pressure, deadlines, the end.

    socket ─▶ Decoder ─▶ task (only while there is work) ─▶ Conversation ─▶ out ─▶ one write

Nothing runs for an idle client: no task, no timer; its object, decoder and socket are all it costs.
A batch of messages that comes while no task runs starts one, which works until none is complete.

Bounds. Input: a client whose statement runs is not read beyond SQL_READ_AHEAD_BYTES; messages above
SQL_LARGE_BYTES need room in the server's SQL_INPUT_BYTES_MAX. Output: a statement waits when
SQL_OUTPUT_BYTES are not taken. Time, looked at once a second by the server: login, the rest of a
message that has begun, silence in a transaction (the session's limit), replies that are not read.

The end of a client, whatever it was: what runs is canceled, given SQL_CANCEL_MS_MAX, then the
session is closed, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import ssl
import traceback
from collections.abc import Coroutine
from typing import Final, Protocol, cast

from kv.base.accounts import Account
from kv.base.fair_turns import BYTES_PER_US, FairTurns
from kv.base.limits import (
    SQL_CANCEL_MS_MAX,
    SQL_LARGE_BYTES,
    SQL_LINGER_MS,
    SQL_MESSAGE_MS_MAX,
    SQL_OUTPUT_BYTES,
    SQL_READ_AHEAD_BYTES,
    SQL_STARTUP_MS_MAX,
    STALL_MS_MAX,
)
from kv.base.shared_bytes import Who
from kv.base.tls import certificate_name
from kv.base.tls_stream import TlsStream
from sqlproxy.values import memory
from sqlproxy.values.errors import (
    ADMIN_SHUTDOWN,
    IDLE_IN_TRANSACTION,
    IDLE_SESSION,
    INTERNAL_ERROR,
    QUERY_CANCELED,
    SqlError,
)
from sqlproxy.wire import codec, startup
from sqlproxy.wire.codec import Decoder, Fatal, ProtocolError, Skipped
from sqlproxy.wire.conversation import Conversation, Gone
from sqlproxy.wire.seam import Session

log = logging.getLogger(__name__)


_COME_US: Final = 100  # what a statement of one row costs, about
_WAITS: Final = 1  # in place of the bytes of a cycle: it waits for its turn


class Host(startup.Host, Protocol):
    """What the server gives to its connections."""

    def opened(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None:
        """Its socket is."""
        ...

    def finished(self, connection: Connection) -> None:
        """So is its session."""
        ...

    def watch(self, connection: Connection, ms: int) -> None:
        """`expired` is called if `deadline` is not changed until then."""
        ...

    def register(self, connection: Connection, key: bytes) -> int: ...

    def reserve(self, more: int, who: Who) -> bool:
        """Room for so many bytes of large messages of a tenant; negative: given back."""
        ...

    @property
    def turns(self) -> FairTurns:
        """Between two pieces of a long answer others have theirs."""
        ...


class Connection(asyncio.Protocol):
    __slots__ = (
        "_conversation",
        "_deaf",
        "_decoder",
        "_ending",
        "_flushing",
        "_host",
        "_paused",
        "_reserved",
        "_session",
        "_short",
        "_stalled",
        "_task",
        "_transport",
        "_waiter",
        "_writable",
        "accounts",
        "deadline",
        "end_point",
        "out",
        "process",
    )

    def __init__(self, host: Host) -> None:
        self.out = bytearray()
        self.end_point = b""
        self.process = 0  # what a CancelRequest names it by; 0: not logged in
        self.deadline = 0.0  # of the server's clock; 0 = none
        self.accounts: tuple[Account, ...] = ()  # what it reads and writes counts for them
        self._host = host
        self._transport: asyncio.Transport | None = None
        self._decoder = Decoder()
        self._conversation: Conversation | None = None
        self._session: Session | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None  # the task waits for bytes
        self._writable: asyncio.Future[None] | None = None  # the task waits for the client to read
        self._stalled = False  # the client has not read what was written
        self._paused = False  # the client is not read
        self._deaf = False  # it has had our last words
        self._reserved = 0
        self._flushing = False  # what is in `out` is written as soon as the loop has its turn
        self._short = 0  # bytes of a cycle that is under way without a task
        self._ending: Fatal | None = None

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SQL_OUTPUT_BYTES)
        self._host.opened(self)
        self._host.watch(self, SQL_STARTUP_MS_MAX)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        for account in self.accounts:
            account.bytes += len(data)
        self._decoder.push(data)
        if self._conversation is not None and not self._stalled:
            self.deadline = 0.0
        if self._task is None:
            if not self._short:
                self._come()
            elif self._decoder.buffered > SQL_READ_AHEAD_BYTES:
                self._pause()
        elif self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif self._decoder.buffered > SQL_READ_AHEAD_BYTES:
            self._pause()

    def eof_received(self) -> bool:
        """A client that will send nothing more is gone: nothing it waits for is worth doing."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.deadline = 0.0
        self._host.closed(self)
        self._host.reserve(-self._reserved, self._who)
        self._reserved = 0
        for waiter in (self._waiter, self._writable):
            if waiter is not None and not waiter.done():
                waiter.set_exception(Gone())
        if self._task is None:
            if self._short:
                pass  # its end closes
            elif self._session is not None:
                self._begin(self._close())
            else:
                self._host.finished(self)
            return
        if self._waiter is None and self._session is not None:
            self._session.cancel()
        task = self._task
        loop = asyncio.get_running_loop()
        loop.call_later(SQL_CANCEL_MS_MAX / 1_000, _cancel_if_running, task)

    def pause_writing(self) -> None:
        self._stalled = True
        self._host.watch(self, STALL_MS_MAX)

    def resume_writing(self) -> None:
        self._stalled = False
        self.deadline = 0.0
        if self._conversation is None:
            self._host.watch(self, SQL_STARTUP_MS_MAX)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._session is not None and self._session.channel.notifications:
            self._heard()

    # -- the door of greeting and conversation

    @property
    def address(self) -> str:
        """Of the other end; empty for a Unix socket."""
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    @property
    def loopback(self) -> bool:
        """Whether the other end is on this machine; a Unix socket's is."""
        if not (found := self.address):
            return True
        try:
            address = ipaddress.ip_address(found.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return bool((mapped or address).is_loopback)

    @property
    def encrypted(self) -> bool:
        assert self._transport is not None
        return self._transport.get_extra_info("ssl_object") is not None

    @property
    def certificate(self) -> str:
        return certificate_name(self._transport)

    @property
    def unread(self) -> bool:
        return self._decoder.buffered > 0

    @property
    def stalled(self) -> bool:
        return self._stalled

    @property
    def synced(self) -> bool:
        return self._decoder.ends

    def pull(self) -> tuple[int, bytes | Skipped] | None:
        return self._decoder.pull()

    async def message(self) -> tuple[int, bytes | Skipped]:
        while (message := self._decoder.pull()) is None:
            await self._more()
        return message

    async def startup_packet(self) -> bytes:
        while (packet := self._decoder.pull_startup()) is None:
            await self._more()
        return packet

    def flush(self) -> None:
        if self.out:
            if self._transport is not None:
                self._transport.write(bytes(self.out))
            for account in self.accounts:
                account.bytes += len(self.out)
                account.worked_us += len(self.out) // BYTES_PER_US
            self.out.clear()

    def ready(self) -> None:
        """See `Door`. What is worked on without a wait goes out with it, in one piece."""
        if not self._flushing and self._decoder.buffered:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush_ready)

    def _flush_ready(self) -> None:
        self._flushing = False
        self.flush()

    async def drain(self) -> None:
        if self._transport is None:
            raise Gone
        self.flush()
        if not self._stalled:
            await asyncio.sleep(0)
        else:
            self._writable = asyncio.get_running_loop().create_future()
            try:
                await self._writable
            finally:
                self._writable = None

    async def turn(self) -> None:
        assert self._session is not None
        await self._session.guard(self._between())

    async def _between(self) -> None:
        if len(self.out) > SQL_OUTPUT_BYTES:
            await self.drain()
        await self._host.turns.turn(self.accounts[0])

    async def encrypt(self, context: ssl.SSLContext) -> None:
        """Raises Gone: no handshake, no client."""
        if self._transport is None:
            raise Gone
        below, end = self._transport, TlsStream(self, context, host=None, tells=False)
        below.set_protocol(end)
        self._transport = end
        end.connection_made(below)
        try:
            async with asyncio.timeout(SQL_STARTUP_MS_MAX / 1_000):
                await end.handshake()
        except OSError:
            raise Gone from None

    async def _more(self) -> None:
        """Wait for bytes of the client, which gets first what it is owed."""
        if self._ending is not None:
            raise self._ending
        if self._transport is None:
            raise Gone
        self.flush()
        self._make_room()
        self._resume()
        if self._conversation is not None and self._decoder.partial:
            self._host.watch(self, SQL_MESSAGE_MS_MAX)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # -- work

    @property
    def busy(self) -> bool:
        """A statement runs: there is something to cancel."""
        return self._task is not None and self._waiter is None and self._session is not None

    def _come(self) -> None:
        """There is something to do; now, unless its tenant has used its share."""
        if self.accounts:
            account, turns = self.accounts[0], self._host.turns
            account.worked_us += _COME_US
            if account.worked_us > account.free_us and turns.over(account):
                self._short = _WAITS
                turns.wait(account, self._its_turn)
                return
        self._start()

    def _its_turn(self) -> bool:
        self._short = 0
        if self._transport is None:
            self._begin(self._close())
        elif self._ending is not None:
            self._say_goodbye(self._ending)
        else:
            self._start()
        return False

    def _start(self) -> None:
        """Work on what is here: the commonest needs no task."""
        conversation = self._conversation
        if conversation is not None and not self._stalled:
            cycle = self._decoder.cycle()
            if cycle is not None and conversation.start(cycle):
                self._short = cycle.size
                return
        self._begin(self._work())

    def answered(self, reply: bytes | None) -> None:
        """The end of what `_start` began; None: it goes the usual way, from the beginning."""
        size, self._short = self._short, 0
        if self._transport is None:
            self._begin(self._close())
            return
        if reply is not None:
            more = self._decoder.skip(size)
            if not (more or self.out or self._paused or self._ending is not None):
                self._transport.write(reply)
                for account in self.accounts:
                    account.bytes += len(reply)
                session = self._session
                if session is not None and (patience := session.idle_ms_max):
                    self._host.watch(self, patience)
                if session is not None and session.channel.notifications:
                    self._heard()
                return
            self.out += reply
            self.ready()
        self._begin(self._work())

    def _begin(self, work: Coroutine[object, None, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    async def _work(self) -> None:
        try:
            if self._conversation is not None or await self._greet():
                assert self._conversation is not None
                assert self._session is not None
                memory.enter(self._session.budget)
                await self._conversation.run()
                if self._conversation.ended:
                    self._hang_up()
                else:
                    self._rest()
            else:
                self._hang_up()
        except Gone:
            pass
        except Fatal as error:
            self._say_goodbye(error, linger=error is not self._ending)
        except asyncio.CancelledError:
            self._hang_up()
            await self._close()
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: one client's end is nobody else's
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("internal error of a connection: %s\n%s", type(error).__name__, where)
            self._say_goodbye(Fatal(INTERNAL_ERROR, "internal error"), linger=True)
        if self._transport is None:
            await self._close()
        else:
            self._task = None

    async def _greet(self) -> bool:
        greeted = await startup.greet(self, self._host, self._register)
        if greeted is None:
            return False
        session = self._session = greeted.session
        self._conversation = Conversation(session, self)
        self.accounts = session.use.accounts
        self._conversation.use_zone(greeted.zone)
        channel = session.channel
        channel.wake, channel.process = self._tell, self.process
        channel.cancel, channel.terminate = self.cancel, self._terminated
        channel.heard, channel.end = self._heard, self._ended
        self.deadline = 0.0
        return True

    def _register(self, key: bytes) -> int:
        self.process = self._host.register(self, key)
        return self.process

    def _tell(self) -> None:
        """The session has something to say out of turn."""
        if self._conversation is not None and self._transport is not None:
            self._conversation.tell()
            self.flush()

    def _heard(self) -> None:
        """Other sessions have said something; while something is under way it waits for its end."""
        if self._task is None and not (self._short or self._stalled):
            assert self._conversation is not None
            self._conversation.hear()
            self.flush()

    def _rest(self) -> None:
        """All messages that are complete have been worked on."""
        if self._transport is None:
            raise Gone
        if self._ending is not None:
            raise self._ending
        if self._session is not None and self._session.channel.notifications:
            assert self._conversation is not None
            self._conversation.hear()
        self.flush()
        if self._paused:
            self._resume()
        decoder = self._decoder
        if decoder.need > SQL_LARGE_BYTES or self._reserved:
            self._make_room()
        if self._stalled:
            return
        if decoder.partial:
            self._host.watch(self, SQL_MESSAGE_MS_MAX)
        elif self._session is not None and (patience := self._session.idle_ms_max):
            self._host.watch(self, patience)

    def _make_room(self) -> None:
        """For the large message that is coming in, or no longer. Raises Fatal."""
        need = self._decoder.need if self._decoder.need > SQL_LARGE_BYTES else 0
        if need == self._reserved:
            return
        if not self._host.reserve(need - self._reserved, self._who):
            raise Fatal(
                "53200",
                "out of memory",
                detail=f"No room for a message of {need} bytes beside those of other clients.",
            )
        self._reserved = need

    @property
    def _who(self) -> Who:
        """Whose large messages they are; before it has logged in it sends none."""
        return None if self._session is None else self._session.budget.who

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # -- ends

    def cancel(self) -> None:
        """The client asked for it, over another connection."""
        if self.busy and self._session is not None:
            self._session.cancel()
            return
        waiter = None if self._conversation is None else self._waiter
        if waiter is not None and not waiter.done():
            # a COPY that waits for rows: nothing runs in the session
            waiter.set_exception(
                SqlError(QUERY_CANCELED, "canceling statement due to user request")
            )

    def end(self, error: Fatal) -> None:
        """Tell the client as soon as no statement runs, then hang up."""
        self._ending = error
        if self._deaf:
            self.abort()
        elif self._short:
            pass  # it is said after its answer
        elif self._task is None:
            self._say_goodbye(error)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def _terminated(self) -> None:
        """Another session asked for it."""
        self.end(Fatal(ADMIN_SHUTDOWN, "terminating connection due to administrator command"))

    def _ended(self, error: SqlError) -> None:
        """The session has no use any more."""
        self.end(Fatal(error.sqlstate, error.message, hint=error.hint))

    def expired(self) -> None:
        """The deadline has passed."""
        self.deadline = 0.0
        if self._stalled:
            self.abort()
        elif self._conversation is None:
            self.end(Fatal(QUERY_CANCELED, "canceling authentication due to timeout"))
        elif self._decoder.partial:
            self.end(ProtocolError("the client stopped in the middle of a message"))
        elif self._session is not None and self._session.status == "I":
            self.end(Fatal(IDLE_SESSION, "terminating connection due to idle-session timeout"))
        else:
            self.end(
                Fatal(
                    IDLE_IN_TRANSACTION, "terminating connection due to idle-in-transaction timeout"
                )
            )

    def make_room(self) -> None:
        """See Comer."""
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def kill(self) -> None:
        """No more patience: whatever runs is ended."""
        if self._task is not None:
            self._task.cancel()
        self.abort()

    def _say_goodbye(self, error: Fatal, *, linger: bool = False) -> None:
        self.out += codec.error_response(error)
        self._hang_up(linger=linger)

    def _hang_up(self, *, linger: bool = False) -> None:
        """What was written still goes out, if the client takes it in time. `linger`: the client is
        still sending. To close on that would make the kernel throw our last words away, so it is
        heard out, for SQL_LINGER_MS, and not listened to.
        """
        self.flush()
        transport = self._transport
        if transport is None:
            return
        self._stalled = True
        if linger and transport.can_write_eof():
            self._deaf = True
            self._decoder = Decoder()
            transport.write_eof()
            self._resume()
            self._host.watch(self, SQL_LINGER_MS)
        else:
            transport.close()
            self._host.watch(self, STALL_MS_MAX)

    async def _close(self) -> None:
        session, self._session = self._session, None
        self._conversation = None
        if session is not None:
            session.channel.wake = session.channel.heard = session.channel.end = None
            with contextlib.suppress(Exception):
                await session.close()
        self._task = None
        if self._transport is None:
            self._host.finished(self)


def _cancel_if_running(task: asyncio.Task[None]) -> None:
    if not task.done():
        task.cancel()
