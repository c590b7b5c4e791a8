"""The native port: one protocol object per connection, no task, one write per drain.

    socket ──▶ decoder ──▶ window ──▶ Dispatcher.submit
    socket ◀── one frame per flush ◀── reply, reply, reply

Backpressure: a connection is not read, and frames that already came wait in its decoder, while
  * the peer does not read its replies (the socket's write buffer is above its high-water mark), or
  * its window is used up: IN_FLIGHT_PER_CONNECTION_MAX requests, or so many that their replies
    would come to REPLY_WINDOW_BYTES if they are as large as its last ones. It starts small, because
    the first replies are not known.
Reads that were delivered before their replies turned out large wait in their partitions (`ready`).
So what one connection makes the node hold is bounded whatever it asks for, and nobody gets BUSY
for being fast; what all of them make it hold is kv/base/held_bytes.py. A peer that reads nothing
for STALL_MS_MAX is dropped, and one that stops in the middle of a frame.

Connections take turns (kv/base/fair_turns.py): one that has sent more than TURN_MS of work, or
whose tenant has used its share while others have work, is not read while it waits for the next
turn, and one turn is given in each pass of the loop. Whoever sends little does not wait.
docs/decisions/1320.

An idle connection costs its object and its socket: no timer, no buffer. One timer of the server
looks after those that owe something: a hello, the rest of a frame, a look at their replies; and
only while there are any.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Protocol, cast

from kv.base.accounts import USER, Account
from kv.base.config_values import is_loopback
from kv.base.connection_slots import Seats, Strangers
from kv.base.credentials import Credential
from kv.base.errors import (
    Busy,
    Forbidden,
    InvalidArgument,
    KvorumError,
    Unauthenticated,
    Unavailable,
)
from kv.base.fair_turns import BYTES_PER_US, REQUEST_US, FairTurns
from kv.base.intents import NOBODY, Author
from kv.base.internal_errors import Faults
from kv.base.limits import (
    CLIENT_SMALL_BYTES,
    CONNECTIONS_MAX,
    FRAME_BYTES_MAX,
    HANDLERS_MAX,
    HELLO_BYTES_MAX,
    HELLO_MS_MAX,
    IN_FLIGHT_PER_CONNECTION_MAX,
    REPLY_WINDOW_BYTES,
    STALL_MS_MAX,
    TURN_MS,
    TURN_REQUESTS_MAX,
    KiB,
)
from kv.base.methods import PING, PROVE, TSO
from kv.base.ports import Handle, Rng, Timers
from kv.base.rights import LOOPBACK, Book, Identity
from kv.base.rpc import (
    CONNECTION_RID,
    OK,
    FrameDecoder,
    FrameEncoder,
    Hello,
    error_row,
    node_proof,
    read_hello,
    requests_of,
)
from kv.base.shared_bytes import Who
from kv.base.spoken_time import ServersTime
from kv.base.tenants import Tenants
from kv.base.tls import NODE_NAME, TLS_REQUIRED, Tls, certificate_name
from kv.base.verbs import NODE_ARGS_AT, NODE_METHODS, VERBS
from kv.base.wire_row import WireRow
from kv.server.connection_rights import (
    Deputy,
    Gate,
    Metering,
    Named,
    NotBelieved,
    Rights,
    table_of,
)
from kv.server.counters import Counters
from kv.server.timestamp_connections import Express
from raft.listener import Listening, listen, stop_listening
from raft.log_bound import LogBound

log = logging.getLogger(__name__)

_FIRST_REPLY_BYTES: Final = 256 * KiB  # assumed of a new connection: 256 requests at first
_SWEEP_S: Final = 1.0
_CHALLENGE_BYTES: Final = 16
_KEEPALIVE_IDLE_S: Final = 60
_BACKLOG: Final = 1024
_LINGER_S: Final = 1.0  # who is refused while it sends may read the reason for so long
_IDENTIFY_S: Final = 1.0  # a client that waits longer asks another node
_GOODBYE_S: Final = 1.0  # what a closing server gives its clients to take their last replies
_LOOK_S: Final = 0.01
_PLAIN: Final = InvalidArgument(
    "this port speaks TLS only: connect with kvorums://HOST:BASE, and --tls-dir or tls_dir=",
    code=TLS_REQUIRED,
)
STRANGE_REQUESTS_MAX: Final = 16  # of who proves nothing: nobody's turns or limits are theirs
_LITTLE_BYTES: Final = 4 * KiB  # that are worked on at once, whoever else waits for a turn
_FEW_REQUESTS: Final = 4  # of what a node's own verbs do: each may take half a millisecond
_TURN_S: Final = TURN_MS / 1_000


class Submitter(Protocol):
    """What a server needs of kv.server.dispatcher.Dispatcher."""

    @property
    def counters(self) -> Counters: ...

    @property
    def express(self) -> Express: ...

    @property
    def faults(self) -> Faults: ...

    def submit(self, conn: ServerConnection, requests: list[list[object]]) -> None: ...

    def refuse(self, conn: ServerConnection, row: list[object], error: KvorumError) -> None: ...


class Answered(Protocol):
    """Where the reply to a request goes."""

    def reply(self, row: list[object]) -> None: ...

    def flush(self) -> None: ...


class ServerConnection(asyncio.Protocol):
    """One client: what it asks goes to the dispatcher, what it is answered leaves in one write per
    flush.
    """

    __slots__ = (
        "_asking",
        "_decoder",
        "_delivering",
        "_fd",
        "_held",
        "_in_flight",
        "_open",
        "_out",
        "_owed",
        "_paused",
        "_reply_bytes",
        "_rest",
        "_server",
        "_transport",
        "_turn_ends",
        "_wakes",
        "_window",
        "account",
        "asked",
        "author",
        "book",
        "certificate",
        "challenge",
        "greeted",
        "identity",
        "metering",
        "node",
        "partial_since",
        "proved",
        "rights",
        "strange",
        "tap",
        "unread",
        "waiting_since",
        "writable",
    )

    def __init__(self, server: SocketServer) -> None:
        self.greeted = False
        self.node = 0  # whose connection it says that it is; 0 = a client's
        self.proved = False  # it is a node's, or a proxy's; see kv.base.rpc.node_proof
        self.identity: Identity | None = None  # None: it has yet to prove that it is a node's
        self.book: Book | None = None  # that its rights are read from
        self.rights: Rights | None = None  # None: everything that is no order
        self.author = NOBODY  # whose commands it sends
        self.account = server.nobody  # whom it counts for …
        self.asked = False  # … and whether limits count
        self.metering: Metering | None = None  # since somebody has limits
        self.strange = 0  # requests of who has yet to prove that, which were refused
        self.challenge = b""
        self.certificate = ""  # the common name that TLS has verified; empty: none was shown
        self.tap: object = None  # kv.server.tap's
        self.writable = True
        self.waiting_since = 0.0  # for its hello, or for the peer to read anything
        self.unread = 0  # bytes that the peer had left unread then
        self.partial_since = 0.0  # when the frame began that is not complete; 0 = there is none
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._open = False  # requests are taken and replies sent
        self._decoder = FrameDecoder(HELLO_BYTES_MAX, weighed=True)
        self._held = 0  # bytes of that frame which the node has counted
        self._out: list[WireRow] = []
        self._rest: list[WireRow] = []  # of a frame that the window cut
        self._owed = 0  # a time that this node's clock could not take
        self._asking: asyncio.Task[None] | None = None  # who it is
        self._in_flight = 0
        self._reply_bytes = _FIRST_REPLY_BYTES
        self._window = REPLY_WINDOW_BYTES // _FIRST_REPLY_BYTES
        self._paused = False
        self._delivering = False  # soon: it waits for the loop, or for a turn
        self._turn_ends = 0.0
        self._fd = -1  # of the socket, while it is heard between slices (timestamp_connections.py)
        self._wakes: dict[Callable[[], None], None] = {}  # of reads that wait until it is writable

    @property
    def waits(self) -> bool:
        """For the answer to a request."""
        return self._in_flight > 0

    @property
    def peer(self) -> str:
        """HOST:PORT of the other end, empty when it is gone."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else ""

    @property
    def user(self) -> str:
        """See kv.server.dispatcher.Connection."""
        identity = self.identity
        return "" if identity is None or identity == LOOPBACK else identity.name

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open = True
        self.certificate = certificate_name(transport)
        _keep_alive(self._transport)
        self._server.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave_express()
        self._transport = None
        self._open = False
        self.account.sent -= self._in_flight + len(self._out)
        self._out = []
        self._rest = []
        self._hold(0)
        self._server.held.flows(self)
        if self.metering is not None:
            self.metering.close()
        if self.account is not self._server.nobody:
            self.account.disconnect()
            self.account = self._server.nobody
        if self._asking is not None:
            self._asking.cancel()
        self._server.closed(self)
        self._wake()

    def data_received(self, data: bytes) -> None:
        server, size = self._server, len(data)
        server.counters.bytes_in += size
        account = self.account
        account.bytes += size
        self._decoder.push(data)
        if self._delivering:
            return  # it waits for its turn
        if (account.worked_us > account.free_us and server.turns.over(account)) or (
            size > _LITTLE_BYTES and self._decoder.complete and not server.turns.claim()
        ):
            self._wait_for_turn()
        else:
            self._deliver()
        server.between()

    def pause_writing(self) -> None:
        self.writable = False
        self._server.watch(self)
        self.tell_unread()

    def resume_writing(self) -> None:
        self.writable = True
        self._server.held.flows(self)
        self._reopen()
        self._wake()

    # -- in

    def _deliver(self) -> None:
        """Hand over what the window and a turn allow; stop reading when they allow no more."""
        self._delivering = False
        self._turn_ends = 0.0
        began = False
        try:
            while self._open:
                more = self._rest or self._decoder.data
                if began and more and self._turn_is_over():
                    return
                room = self._window - self._in_flight
                if room <= 0 or not self.writable or self._asking is not None:
                    self._pause()
                    return
                if began and not (more or self._held):
                    break  # mostly it is one frame
                rows = self._rest or self._pull()
                if rows is None:
                    break
                if rows and (rows[0][1] == TSO) != (self._fd >= 0):
                    self._asks_for_timestamps(only=rows[0][1] == TSO)
                count = len(rows)
                if count > _FEW_REQUESTS:
                    room = min(room, _at_once(rows[0][1]), self._server.turns.at_once)
                if count > room:
                    self._rest, rows, count = rows[room:], rows[:room], room
                else:
                    self._rest = []
                self._in_flight += count
                self.account.sent += count
                began = True
                self.account.worked_us += count * REQUEST_US
                if self.proved:
                    self._server.submit(self, rows)
                else:
                    self._server.submit_of_client(self, rows)
        except Exception as error:  # noqa: BLE001 - the boundary: it ends this connection alone
            self._broke(error)
            return
        if self._paused and self._open and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _pull(self) -> list[WireRow] | None:
        """The requests of the next frame; None: it is not all here."""
        while (message := self._decoder.pull()) is not None:
            self.partial_since = 0.0
            self._server.counters.frames_in += 1
            if self.greeted:
                if self._server.time is not None:
                    return self._timed(message)
                return requests_of(message)
            self._greet(message)
            if not self._open or self._asking is not None:
                return None
        if self._held or self._decoder.data:
            self._keep_partial()
        return None

    def _timed(self, message: WireRow) -> list[list[object]]:
        """The requests of a frame that may begin with a time. One that this node's clock cannot
        take is the answer to all of them but nodes' orders to each other, which claim nothing; and
        to those of later frames: a burst of many has it in its first one alone.
        """
        server = self._server
        ts = message.pop(0) if message and type(message[0]) is int else 0
        rows = requests_of(message)
        if not (ts or self._owed) or server.time is None:
            return rows
        if server.gate is not None and self.identity is None:
            return rows  # of nobody no time is heard
        ts = max(ts, self._owed)
        error = server.time.hear(ts)
        self._owed = ts if isinstance(error, Unavailable) else 0
        if error is None:
            return rows
        for row in rows:
            if row[1] not in server.orders:
                self._in_flight += 1
                self.account.sent += 1
                server.refuse(self, row, error)
        self.flush()
        return [row for row in rows if row[1] in server.orders]

    def _broke(self, error: Exception) -> None:
        """The connection ends: what its client sent is wrong, or we are."""
        if isinstance(error, KvorumError):
            self._server.counters.protocol_errors += 1
            self.end(error)
        else:
            self.end(self._server.faults.answer(error, "a native connection", unknown=True))

    def _turn_is_over(self) -> bool:
        """It has more to do. What it did first is not measured: mostly that is all."""
        account, turns = self.account, self._server.turns
        if account.worked_us > account.free_us and turns.over(account):
            self._wait_for_turn()
            return True
        now = self._server.timers.monotonic()
        if not self._turn_ends:
            self._turn_ends = now + _TURN_S
        elif now >= self._turn_ends:
            self._wait_for_turn()
            return True
        return False

    def _wait_for_turn(self) -> None:
        """What came is delivered when others had theirs; nothing more is read until then."""
        self._pause()
        self._delivering = True
        self._server.turns.wait(self.account, self._take_turn)

    def _take_turn(self) -> bool:
        """It is this connection's; whether it has used all of it."""
        self._deliver()
        return self._delivering

    def _keep_partial(self) -> None:
        """A frame that is not complete counts from here on. Raises Busy."""
        size = self._decoder.buffered
        self._hold(size if size > CLIENT_SMALL_BYTES else 0)
        if size and not self.partial_since:
            self.partial_since = self._server.timers.monotonic()
            self._server.look_after(self)

    def _hold(self, size: int) -> None:
        if size != self._held:
            self._server.held.change(self._held, size, self._who)
            self._held = size

    @property
    def _who(self) -> Who:
        """Whose bytes these are; None: a node's, or of whoever is nobody's."""
        return None if self.account is self._server.nobody else self.account

    def is_late(self, now: float) -> bool:
        """Whether the frame that has begun does not come on. While nothing is read it cannot."""
        if self._paused:
            self.partial_since = now
        patience_s = self._server.held.patience_s(self._decoder.buffered)
        return now - self.partial_since > patience_s

    def tell_unread(self) -> None:
        """The node counts what this peer does not read."""
        unread = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if unread > CLIENT_SMALL_BYTES and self._open:
            self._server.held.stalled(self, unread, self._who)

    # -- timestamps, between slices of other work (timestamp_connections.py)

    def _asks_for_timestamps(self, *, only: bool) -> None:
        """Whether it does nothing else now."""
        if not only:
            self._leave_express()
            return
        transport = self._transport
        plain = transport is not None and transport.get_extra_info("sslcontext") is None
        sock = transport.get_extra_info("socket") if transport is not None and plain else None
        if sock is not None and self._server.express.add(sock.fileno(), self):
            self._fd = sock.fileno()

    def _leave_express(self) -> None:
        if self._fd >= 0:
            self._server.express.remove(self._fd, self)
            self._fd = -1

    def heard_between(self, data: bytes) -> None:
        """The next bytes, in the middle of other work: requests for timestamps are answered; what
        else it is waits for the loop.
        """
        self._server.counters.bytes_in += len(data)
        self._decoder.push(data)
        try:
            while self._open and self.writable and not self._rest:
                message = self._decoder.pull()
                if message is None:
                    return
                self._server.counters.frames_in += 1
                timed = self._server.time is not None
                rows = self._timed(message) if timed else requests_of(message)
                if (
                    self._in_flight
                    or self._server.stale(self)
                    or any(row[1] != TSO for row in rows)
                ):
                    self._rest = rows
                    self._leave_express()
                    break
                self._in_flight += len(rows)
                self.account.sent += len(rows)
                self._server.submit(self, rows)
        except Exception as error:  # noqa: BLE001 - the boundary: the work that it was heard in goes on
            self._broke(error)
            return
        self._server.timers.call_soon(self._deliver)

    def _greet(self, message: list[object]) -> None:
        server = self._server
        said = read_hello(message, server.hello.cluster)
        self.node = said.node
        self.greeted = True
        if self.node in server.unheard:
            self.drop()
            return
        if not server.admitted(self):
            return
        assert self._transport is not None
        name = self.certificate
        if self.node or name == NODE_NAME or (said.proves and server.proof_key(self.node)):
            if name == NODE_NAME:
                self.proved = True
            elif server.proof_key(self.node):
                self.challenge = server.challenge()
            else:  # without a secret: whoever is on this machine may be one
                self.proved = self.believed()
            if self.proved:
                self.identity = Identity("", "node", node=self.node)
            self._welcome()
        elif server.gate is None:
            self._welcome()
        else:
            self._asking = asyncio.get_running_loop().create_task(
                self._identify(server.gate, said.credential, name)
            )

    def _welcome(self) -> None:
        self._decoder.limit = FRAME_BYTES_MAX
        if not self.challenge and (self.identity is not None or self._server.gate is None):
            self._server.prove(self)
        if self._transport is not None:
            hello = replace(self._server.hello, challenge=self.challenge)
            self._transport.write(self._server.encoder.message(hello.to_wire()))

    async def _identify(self, gate: Gate, credential: Credential, certificate: str) -> None:
        """Nothing of it is heard until it is known who it is."""
        peer = self.peer
        try:
            async with asyncio.timeout(_IDENTIFY_S):
                self.identity = await gate.identify(
                    credential, certificate, peer.rpartition(":")[0]
                )
            self._counts_for(gate)
            if self.identity != LOOPBACK:  # else nobody has to log in
                self._server.on_login(peer, self.identity, None)
        except (Unavailable, TimeoutError):
            if self.believed():
                self.identity = LOOPBACK  # until the first book says otherwise
                self._welcome()
            else:
                self.end(Unavailable("users and rights cannot be read now: ask again in a moment"))
        except KvorumError as error:
            if isinstance(error, Unauthenticated | Busy):
                self._server.counters.logins_refused += 1
                self._server.warn(peer, f"a login from {peer} was refused: {error.code}")
                claimed = Identity(credential.user or certificate, "none")
                self._server.on_login(peer, claimed, error)
            self.end(error)
        except Exception as error:  # noqa: BLE001 - the boundary: it ends this connection alone
            self.end(self._server.faults.answer(error, "a login", unknown=False))
        else:
            self._welcome()
        finally:
            self._asking = None
        self._server.timers.call_soon(self._deliver)

    def _counts_for(self, gate: Gate) -> None:
        """Whom what it does counts for. Raises Busy: it has too many connections."""
        assert self.identity is not None
        use = gate.use(self.identity)
        self.asked = use.asked
        (account,) = use.accounts
        if self._open:
            account.connect(asked=use.asked)
            self.account = account

    def meter(self, tenants: Tenants) -> Metering:
        """From now on what it asks counts."""
        if self.metering is None:
            self.metering = Metering(tenants)
        return self.metering

    def believed(self) -> bool:
        """Whether what it says of itself needs no proof: nobody has a secret, and it is on this
        machine. So whoever repairs nodes that cannot reach the others gets in.
        """
        server = self._server
        if server.secret or server.tls is not None:
            return False
        return self._on_this_machine() and server.believes()

    def _on_this_machine(self) -> bool:
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return name is not None and is_loopback(name[0])

    def _pause(self) -> None:
        self._leave_express()  # nobody reads it now; its next request takes it back
        if not self._paused and self._open and self._transport is not None:
            self._paused = True
            self._server.counters.pauses += 1
            self._transport.pause_reading()

    def _reopen(self) -> None:
        """Deliver what waited, from the loop: a flush must not run into the machine that called
        it.
        """
        if self._paused and not self._delivering and self._open:
            self._delivering = True
            self._server.timers.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Of all that may go on in one pass, who has much to do waits for others that have."""
        whole = self._decoder.complete and self._decoder.buffered > _LITTLE_BYTES
        much = whole or len(self._rest) > TURN_REQUESTS_MAX
        if self._open and much and not self._server.turns.claim():
            self._wait_for_turn()
        else:
            self._deliver()

    # -- out: kv.server.dispatcher.Connection

    def stand_in(self, row: list[object], to: Answered | None = None) -> None:
        """`to`: who is answered instead of this."""
        self._server.stand_in(to or self, row)

    def reply(self, row: list[object]) -> None:
        self._in_flight -= 1
        if self.metering is not None:
            self.metering.ended(row)
        if self._open:
            self._out.append(row)
        else:
            self.account.sent -= 1

    def flush(self) -> None:
        out = self._out
        transport = self._transport
        if not out or transport is None:
            return
        self._out = []
        server = self._server
        self.account.sent -= len(out)
        if server.turns.stands:
            server.turns.go_on()
        try:
            rows = out if server.time is None else [server.time.at, *out]
            frames = server.encoder.rows(rows, _instead)
        except Exception as error:  # noqa: BLE001 - the boundary: it ends this connection alone
            self.end(server.faults.answer(error, "a native connection", unknown=True))
            return
        counters = server.counters
        counters.writes += 1
        written = len(frames)
        counters.bytes_out += written
        account = self.account
        account.bytes += written
        account.worked_us += written // BYTES_PER_US
        if self.metering is None:  # else they were counted when they came
            account.requests += len(out)
        if self._fd >= 0 and not transport.get_write_buffer_size():
            frames = self._write_now(frames)
        if frames:
            transport.write(frames)
        self._reply_bytes = size = (3 * self._reply_bytes + written // len(out)) // 4 + 1
        window = REPLY_WINDOW_BYTES // size
        self._window = (
            window if window < IN_FLIGHT_PER_CONNECTION_MAX else IN_FLIGHT_PER_CONNECTION_MAX
        ) or 1
        if self._paused and self.writable and self._in_flight < self._window:
            self._reopen()

    def _write_now(self, frames: bytes) -> bytes:
        """A loop writes at the end of its pass; this now. What the socket does not take."""
        try:
            return frames[os.write(self._fd, frames) :]
        except OSError:
            return frames  # the loop will see why

    def ready(self, wake: Callable[[], None]) -> bool:
        if self.writable or not self._open:
            return True
        self._wakes[wake] = None
        return False

    def _wake(self) -> None:
        wakes, self._wakes = self._wakes, {}
        for wake in wakes:
            wake()

    # -- the end

    def end(self, error: KvorumError) -> None:
        """Say why, and close: what is owed is sent first. Errors of a row name it, too."""
        transport = self._transport
        if transport is None or not self._open:
            return
        self.flush()
        rid = error.details.get("rid", CONNECTION_RID)
        rows = [] if rid == CONNECTION_RID else [error_row(rid, error)]
        rows.append(error_row(CONNECTION_RID, error))
        transport.write(self._server.encoder.message(rows))
        self._open = False
        self._rest = []
        sends = bool(self._decoder.data)
        self._decoder = FrameDecoder(0)
        self._hold(0)
        if sends and transport.can_write_eof():
            transport.write_eof()
            transport.set_protocol(_Deaf(self))
            transport.resume_reading()
            self._server.timers.call_later(_LINGER_S, transport.close)
        else:
            transport.close()  # when the rest is written; connection_lost follows

    def stalled_s(self, now: float) -> float:
        """How long the peer has read nothing of what waits for it."""
        unread = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if unread < self.unread:
            self.waiting_since = now
        self.unread = unread
        return now - self.waiting_since

    def make_room(self) -> None:
        """See Comer."""
        self.drop()

    def drop(self) -> None:
        """Close at once, whatever is owed."""
        if self._transport is not None:
            self._transport.abort()


def _at_once(method: int) -> int:
    """Of how many requests of a kind the time is not looked at."""
    brief = method < NODE_METHODS or method in (PING, TSO)
    return TURN_REQUESTS_MAX if brief else _FEW_REQUESTS


class _Deaf(asyncio.Protocol):
    """Of a connection that ends while its peer sends. To close on that would make the kernel throw
    our last words away, so the peer is heard out for a while, and not listened to.
    """

    def __init__(self, ended: ServerConnection) -> None:
        self._ended = ended

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.connection_lost(error)

    def pause_writing(self) -> None:
        self._ended.pause_writing()

    def resume_writing(self) -> None:
        self._ended.resume_writing()


def _instead(row: WireRow, error: KvorumError) -> list[object]:
    """A reply that cannot be sent: its caller gets an error."""
    return error_row(row[0], error)


def _keep_alive(transport: asyncio.Transport) -> None:
    """Let TCP find peers that vanished while nothing was said."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)


