"""KvClient: one call to whoever serves a key, and what to do about every way that can fail.

    outcome of an attempt                    what happens
    ---------------------                    -----------------------------------------------------
    NOT_LEADER that names the leader         there, at once
    MOVED, NOT_LEADER                        refresh the location; again at once, then with pauses
    BUSY                                     again after a pause, at least what the node asked for
    UNAVAILABLE of a stopping node           the next address, after a pause
    UNAVAILABLE, no timestamps now           again after a pause
    CUT_OFF: this node hears too few others  the caller's: what they decide is not known here
    no connection                            the next address, after a pause
    connection lost, request not sent        again
    connection lost, request sent            repeatable methods again; others: UNKNOWN_OUTCOME
    UNKNOWN_OUTCOME: the leader was deposed  the same
    deadline, request not sent or a query    DEADLINE_EXCEEDED
    deadline, request sent                   UNKNOWN_OUTCOME
    any other error                          the caller's

While a partition's leader is being elected, one of its callers looks for it and the others wait for
what that one finds. Of node methods, the master's go to the leader of the meta partition, which
is remembered; the others stay at the node in use. Nodes that replies name are remembered, too, so
that a client outlives those that it was given.

`args` are all arguments of the method as kv/base/methods.py lists them, without partition_id and
epoch; `key` only says where to send them (it is not added to `args`). Keys of one request must lie
in one partition (`split_by_partition`); if the partition was split meanwhile, the node refuses with
MOVED, and the caller splits its keys again. That MOVED is the only reroute that leaves `call`, and
only for methods of several keys.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kv.base.credentials import Credential, from_environment
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import (
    Busy,
    InvalidArgument,
    KvorumError,
    Moved,
    NotLeader,
    Refused,
    Unauthenticated,
    Unavailable,
    UnknownOutcome,
)
from kv.base.ids import PartitionId
from kv.base.limits import ADDRESSES_MAX, CONNECT_MS_MAX, DEADLINE_MS_DEFAULT
from kv.base.members import address_in, others_in
from kv.base.methods import LOOKUP
from kv.base.ports import Rng, Timers
from kv.base.spoken_time import Heard
from kv.base.tls import TLS_MISMATCH, TLS_REQUIRED, Tls, misfit, why
from kv.base.wire_row import WireRow
from kv.client.calls import CUT_OFF, GONE, NO_PARTITION, UNREACHABLE, Call, Started, started
from kv.client.channels import Channels, LocalChannels, SocketChannels, tcp_connector
from kv.client.find import find_txn
from kv.client.links import Link, LinkExpired, LinkLost, Receiver, Submitter
from kv.client.node_choice import Turn
from kv.client.router import ANYWHERE, Address, Location, Router

_SOON: Final = (Moved, NotLeader, Busy, Unavailable, LinkLost, LinkExpired, OSError)
# A deposed leader may have had the command in its log, a master that stops have begun it: what may
# be repeated is asked of the next.
_SOON_AT_ANOTHER: Final = (*_SOON, UnknownOutcome)


class KvClient:
    """Calls to the nodes of a cluster, or to the embedded one. Of one event loop; close it when
    done.

    `lookups`, `refreshes` (locations that proved wrong) and `retries` count what happened since the
    start.
    """

    def __init__(
        self,
        channels: Channels,
        timers: Timers,
        rng: Rng,
        *,
        budget_ms: int = DEADLINE_MS_DEFAULT,
        cut_off: Callable[[], str] = lambda: "",
        heard: Heard | None = None,
    ) -> None:
        """`budget_ms`: of a call that says none. `cut_off`: why another attempt is of no use.
        `heard`: the time that came over the channels.
        """
        self._cut_off = cut_off
        self.heard = Heard() if heard is None else heard
        self._budget_ms = budget_ms
        self.lookups = 0
        self.refreshes = 0
        self.retries = 0
        self._channels = channels
        self._timers = timers
        self._monotonic = timers.monotonic
        self._rng = rng
        self._router = Router()
        # Who looks now for a partition's leader; None: for what covers a key.
        self._looking: dict[PartitionId | None, asyncio.Event] = {}
        self._learnt: list[Address] = []
        self._any = Turn()  # the node in use
        self._master = Turn()  # the leader of the meta partition

    # -- the public face

    async def call(self, method: int, key: bytes, *args: object, budget_ms: int = 0) -> WireRow:
        """The result list of a partition method at the partition of `key`.

        Raises KvorumError (see the module).
        """
        budget_ms = budget_ms or self._budget_ms
        deadline = self._monotonic() + budget_ms * 0.001
        location = self._router.find(key)
        if (
            location is not None
            and (address := location.address) is not None
            and (link := self._channels.open_link(address)) is not None
        ):
            descriptor = location.descriptor
            try:
                return await link.send(
                    method, budget_ms, deadline, (descriptor.id, descriptor.epoch, *args)
                )
            except _SOON_AT_ANOTHER as error:
                call = started(method, budget_ms, deadline)
                self._note(call, error, location)
        else:
            call = started(method, budget_ms, deadline)
        try:
            return await self._again(call, key, args)
        except KvorumError as error:
            raise call.final(error) from error.__cause__
        finally:
            call.last = None  # it refers to frames, and they to it: a cycle that holds the args

    def start(
        self, method: int, key: bytes, args: tuple[object, ...], budget_ms: int
    ) -> Started | None:
        """Send the first attempt of `call` now, without a task or a coroutine for it; None if that
        needs more than looking up where to: then `call`. If its reply fails, `go_on`.
        """
        location = self._router.find(key)
        if location is None or (address := location.address) is None:
            return None
        link = self._channels.open_link(address)
        if link is None or not link.usable:
            return None
        deadline = self._monotonic() + budget_ms * 0.001
        d = location.descriptor
        try:
            reply = link.send(method, budget_ms, deadline, (d.id, d.epoch, *args))
        except Busy:
            return None
        return Started(reply, method, key, args, budget_ms, deadline, location)

    def start_for(
        self, waiter: Receiver, method: int, key: bytes, args: tuple[object, ...], budget_ms: int
    ) -> bool:
        """`start` for a caller whose method gets the result, never within this one; whether it
        was sent.
        """
        location = self._router.find(key)
        if location is None or (address := location.address) is None:
            return False
        link = self._channels.open_link(address)
        if link is None or not link.usable:
            return False
        d = location.descriptor
        deadline = self._monotonic() + budget_ms * 0.001
        try:
            link.send_row(waiter, [0, method, budget_ms, d.id, d.epoch, *args], deadline)
        except Busy:
            return False
        return True

    async def go_on(self, first: Started, error: BaseException) -> list[object]:
        """What `call` does after its first attempt failed. Raises what it raises."""
        if not isinstance(error, _SOON_AT_ANOTHER):
            raise error
        call = started(first.method, first.budget_ms, first.deadline)
        self._note(call, error, first.location)
        try:
            return await self._again(call, first.key, first.args)
        except KvorumError as last:
            raise call.final(last) from last.__cause__
        finally:
            call.last = None  # as in `call`

    async def call_node(self, method: int, *args: object, budget_ms: int = 0) -> WireRow:
        """The result list of a node method: of the master's at the meta partition's leader, of
        others at the node in use; another one if that is gone.
        """
        budget_ms = budget_ms or self._budget_ms
        call = started(method, budget_ms, self._monotonic() + budget_ms * 0.001, args)
        try:
            return (await self._ask_a_node(call, args))[0]
        except KvorumError as error:
            raise call.final(error) from error.__cause__
        finally:
            call.last = None  # as in `call`

    async def call_at(
        self, address: Address, method: int, *args: object, budget_ms: int = 0
    ) -> WireRow:
        """The result list of a node method at one node, in one attempt: the caller knows whether
        another one makes sense. Raises Unavailable (UNREACHABLE), too.
        """
        budget_ms = budget_ms or self._budget_ms
        call = started(method, budget_ms, self._monotonic() + budget_ms * 0.001)
        try:
            link = await self._link(call, address)
            return await link.send(method, call.left_ms(self._monotonic()), call.deadline, args)
        except (LinkLost, LinkExpired, OSError) as error:
            call.failed(error)  # raises, if it may have been done or its time is over
            lost = Unavailable(f"{_text(address)}: {error}", code=UNREACHABLE)
            raise call.final(lost) from error

    async def find_txn(self, start_ts: int, *, budget_ms: int = 0) -> bytes | None:
        """The anchor key of a transaction, None if it has no record in any partition.

        Raises Unavailable or DeadlineExceeded while a partition has no leader: it may be there.
        """
        budget_ms = budget_ms or self._budget_ms
        return await find_txn(self, start_ts, self._monotonic, budget_ms)

    async def locate(self, key: bytes, *, budget_ms: int = 0) -> PartitionDescriptor:
        """The partition of a key, from the cache or by a lookup."""
        location = self._router.find(key)
        if location is None:
            budget_ms = budget_ms or self._budget_ms
            deadline = self._monotonic() + budget_ms * 0.001
            location, _ = await self._locate(started(LOOKUP, budget_ms, deadline), key)
        return location.descriptor

    def located(self, key: bytes) -> PartitionDescriptor | None:
        """The partition of a key if the cache has it."""
        location = self._router.find(key)
        return None if location is None else location.descriptor

    def leader_of(self, key: bytes) -> Address | None:
        """Where the leader of a key's partition is, if the cache has it."""
        location = self._router.find(key)
        return None if location is None else location.address

    async def split_by_partition(
        self, keys: Iterable[bytes], *, budget_ms: int = 0
    ) -> list[tuple[PartitionDescriptor, list[bytes]]]:
        """The keys by the partition they lie in, partitions in the order of their first key, keys
        in the given order.
        """
        groups: dict[bytes, tuple[PartitionDescriptor, list[bytes]]] = {}
        current: PartitionDescriptor | None = None
        group: list[bytes] = []
        for key in keys:
            if current is None or not current.covers(key):
                current = await self.locate(key, budget_ms=budget_ms)
                _, group = groups.setdefault(current.start, (current, []))
            group.append(key)
        return list(groups.values())

    @property
    def budget_ms(self) -> int:
        """Of a call that says none."""
        return self._budget_ms

    @property
    def addresses(self) -> list[Address]:
        """Where the cluster may be asked, as far as this client knows."""
        return self._addresses()

    def figures(self) -> dict[str, int]:
        """For metrics."""
        return {"lookups": self.lookups, "refreshes": self.refreshes, "retries": self.retries}

    def close(self) -> None:
        """End all connections. Calls that still wait fail as after a lost connection."""
        self._channels.close()

    # -- attempts

    async def _again(self, call: Call, key: bytes, args: tuple[object, ...]) -> WireRow:
        """Attempts until one succeeds, a final error or the deadline."""
        while True:
            if call.attempts:
                await self._pause(call)
            location, address = await self._locate(call, key)
            try:
                link = await self._link(call, address)
                descriptor = location.descriptor
                return await link.send(
                    call.method,
                    call.left_ms(self._monotonic()),
                    call.deadline,
                    (descriptor.id, descriptor.epoch, *args),
                )
            except _SOON_AT_ANOTHER as error:
                self._note(call, error, location)

    def _note(self, call: Call, error: BaseException, used: Location) -> None:
        """After a failed attempt at a partition: learn where it is now, and decide whether to go
        on.
        """
        match error:
            case Moved() if (row := error.details.get("descriptor")) is not None:
                current = PartitionDescriptor.from_wire(row)
                if current == used.descriptor and call.verb.several:
                    raise error  # the location is right: these keys do not lie in one partition
                self._refresh(used, Location(current, used.address))
            case Moved():
                self._refresh(used, None)
            case NotLeader() if (leader := address_in(error.details)) is not None:
                self._learn(leader)
                self._refresh(used, Location(used.descriptor, leader))
            case NotLeader() | UnknownOutcome() | LinkLost() | OSError():
                self._refresh(used, Location(used.descriptor, None))
            case Unavailable() if error.code in GONE:
                self._refresh(used, Location(used.descriptor, None))
            case _:
                pass  # it was the right one
        call.failed(error)

    def _refresh(self, used: Location, now: Location | None) -> None:
        """A location proved wrong. Of many callers that found out together, the first counts."""
        if now == used or not self._router.knows(used):
            return
        self.refreshes += 1
        self._router.forget(used)
        if now is not None:
            self._router.learn(*now)

    async def _pause(self, call: Call) -> None:
        """Wait before the next attempt. Raises when the deadline comes first."""
        self.retries += 1
        self.refuse_cut_off()
        pause = call.pause_s(self._rng.random())
        if self._monotonic() + pause >= call.deadline:
            raise call.out_of_time()
        if pause:
            await asyncio.sleep(pause)

    def refuse_cut_off(self) -> None:
        """Raises Unavailable (CUT_OFF): whoever waits need not wait any more."""
        if why := self._cut_off():
            raise Unavailable(f"{why}; nothing was done: ask another node", code=CUT_OFF)

    async def _link(self, call: Call, address: Address) -> Link:
        """The link to an address, connecting within the deadline. A node that takes the connection
        and says nothing is stopped, or cut off: another one may lead by now.
        """
        link = self._channels.open_link(address)
        if link is not None:
            link.check_usable()
            return link
        left = call.deadline - self._monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(left, CONNECT_MS_MAX / 1000))) as limit:
                return await self._channels.link(address)
        except TimeoutError as error:
            if limit.expired() and left <= CONNECT_MS_MAX / 1000:
                raise call.out_of_time() from error
            raise Unavailable(f"{_text(address)}: no answer", code=UNREACHABLE) from error

    # -- nodes

    def _addresses(self) -> list[Address]:
        """Where the cluster may be asked."""
        given = self._channels.addresses
        if not self._learnt:
            return given
        return [*given, *(address for address in self._learnt if address not in given)]

    def _learn(self, address: Address) -> None:
        """A reply named another node."""
        if len(self._learnt) < ADDRESSES_MAX and address not in self._addresses():
            self._learnt.append(address)

    def _learn_of(self, error: BaseException) -> None:
        """A node that cannot say who serves named those that may know."""
        if isinstance(error, KvorumError):
            for address in others_in(error.details):
                self._learn(address)

    async def _ask_a_node(
        self, call: Call, args: tuple[object, ...], skip: int = 0
    ) -> tuple[WireRow, Address]:
        """Attempts at the node in use, then at the others in turn. The result and who gave it.
        `skip`: begin so many addresses further, without giving up the one in use.
        """
        turn = self._master if call.verb.master else self._any
        while True:
            addresses = self._addresses()
            address = turn.address(addresses, skip)
            try:
                link = await self._link(call, address)
                return await link.send(
                    call.method, call.left_ms(self._monotonic()), call.deadline, args
                ), address
            except _SOON_AT_ANOTHER as error:
                self._learn_of(error)
                if _is_elsewhere(error):
                    leader = address_in(error.details) if isinstance(error, NotLeader) else None
                    if leader is not None:
                        self._learn(leader)
                        turn.name(leader)
                    elif skip:
                        skip += 1
                    else:
                        turn.failed(address, addresses)
                call.failed(error)
            await self._pause(call)

    # -- locations

    async def _locate(self, call: Call, key: bytes) -> tuple[Location, Address]:
        """Where a key lives and who leads there. One looks at a time: who missed the same range, or
        waits for a leader of the same partition, finds it when that one ends.
        """
        while True:
            location = self._router.find(key)
            if location is not None and location.address is not None:
                return location, location.address
            left = call.deadline - self._monotonic()
            if left <= 0:
                raise call.out_of_time()
            if location is not None:
                self.refuse_cut_off()
            what = None if location is None else location.descriptor.id
            if (others := self._looking.get(what)) is None:
                done = self._looking[what] = asyncio.Event()
                try:
                    await self._look_up(key, call.deadline, until_led=location is not None)
                finally:
                    del self._looking[what]
                    done.set()
            else:
                try:
                    async with asyncio.timeout(left):
                        await others.wait()
                except TimeoutError as error:
                    raise call.out_of_time() from error

    async def _look_up(self, key: bytes, deadline: float, *, until_led: bool) -> None:
        """Ask where a key lives; `until_led`: node after node, until one knows who leads there and
        that one can be reached.
        """
        call = Call(LOOKUP, deadline)
        unknown_at = unknown = skip = 0
        while True:
            self.lookups += 1
            try:
                (row, (host, port), *more), asked = await self._ask_a_node(call, (key,), skip)
            except Unavailable as error:
                # Not every node has every partition, and one that was down when a table was made
                # learns of its partitions later.
                if error.code != NO_PARTITION:
                    raise
                unknown_at, unknown, skip = unknown_at + 1, unknown + 1, skip + 1
                if unknown_at >= len(self._addresses()):
                    if call.attempts == unknown:
                        raise  # every node answered
                    unknown_at = 0  # a node that does not answer may have it
                    await self._pause(call)
                continue
            unknown_at = 0
            descriptor = PartitionDescriptor.from_wire(row)
            leader = None if more == [0] else asked if (host, port) == ANYWHERE else (host, port)
            if leader is not None:
                self._learn(leader)
            try:
                if until_led:
                    await self._reach(call, descriptor, leader)
                if not self._router.learn(descriptor, leader):
                    raise _outdated(descriptor)
            except (NotLeader, Unavailable, LinkLost, OSError) as error:
                skip += 1
                call.failed(error)
                await self._pause(call)
            else:
                return

    async def _reach(
        self, call: Call, descriptor: PartitionDescriptor, leader: Address | None
    ) -> None:
        """Raises if nobody is known to lead there, or cannot be reached."""
        if leader is None:
            self._router.learn(descriptor, None)
            raise NotLeader(f"partition {descriptor.id} has no leader that is known")
        await self._link(call, leader)

    async def first_link(self, budget_ms: int) -> None:
        """Reach any node. Raises what `connect` raises."""
        found: list[str] = []
        refused: KvorumError | None = None
        misfits = 0
        addresses = self._channels.addresses
        for i, address in enumerate(addresses):
            try:
                async with asyncio.timeout(budget_ms / 1000 / len(addresses)):
                    await self._channels.link(address)
            except TimeoutError:
                found.append(f"{_text(address)}: no answer")
            except OSError as error:
                found.append(f"{_text(address)}: {why(error)}")
                misfits += misfit(error)
            except KvorumError as error:
                found.append(f"{_text(address)}: {error.message}")
                misfits += error.code == TLS_REQUIRED
                if isinstance(error, Refused | Unauthenticated | Busy):
                    refused = error
            else:
                self._any.begin_at(i)
                self._master.begin_at(i)
                return
        if refused is None and misfits == len(addresses):
            refused = Refused(f"no TLS with the cluster ({'; '.join(found)})", code=TLS_MISMATCH)
        raise refused or Unavailable(
            f"cannot reach the cluster ({'; '.join(found)}): is a node running there?",
            code=UNREACHABLE,
        )


