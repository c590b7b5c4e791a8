"""From decoded requests to those who answer them. One call per frame; no task and no future per
native request.

    frame ──▶ submit ──┬─▶ Machine.submit: its queue; it replies when its drain is done
                       └─▶ Verb.check ─▶ handler ──┬─▶ a list: replied at once
                                                  └─▶ a coroutine: one of a bounded set of tasks

Invariants
  * every request gets exactly one reply, unless its connection is gone;
  * what reaches a handler has the right types and sizes (Verb.check); a machine checks its own;
  * a partition request reaches a machine only if its caller knew the partition's epoch; its field
    2, the caller's budget in ms, is then its deadline in seconds of `timers.monotonic()`;
  * what breaks is answered INTERNAL with an id that the log has, too (kv/base/internal_errors.py),
    and the rows after it are taken. If the method may have done something, the answer is
    UNKNOWN_OUTCOME with that id;
  * the frame's owner gives the rows away: they may be kept and changed;
  * a NOT_LEADER says who leads and where, as far as this node knows.

This is the boundary of the application for handlers, so it is where unexpected exceptions end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from kv.base.descriptors import PartitionDescriptor
from kv.base.disk_space import goes_on
from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    KvorumError,
    Moved,
    NotLeader,
    Unavailable,
    UnknownOutcome,
)
from kv.base.fields import PREFIX_BYTES
from kv.base.ids import META_PARTITION, NodeId
from kv.base.intents import Author
from kv.base.internal_errors import Faults
from kv.base.limits import DEADLINE_MS_DEFAULT, DEADLINE_MS_MAX, HANDLERS_MAX
from kv.base.members import Alone, Members, leader_details, others_details
from kv.base.methods import FIND_TXN, LOOKUP, NEW_WRITES, PING, STATS
from kv.base.ports import Rng, Timers
from kv.base.rights import Kind, Resource
from kv.base.rpc import OK, error_row
from kv.base.verbs import NODE_ARGS_AT, NODE_METHODS, VERBS, Verb, repeatable
from kv.base.wire_row import WireRow
from kv.server.connection_rights import Rights, first_key
from kv.server.counters import Counters
from kv.server.timestamp_connections import Express

# Code of Unavailable: this node will not answer any more; ask another one or wait for it.
STOPPING: Final = "STOPPING"
# Code of Unavailable: no partition of this node has the key; another node's may.
NO_PARTITION: Final = "NO_PARTITION"
HERE: Final = ("", 0)  # an address: where the question came from
_EPOCH_AT: Final = 4  # in a partition request, after the partition id


class Connection(Protocol):
    """What a request answers to: sockets, HTTP and embedded callers alike."""

    @property
    def user(self) -> str:
        """Whose connection it is; empty: a node's or a part of one, or nobody had to say who he
        is. What it claims for others is believed.
        """
        ...

    @property
    def rights(self) -> Rights | None:
        """What its user may. None: everything."""
        ...

    @property
    def author(self) -> Author:
        """Whose commands it sends."""
        ...

    def stand_in(self, row: list[object]) -> None:
        """Answer a request about a transaction of somebody else than the author, who may end only
        his own.
        """
        ...

    def reply(self, row: list[object]) -> None:
        """Queue `[rid, 0, *result]` or `[rid, 1, *error]`. A connection that is gone drops it."""
        ...

    def flush(self) -> None:
        """Send what is queued; once per drain. Nothing queued: nothing happens."""
        ...

    def ready(self, wake: Callable[[], None]) -> bool:
        """Whether it can take large replies now. If not, it calls `wake` once it can, or is
        gone.
        """
        ...


class Machine(Protocol):
    """The replica of one partition at this node (kv/partition)."""

    @property
    def descriptor(self) -> PartitionDescriptor: ...

    def submit(self, conn: Connection, request: WireRow) -> None:
        """Queue `[rid, method, budget_ms, partition_id, epoch, *args]`; one reply follows."""
        ...


class Partitions(Protocol):
    """The node's replicas (kv/replica/manager.py)."""

    def by_id(self, partition: int) -> Machine | None: ...

    def covering(self, key: bytes) -> PartitionDescriptor | None:
        """The partition whose range holds the key, as far as this node knows."""
        ...

    def leader_of(self, partition: int) -> int | None:
        """The node that leads a partition of this node, as far as it knows."""
        ...

    def find_txn(self, start_ts: int) -> bytes | None:
        """The anchor key of a transaction whose record lies in this node's partitions. None counts
        for those that it leads.
        """
        ...

    def led(self) -> tuple[list[int], list[int]]:
        """The ids of the partitions that this node leads now, and of its others."""
        ...