class SocketServer:
    """The connections of one listening port. `start`, then `close`; both once."""

    def __init__(
        self,
        dispatcher: Submitter,
        timers: Timers,
        *,
        cluster: str,
        node: int,
        incarnation: bytes = b"",
        connections_max: int = CONNECTIONS_MAX,
        seats: Seats | None = None,
        secret: bytes = b"",
        rng: Rng | None = None,
        tls: Tls | None = None,
        gate: Gate | None = None,
        starts_at: Callable[[int], bytes | None] = lambda _partition: None,
        named: Named = lambda _verb, _row, _user: None,
        deputy: Deputy | None = None,
        time: ServersTime | None = None,
    ) -> None:
        """`secret`: what the nodes of the cluster prove to each other, with challenges of `rng`;
        empty: they are all on this machine, or prove it by their certificates in `tls`. `gate`: who
        clients are, and the book of rights; without one everybody may everything but give orders.
        See kv.server.connection_rights for the others; `time`: of a node with a hybrid clock.
        """
        assert rng is not None or not secret
        self.hello = Hello(cluster=cluster, node=node, incarnation=incarnation)
        self.time = time
        self.secret, self._rng, self.tls = secret, rng, tls
        self.gate, self._starts_at, self._named, self._deputy = gate, starts_at, named, deputy
        self.own_secret = b""  # of processes that this node has started; the node sets it
        self.believes: Callable[[], bool] = lambda: True
        """Whether somebody on this machine may be a node without a proof; the node sets it."""
        self.on_login: Callable[[str, Identity, KvorumError | None], object] = lambda *_: None
        """Told from where, as whom (no name: by a token) and why not; the node sets it, too."""
        self._lines = LogBound()
        self._deputies: set[asyncio.Task[None]] = set()
        self.orders = frozenset(verb.number for verb in VERBS if verb.order) | {PROVE}
        self.counters = dispatcher.counters
        self.encoder = FrameEncoder()
        self.faults = dispatcher.faults
        self.timers = timers
        self.submit, self.refuse = dispatcher.submit, dispatcher.refuse
        self.express = dispatcher.express
        self.between = self.express.look
        self.unheard: frozenset[int] = frozenset()
        # In the order of their coming, as everything that is sent to all of them: a seed repeats.
        self._connections: dict[ServerConnection, None] = {}
        self._doubted: frozenset[ServerConnection] = frozenset()  # by the last review
        self._connections_max = connections_max
        self._seats = seats or Seats()
        self._strangers = Strangers()
        self.held = self._seats.held
        self.turns = (
            FairTurns(timers.monotonic, timers.call_soon) if gate is None else gate.tenants.turns
        )
        self.nobody = Account(USER, "", lambda: 0, shown=False)
        """Nodes, and who has no name: no limits, and turns only for who sends much at once."""
        self.nobody.free_us = math.inf
        self._watched: dict[ServerConnection, None] = {}  # not greeted yet, or stalled
        self._sweeper: Handle | None = None
        self._server: Listening | None = None
        self._closing = False

    async def start(self, host: str, port: int) -> int:
        """Listen; the port (of `port` 0: the one that was given).

        Raises InvalidArgument (CANNOT_LISTEN).
        """
        tls = self.tls
        try:
            self._server = await listen(
                lambda: ServerConnection(self),
                *(host, port),
                backlog=_BACKLOG,
                secured=None if tls is None else tls.accepted,
                handshake_s=HELLO_MS_MAX / 1_000,
                plain=self.encoder.message([error_row(CONNECTION_RID, _PLAIN)]),
            )
        except OSError as error:
            # asyncio's text repeats the address; numbers below 0 are getaddrinfo's.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or error
            raise InvalidArgument(
                f"cannot listen on {host}:{port}: {why};"
                " stop who uses it or choose another address with --listen and --port",
                code="CANNOT_LISTEN",
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def cut(self, nodes: Iterable[int]) -> None:
        """Fault injection: from now on do not hear these nodes, but all others."""
        self.unheard = frozenset(nodes)
        for conn in list(self._connections):
            if conn.node in self.unheard:
                conn.drop()

    async def close(self) -> None:
        """Stop listening and end every connection; replies that were flushed before are sent."""
        self._closing = True
        if self._server is not None:
            await stop_listening(self._server)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        stopping = Unavailable(
            f"node {self.hello.node} is stopping: ask again in a moment", code="STOPPING"
        )
        for conn in list(self._connections):
            conn.end(stopping)
        patience = round(_GOODBYE_S / _LOOK_S)
        while self._connections and patience:
            patience -= 1
            await asyncio.sleep(_LOOK_S)
        for conn in list(self._connections):
            conn.drop()
        if self._server is not None:
            await self._server.wait_closed()

    # -- called by the connections

    def submit_of_client(self, conn: ServerConnection, rows: list[list[object]]) -> None:
        """Requests of a connection that has not proved to be a node's: orders are refused, and what
        it may not do.
        """
        gate = self.gate
        if gate is not None:
            if conn.book is not gate.book or gate.book is None:
                self._review(conn, gate)
            if conn.rights is not None:
                rows = self._allowed(conn, conn.rights, rows)
            if gate.tenants.limited or conn.metering is not None:
                rows = self._within(conn, gate, rows)
        orders = self.orders
        stranger = gate is not None and conn.identity is None
        for row in rows:
            if stranger or row[1] in orders:
                break
        else:
            self.submit(conn, rows)
            return
        rest = self._refuse_orders(conn, rows, stranger=stranger)
        if rest:
            self.submit(conn, rest)

    def _refuse_orders(
        self, conn: ServerConnection, rows: list[list[object]], *, stranger: bool
    ) -> list[list[object]]:
        """The others of them; of a `stranger`, none before its proof."""
        orders = self.orders
        rest: list[list[object]] = []
        for row in rows:
            if conn.proved or not (stranger or row[1] in orders):
                rest.append(row)
                continue
            try:
                if row[1] not in orders:
                    raise Unauthenticated("this connection has not proved to be a node's")
                conn.reply([row[0], OK, self._proved(conn, row)])
            except KvorumError as error:
                self.refuse(conn, row, error)
        conn.flush()
        if stranger and not conn.proved:
            conn.strange += len(rows)
            if conn.strange > STRANGE_REQUESTS_MAX:
                conn.end(Unauthenticated("this connection does not prove to be a node's"))
        return rest

    def stale(self, conn: ServerConnection) -> bool:
        """Whether its rights must be looked at again."""
        return not conn.proved and self.gate is not None and conn.book is not self.gate.book

    def review(self) -> None:
        """Who waits for something asks no more: he is told so, too, that he may not go on. What was
        just sent has the time between two looks for its answer: it may have brought that about.
        """
        gate = self.gate
        if gate is None or gate.book is None:
            return
        waiting = [one for one in self._connections if one.waits and self.stale(one)]
        before, self._doubted = self._doubted, frozenset(waiting)
        for conn in waiting:
            if conn not in before:
                continue
            try:
                self._review(conn, gate)
            except KvorumError as error:
                conn.end(error)
            except Exception as error:  # noqa: BLE001 - the boundary: it ends this one alone
                conn.end(self.faults.answer(error, "a native connection", unknown=True))

    def _review(self, conn: ServerConnection, gate: Gate) -> None:
        """What it may from now on, as the book is another one. Raises Unauthenticated, Unavailable:
        it may not go on.
        """
        identity, conn.book, conn.rights = conn.identity, gate.book, None
        if identity is None:
            return  # it is to prove that it is a node's
        if identity != LOOPBACK:  # for good: what waits may be evaluated when it may not go on
            conn.author = Author(identity.name, others=False)
        if conn.book is None:
            if identity == LOOPBACK and conn.believed():
                return
            raise Unavailable("users and rights cannot be read now: ask again in a moment")
        conn.asked = gate.use(identity).asked
        if not gate.stands(identity):
            raise Unauthenticated(
                "what you logged in with does not count any more: it was revoked or has expired, "
                "or this cluster has users by now. Log in again"
            )
        if identity != LOOPBACK:
            conn.rights = Rights(identity, conn.book, self._starts_at, self._named)
            conn.author = conn.author._replace(others=conn.rights.admin)

    def _allowed(
        self, conn: ServerConnection, rights: Rights, rows: list[list[object]]
    ) -> list[list[object]]:
        """Those that it may send; the others are answered."""
        allowed = []
        for row in rows:
            try:
                rights.check(row)
                allowed.append(row)
            except NotBelieved:
                self.stand_in(conn, row)
            except KvorumError as error:
                self.counters.requests_refused += 1
                self.refuse(conn, row, error)
        if len(allowed) < len(rows):
            conn.flush()
        return allowed

    def _within(
        self, conn: ServerConnection, gate: Gate, rows: list[list[object]]
    ) -> list[list[object]]:
        """Those that its user, and their namespaces, may ask for now; the others are answered."""
        account = conn.account
        if account is self.nobody:
            return rows
        metering, within = conn.meter(gate.tenants), []
        for row in rows:
            try:
                metering.begin(row, account, self._namespace(gate, row), asked=conn.asked)
                within.append(row)
            except Busy as error:
                self.refuse(conn, row, error)
        if len(within) < len(rows):
            conn.flush()
        return within

    def _namespace(self, gate: Gate, row: WireRow) -> str:
        """Whose rows a request is about; empty: it is about none, or of none that is known."""
        partition = row[3] if len(row) > 3 and row[1] < NODE_METHODS else None
        start = self._starts_at(partition) if type(partition) is int else None
        if start is None or gate.book is None:
            return ""
        found = gate.book.tables.get(table_of(start))
        return "" if found is None else found.namespace

    def stand_in(self, conn: Answered, row: WireRow) -> None:
        """Have the node find out by itself what became of a transaction."""
        deputy = self._deputy
        assert deputy is not None, "whoever has rights has a node"
        if len(self._deputies) >= HANDLERS_MAX:
            busy = Busy("too many transactions are being looked at: ask again in a moment")
            conn.reply(error_row(row[0], busy))
            conn.flush()
            return

        async def answer() -> None:
            try:
                conn.reply([row[0], OK, *await deputy(row)])
            except KvorumError as error:
                conn.reply(error_row(row[0], error))
            except Exception as error:  # noqa: BLE001 - the boundary: one request's
                conn.reply(error_row(row[0], self.faults.answer(error, "RESOLVE", unknown=False)))
            conn.flush()

        task = asyncio.get_running_loop().create_task(answer())
        self._deputies.add(task)
        task.add_done_callback(self._deputies.discard)

    def proof_key(self, node: int) -> bytes:
        """By what a node, or (0) a proxy or a process of this node proves itself."""
        return self.secret or (b"" if node else self.own_secret)

    def challenge(self) -> bytes:
        """For one connection."""
        assert self._rng is not None, "there is a secret"
        return self._rng.token(_CHALLENGE_BYTES)

    def _proved(self, conn: ServerConnection, row: WireRow) -> bool:
        """Of PROVE; every other order is refused. Raises Forbidden, InvalidArgument."""
        verb = VERBS[row[1]]
        if verb.number == PROVE:
            verb.check(row)
            said = replace(self.hello, challenge=conn.challenge)
            right = node_proof(self.proof_key(conn.node), said, conn.node)
            if conn.challenge and hmac.compare_digest(row[NODE_ARGS_AT], right):
                conn.proved = True
                conn.identity = Identity("", "node", node=conn.node)
                self.prove(conn)
                return True
        told = f"{verb.name} was refused to {conn.peer}: it has not proved to be a node"
        self.warn(conn.peer, told)
        self.counters.orders_refused += 1
        raise Forbidden(
            f"{verb.name} is what one node orders another; this connection has not proved to be a "
            "node of this cluster (KVORUM_CLUSTER_SECRET, the same at every node)"
        )

    def warn(self, peer: str, told: str) -> None:
        """Of what anybody can make happen, as often as he likes."""
        tail = self._lines.tail(peer.rpartition(":")[0], self.timers.monotonic())
        if tail is not None:
            log.warning("%s%s", told, tail)

    def opened(self, conn: ServerConnection) -> None:
        self._connections[conn] = None
        self.counters.connections += 1
        self.counters.connections_total += 1
        seated = self._seats.take(conn)
        self._strangers.come(conn)
        if self._closing:
            conn.drop()  # it was taken before the listener closed, and reported to us after it
            return
        if not seated:
            self._refuse(conn, self._seats.limit, self._seats.taken)
            return
        if len(self._connections) > self._connections_max and not self._strangers.make_room(conn):
            self._refuse(conn, self._connections_max, len(self._connections))
            return
        self.watch(conn)

    def admitted(self, conn: ServerConnection) -> bool:
        """Whether there is room for this client, which has greeted; else it was refused."""
        if conn.node or not self._seats.full(conn):
            return True
        self._refuse(conn, self._seats.limit, self._seats.taken)
        return False

    def prove(self, conn: ServerConnection) -> None:
        """It has proved who it is, or nobody has to."""
        self._seats.prove(conn)
        self._strangers.go(conn)

    def _refuse(self, conn: ServerConnection, limit: int, actual: int) -> None:
        self.counters.connections_refused += 1
        conn.end(
            Busy(
                f"node {self.hello.node} has {limit} connections, the limit: share connections, or "
                "ask another node",
                details={"what": "connections", "limit": limit, "actual": actual},
            )
        )

    def closed(self, conn: ServerConnection) -> None:
        self._connections.pop(conn, None)
        self._seats.give(conn)
        self._strangers.go(conn)
        self._watched.pop(conn, None)
        self.counters.connections -= 1

    def watch(self, conn: ServerConnection) -> None:
        """Look after a connection until it has greeted and can be written to."""
        conn.waiting_since = self.timers.monotonic()
        conn.unread = 0
        self.look_after(conn)

    def look_after(self, conn: ServerConnection) -> None:
        """It owes something that it has to give in time."""
        self._watched[conn] = None
        if self._sweeper is None:
            self._sweeper = self.timers.call_later(_SWEEP_S, self._on_sweep)

    def _on_sweep(self) -> None:
        try:
            self._sweep()
        finally:
            again = bool(self._watched)
            self._sweeper = self.timers.call_later(_SWEEP_S, self._on_sweep) if again else None

    def _sweep(self) -> None:
        now = self.timers.monotonic()
        for conn in list(self._watched):
            if conn.greeted and conn.writable:
                if not conn.partial_since:
                    del self._watched[conn]
                elif conn.is_late(now):
                    conn.end(self.held.too_late())
                continue
            limit_ms = STALL_MS_MAX if conn.greeted else HELLO_MS_MAX
            if conn.stalled_s(now) * 1000 > limit_ms:
                conn.drop()
            else:
                conn.tell_unread()