def _outdated(current: PartitionDescriptor) -> NotLeader:
    """A node has not heard yet that a partition was split or merged; another one may have."""
    return NotLeader(f"partition {current.id} is not what it was at epoch {current.epoch}")


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _is_elsewhere(error: BaseException) -> bool:
    """Whether another node should be asked."""
    if isinstance(error, Unavailable):
        return error.code in GONE
    return isinstance(error, Moved | NotLeader | UnknownOutcome | LinkLost | OSError)


def local_client(submitter: Submitter, timers: Timers, rng: Rng) -> KvClient:
    """A client of the node in this process and on this loop."""
    return KvClient(LocalChannels(submitter, timers), timers, rng)


async def connect(
    addresses: Sequence[Address],
    *,
    timers: Timers,
    rng: Rng,
    cluster: str = "",
    budget_ms: int = DEADLINE_MS_DEFAULT,
    tls: Tls | None = None,
    credential: Credential | None = None,
    heard: Heard | None = None,
) -> KvClient:
    """A client of the cluster behind `addresses` (host, port): the first that answers is used, the
    others if it fails. Without a `credential` that of the environment is shown.

    `budget_ms` is for the connection; a call that says no time of its own has as much, but not more
    than the usual. Raises Unavailable (UNREACHABLE) that says what is wrong with each address,
    Refused of a wrong cluster or version, or if TLS
    fits at no address (TLS_MISMATCH).
    """
    if not addresses:
        raise InvalidArgument("connect needs at least one address")
    if credential is None:
        credential = from_environment(os.environ)
    heard = Heard() if heard is None else heard
    connector = tcp_connector(timers, cluster, credential=credential, tls=tls, time=heard)
    channels = SocketChannels(list(addresses), connector)
    usual = min(budget_ms, DEADLINE_MS_DEFAULT)
    client = KvClient(channels, timers, rng, budget_ms=usual, heard=heard)
    try:
        await client.first_link(budget_ms)
    except BaseException:
        client.close()
        raise
    return client