class Context(NamedTuple):
    """What a handler knows about its caller."""

    conn: Connection
    rid: int
    method: int
    deadline: float  # seconds of timers.monotonic()

    @property
    def user(self) -> str:
        """Who asks; see Connection."""
        return self.conn.user

    @property
    def rights(self) -> Rights | None:
        """What whoever asks may; see Connection."""
        return self.conn.rights

    def reads(self, resource: Resource) -> bool:
        """Whether whoever asks may read that."""
        rights = self.conn.rights
        return rights is None or rights.reads(resource)

    def reads_some(self, kind: Kind) -> bool:
        """Whether whoever asks may read anything of that kind."""
        rights = self.conn.rights
        return rights is None or rights.reads_some(kind)


Result = WireRow
Handler = Callable[[Context, WireRow], Awaitable[Result] | Result]


class Dispatcher:
    """The node's methods."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        partitions: Partitions,
        timers: Timers,
        rng: Rng,
        counters: Counters | None = None,
        members: Members | None = None,
        faults: Faults | None = None,
    ) -> None:
        """`members`: where the other nodes are; without them this one is alone."""
        self.faults = faults or Faults(node_id, rng.token)
        self.counters = counters or Counters()
        self._members = members or Alone()
        self.express = Express(timers.monotonic)
        self.no_room: KvorumError | None = None  # why new writes are refused; the node sets it
        self.placed: Callable[[], Awaitable[list[int]]] | None = None
        """The partitions that need not be at a majority of the nodes; asked while this node leads
        the meta partition. The node sets it.
        """
        self.doors: Mapping[Any, Machine] = {}
        """Where requests wait for partitions that are being made here; the node sets it."""
        self._node_id = node_id
        self._partitions = partitions
        self._by_id = partitions.by_id
        self._timers = timers
        self._monotonic = timers.monotonic
        self._handlers: dict[int, tuple[Handler, Verb]] = {}
        # For metrics, which outlive a node that is closed: it keeps nothing of the partitions.
        self.figures = partial(_figures, self.counters, self.faults)
        self._stats: list[Callable[[], Mapping[str, int]]] = [self.figures]
        self._tasks: dict[asyncio.Task[None], tuple[Context, Awaitable[Result]]] = {}
        self._closing = False
        self.register(PING, lambda _context, _args: [self._node_id])
        self.register(LOOKUP, self._lookup)
        self.register(STATS, self._statistics)
        self.register(FIND_TXN, self._find_txn)

    def register(self, method: int, handler: Handler) -> None:
        """Serve a node method."""
        assert method >= NODE_METHODS, f"method {method} belongs to partitions"
        assert method not in self._handlers, f"method {method} is registered twice"
        self._handlers[method] = (handler, VERBS[method])

    def unregister(self, method: int) -> None:
        """Serve it no more: the master's are answered NOT_LEADER then, others UNKNOWN_METHOD."""
        self._handlers.pop(method, None)

    def add_stats(self, source: Callable[[], Mapping[str, int]]) -> None:
        """Let STATS answer the counters of `source`, too."""
        self._stats.append(source)

    def submit(self, conn: Connection, requests: Iterable[WireRow]) -> None:
        """Take the rows of one frame (`kv.base.rpc.requests_of` checked their shape)."""
        counts = self.counters.requests
        by_id = self._by_id
        replied = False
        now = self._monotonic()
        usual = now + DEADLINE_MS_DEFAULT / 1000  # of whoever did not say how long it waits
        for row in requests:
            method = row[1]
            try:
                if method < NODE_METHODS and not self._closing:
                    if (
                        self.no_room is not None
                        and method in NEW_WRITES
                        and not goes_on(self.no_room, row)
                    ):
                        raise self.no_room
                    known = len(row) > _EPOCH_AT and type(row[3]) is int
                    machine = by_id(row[3]) if known else None
                    if machine is None and known and self.doors:
                        machine = self.doors.get(row[3])
                    if machine is None or machine.descriptor.epoch != row[_EPOCH_AT]:
                        raise self._moved(conn, row)
                    budget_ms = row[2]
                    if 0 < budget_ms <= DEADLINE_MS_MAX:
                        row[2] = now + budget_ms / 1000
                    else:
                        row[2] = self._deadline(budget_ms) if budget_ms else usual
                    machine.submit(conn, row)
                else:
                    replied = self._to_handler(conn, row) or replied
                counts[method] += 1
            except KvorumError as error:
                self.refuse(conn, row, error)
                replied = True
            except Exception as error:  # noqa: BLE001 - the boundary: the rows after it are others'
                self.refuse(conn, row, self._internal(method, error))
                replied = True
        if replied:
            conn.flush()

    def _moved(self, conn: Connection, row: WireRow) -> KvorumError:
        if len(row) <= _EPOCH_AT or type(row[3]) is not int or type(row[_EPOCH_AT]) is not int:
            return InvalidArgument(
                f"method {row[1]}: its arguments begin with partition_id and epoch, two integers"
            )
        verb = VERBS.get(row[1])
        key = None if verb is None else first_key(verb, row)
        now_at = None if key is None else self._partitions.covering(key)
        asked = self._by_id(row[3]) if conn.user else None
        if now_at is not None and asked is not None and _other_table(asked.descriptor, now_at):
            now_at = None  # whoever may read the one need not know where the other's keys are
        return Moved(
            f"partition {row[3]} epoch {row[4]} is not served here: look the key up again",
            details={"descriptor": None if now_at is None else now_at.to_wire()},
        )

    def _to_handler(self, conn: Connection, row: WireRow) -> bool:
        """Whether a reply was queued at once."""
        if self._closing:
            raise _stopping(self._node_id)
        found = self._handlers.get(row[1])
        if found is None:
            verb = VERBS.get(row[1])
            if verb is not None and verb.master:
                raise NotLeader(f"node {self._node_id} does not serve {verb.name} now")
            raise InvalidArgument(f"this node has no method {row[1]}", code="UNKNOWN_METHOD")
        handler, verb = found
        verb.check(row)
        context = Context(conn, row[0], row[1], self._deadline(row[2]))
        result = handler(context, row[NODE_ARGS_AT:])
        if isinstance(result, list):
            conn.reply([row[0], OK, *result])
            return True
        if len(self._tasks) >= HANDLERS_MAX:
            _discard(result)
            raise Busy(
                f"{HANDLERS_MAX} requests are being worked on at this node, the limit: try again",
                details={"what": "handlers", "limit": HANDLERS_MAX, "actual": len(self._tasks)},
            )
        task = asyncio.get_running_loop().create_task(self._run(context, result))
        self._tasks[task] = (context, result)
        self.counters.handlers += 1
        task.add_done_callback(self._ran)
        return False

    def _deadline(self, budget_ms: int) -> float:
        if not 0 <= budget_ms <= DEADLINE_MS_MAX:
            raise InvalidArgument(f"budget_ms must be in 0 … {DEADLINE_MS_MAX}, got {budget_ms}")
        return self._monotonic() + (budget_ms or DEADLINE_MS_DEFAULT) / 1000

    def _ran(self, task: asyncio.Task[None]) -> None:
        """Forget a task. One that was cancelled replies here: it may have been before its first
        step.
        """
        context, work = self._tasks.pop(task)
        self.counters.handlers -= 1
        if task.cancelled():
            _discard(work)
            self.refuse(context.conn, [context.rid], _interrupted(context.method, self._node_id))
            context.conn.flush()

    async def _run(self, context: Context, work: Awaitable[Result]) -> None:
        """Await a handler's work within the deadline and reply whatever comes of it."""
        conn, rid, method, deadline = context
        limit = asyncio.timeout(max(0.0, deadline - self._monotonic()))
        try:
            async with limit:
                result = await work
            conn.reply([rid, OK, *result])
        except KvorumError as error:
            self.refuse(conn, [rid], error)
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            late = isinstance(error, TimeoutError) and limit.expired()
            self.refuse(conn, [rid], _late(method) if late else self._internal(method, error))
        conn.flush()

    async def close(self) -> None:
        """Refuse what comes from now on and end the running handlers; each gets its reply."""
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def refuse(self, conn: Connection, row: WireRow, error: KvorumError) -> None:
        """Answer a request (of which the first field is enough) with why it is not served."""
        errors = self.counters.errors
        errors[error.code] = errors.get(error.code, 0) + 1
        if isinstance(error, NotLeader) and "address" not in error.details:
            # Who does not say whose leader is wanted serves what the meta partition's leader does.
            leader = error.details.get("leader")
            if "leader" not in error.details:
                leader = self._partitions.leader_of(META_PARTITION)
            error.details |= leader_details(leader, self._members) | others_details(self._members)
        conn.reply(error_row(row[0], error))

    def _internal(self, method: int, error: Exception) -> KvorumError:
        return self.faults.answer(error, f"method {method}", unknown=not repeatable(method))

    def _lookup(self, _context: Context, args: WireRow) -> Result:
        found = self._partitions.covering(args[0])
        if found is None:
            raise Unavailable(
                f"node {self._node_id} knows no partition of this key: try again",
                code=NO_PARTITION,
                details=others_details(self._members),
            )
        leader = self._partitions.leader_of(found.id)
        if leader is None or leader == self._node_id:
            return [found.to_wire(), list(HERE), leader or 0]
        address = self._members.address_of(leader)
        if address is None:  # of no use to whoever asks
            return [found.to_wire(), list(HERE), 0]
        return [found.to_wire(), list(address), leader]

    def _find_txn(self, context: Context, args: WireRow) -> Awaitable[Result] | Result:
        anchor = self._partitions.find_txn(args[0])
        rights = context.conn.rights
        if anchor is not None and rights is not None and not rights.sees(anchor):
            anchor = None
        led, others = self._partitions.led()
        nodes = [list(address) for address in self._members.others()]
        row = [anchor, led, others, nodes]
        if anchor is None and self.placed is not None and META_PARTITION in led:
            return _with(row, self.placed())
        return row

    def _statistics(self, _context: Context, _args: list[object]) -> Result:
        merged: dict[str, int] = {}
        for source in self._stats:
            merged |= source()
        return [merged]


def _figures(counters: Counters, faults: Faults) -> Mapping[str, int]:
    """The counters of the native protocol, and what broke inside this node."""
    return {**counters.as_map(), "internal_errors": faults.count}


async def _with(row: Result, more: Awaitable[object]) -> Result:
    return [*row, await more]


def _other_table(one: PartitionDescriptor, other: PartitionDescriptor) -> bool:
    return one.start[:PREFIX_BYTES] != other.start[:PREFIX_BYTES]


def _discard(work: Awaitable[Result]) -> None:
    """Close a coroutine that will not be awaited (again), so that Python does not warn about it."""
    close = getattr(work, "close", None)
    if close is not None:
        close()


def _stopping(node_id: NodeId) -> Unavailable:
    return Unavailable(f"node {node_id} is stopping: ask again in a moment", code=STOPPING)


def _interrupted(method: int, node_id: NodeId) -> KvorumError:
    if repeatable(method):
        return _stopping(node_id)
    return UnknownOutcome(f"node {node_id} stopped while it worked on this: ask for its status")


def _late(method: int) -> KvorumError:
    if repeatable(method):
        return DeadlineExceeded("the deadline passed while this node worked on the request")
    return UnknownOutcome("the deadline passed while this node worked on it: ask for its status")
