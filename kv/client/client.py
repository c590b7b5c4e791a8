"""KvClient: one call to whoever serves a key, and what to do about every way that can fail.

    outcome of an attempt                    what happens
    ---------------------                    -----------------------------------------------------
    MOVED, NOT_LEADER                        refresh the location; again at once, then with pauses
    BUSY                                     again after a pause, at least what the node asked for
    UNAVAILABLE of a stopping node           the next address, after a pause
    UNAVAILABLE, the oracle's bound          again after a pause
    no connection                            the next address, after a pause
    connection lost, request not sent        again
    connection lost, request sent            REPEATABLE methods again; others: UNKNOWN_OUTCOME
    deadline, request not sent or a query    DEADLINE_EXCEEDED
    deadline, request sent                   UNKNOWN_OUTCOME
    any other error                          the caller's

*Doubt* stays: once a write went out on a connection that broke, no later refusal can prove that
nothing was done, so a call in doubt that runs out of time ends as UNKNOWN_OUTCOME.

`args` are all arguments of the method as kv/base/methods.py lists them, without partition_id and
epoch; `key` only says where to send them (it is not added to `args`). Keys of one request must lie
in one partition (`split_by_partition`); if the partition was split meanwhile, the node refuses with
MOVED, and the caller splits its keys again. That MOVED is the only reroute that leaves `call`, and
only for methods of several keys.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    KvorumError,
    Moved,
    NotLeader,
    Refused,
    TooLarge,
    Unavailable,
    UnknownOutcome,
)
from kv.base.limits import (
    DEADLINE_MS_DEFAULT,
    DEADLINE_MS_MAX,
    RETRY_WAIT_MS_FIRST,
    RETRY_WAIT_MS_MAX,
)
from kv.base.methods import (
    LOOKUP,
    MGET,
    PREWRITE,
    PREWRITE_ROWS,
    QUERIES,
    REPEATABLE,
    RESOLVE,
    SCAN,
    WRITE,
)
from kv.base.ports import Rng, Timers
from kv.client.channels import Channels, LocalChannels, SocketChannels, tcp_connector
from kv.client.links import Link, LinkExpired, LinkLost, Submitter
from kv.client.router import ANYWHERE, Address, Location, Router

MULTI_KEY: Final = frozenset({MGET, SCAN, WRITE, PREWRITE, PREWRITE_ROWS, RESOLVE})
# codes of Unavailable that another attempt may cure: kv.server.dispatcher when it closes,
# kv.client.connection, tso.oracle (the node slept, or its clock went ahead: for a sync or two)
PASSING: Final = frozenset({"STOPPING", "UNREACHABLE", "TSO_BOUND"})
_SOON = (Moved, NotLeader, Busy, Unavailable, LinkLost, LinkExpired, OSError)
_NOTHING_DONE = (Moved, NotLeader, Busy, Unavailable, DeadlineExceeded)


class _Call:
    """What one call has been through."""

    __slots__ = ("attempts", "deadline", "doubt", "last", "method", "not_before")

    def __init__(self, method: int, deadline: float) -> None:
        self.method = method
        self.deadline = deadline
        self.attempts = 0
        self.doubt = False
        self.last: BaseException | None = None
        self.not_before = 0.0  # the peer asked for a pause of this many seconds

    def failed(self, error: BaseException) -> None:
        """Remember a failed attempt.

        Raises what the caller must see if there is no point in another one.
        """
        self.attempts += 1
        self.last = error
        self.not_before = 0.0
        match error:
            case LinkLost() if error.sent:
                if self.method not in REPEATABLE:
                    raise UnknownOutcome(
                        f"the reply was lost, it may or may not have been done: {error.reason}"
                    ) from error
                self.doubt = self.doubt or self.method not in QUERIES
            case LinkExpired():
                self.doubt = self.doubt or (error.sent and self.method not in QUERIES)
                raise self.out_of_time() from error
            case Busy():
                self.not_before = float(error.details.get("retry_after_ms", 0)) / 1000
            case Unavailable() if error.code not in PASSING:
                raise error
            case _:
                pass

    def final(self, error: KvorumError) -> KvorumError:
        """What the caller may be told: "nothing was done" only if no attempt is in doubt."""
        if self.doubt and isinstance(error, _NOTHING_DONE):
            return UnknownOutcome(
                f"a reply was lost, it may or may not have been done: {error.message}"
            )
        return error

    def out_of_time(self) -> KvorumError:
        """The error of a call that ran out of time, as far as it is known what became of it."""
        why = "" if self.last is None or isinstance(self.last, LinkExpired) else f": {self.last}"
        tried = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        if self.doubt:
            return UnknownOutcome(
                f"no reply within the deadline{tried}, it may or may not have been done{why}"
            )
        if isinstance(self.last, Busy):
            return self.last
        return DeadlineExceeded(f"not done within the deadline{tried}{why}")


class KvClient:
    """Calls to the nodes of a cluster, or to the embedded one. Of one event loop; close it when
    done.

    `lookups`, `retries` count what happened since the start.
    """

    def __init__(self, channels: Channels, timers: Timers, rng: Rng) -> None:
        self.lookups = 0
        self.retries = 0
        self._channels = channels
        self._timers = timers
        self._monotonic = timers.monotonic
        self._rng = rng
        self._router = Router()
        self._looking: asyncio.Event | None = None
        self._seed = 0  # the address in use for node methods

    # -- the public face

    async def call(self, method: int, key: bytes, *args: Any, budget_ms: int = 0) -> list[Any]:
        """The result list of a partition method at the partition of `key`.

        Raises KvorumError (see the module).
        """
        budget_ms = budget_ms or DEADLINE_MS_DEFAULT
        deadline = self._monotonic() + budget_ms * 0.001
        location = self._router.find(key)
        if location is not None and (link := self._channels.open_link(location.address)):
            descriptor = location.descriptor
            try:
                return await link.send(
                    method, budget_ms, deadline, (descriptor.id, descriptor.epoch, *args)
                )
            except _SOON as error:
                call = _started(method, budget_ms, deadline)
                self._note(call, error, location)
        else:
            call = _started(method, budget_ms, deadline)
        try:
            return await self._again(call, key, args)
        except KvorumError as error:
            raise call.final(error) from error.__cause__

    async def call_node(self, method: int, *args: Any, budget_ms: int = 0) -> list[Any]:
        """The result list of a node method, at the node in use; another one if that is gone or
        does not lead.
        """
        budget_ms = budget_ms or DEADLINE_MS_DEFAULT
        call = _started(method, budget_ms, self._monotonic() + budget_ms * 0.001)
        try:
            return (await self._ask_a_node(call, args))[0]
        except KvorumError as error:
            raise call.final(error) from error.__cause__

    async def locate(self, key: bytes, *, budget_ms: int = 0) -> PartitionDescriptor:
        """The partition of a key, from the cache or by a lookup."""
        location = self._router.find(key)
        if location is None:
            budget_ms = budget_ms or DEADLINE_MS_DEFAULT
            deadline = self._monotonic() + budget_ms * 0.001
            location = await self._locate(_started(LOOKUP, budget_ms, deadline), key)
        return location.descriptor

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

    def close(self) -> None:
        """End all connections. Calls that still wait fail as after a lost connection."""
        self._channels.close()

    # -- attempts

    async def _again(self, call: _Call, key: bytes, args: tuple[Any, ...]) -> list[Any]:
        """Attempts until one succeeds, a final error or the deadline."""
        while True:
            if call.attempts:
                await self._pause(call)
            location = await self._locate(call, key)
            try:
                link = await self._link(call, location.address)
                descriptor = location.descriptor
                return await link.send(
                    call.method,
                    _left_ms(call, self._monotonic()),
                    call.deadline,
                    (descriptor.id, descriptor.epoch, *args),
                )
            except _SOON as error:
                self._note(call, error, location)

    def _note(self, call: _Call, error: BaseException, used: Location) -> None:
        """After a failed attempt at a partition: learn where it is now, and decide whether to go
        on.
        """
        if isinstance(error, Moved) and (row := error.details.get("descriptor")) is not None:
            told = PartitionDescriptor.from_wire(row)
            if told == used.descriptor and call.method in MULTI_KEY:
                raise error  # the location is right: these keys do not lie in one partition
            self._router.forget(used)
            self._router.learn(told, used.address)
        elif not isinstance(error, Busy | LinkExpired):
            self._router.forget(used)  # the lookup goes to a node that lives
        call.failed(error)

    async def _pause(self, call: _Call) -> None:
        """Wait before the next attempt: not at all after the first reroute.

        Raises when the deadline comes first.
        """
        self.retries += 1
        pause = call.not_before
        if call.attempts > 1 or not isinstance(call.last, Moved | NotLeader | LinkLost):
            doubled = RETRY_WAIT_MS_FIRST << min(call.attempts, 16)
            pause += min(doubled, RETRY_WAIT_MS_MAX) * (0.5 + self._rng.random() / 2) / 1000
        if self._monotonic() + pause >= call.deadline:
            raise call.out_of_time()
        if pause:
            await asyncio.sleep(pause)

    async def _link(self, call: _Call, address: Address) -> Link:
        """The link to an address, connecting within the deadline."""
        link = self._channels.open_link(address)
        if link is not None:
            return link
        left = call.deadline - self._monotonic()
        try:
            async with asyncio.timeout(max(0.0, left)):
                return await self._channels.link(address)
        except TimeoutError as error:
            raise call.out_of_time() from error

    async def _ask_a_node(self, call: _Call, args: tuple[Any, ...]) -> tuple[list[Any], Address]:
        """Attempts at the node in use, then at the others in turn. The result and who gave it."""
        while True:
            addresses = self._channels.addresses
            seed = self._seed
            address = addresses[seed % len(addresses)]
            try:
                link = await self._link(call, address)
                return await link.send(
                    call.method, _left_ms(call, self._monotonic()), call.deadline, args
                ), address
            except _SOON as error:
                elsewhere = not isinstance(error, Busy | LinkExpired)
                if (
                    elsewhere and self._seed == seed
                ):  # of many callers that fail together, one moves on
                    self._seed = seed + 1
                call.failed(error)
            await self._pause(call)

    # -- locations

    async def _locate(self, call: _Call, key: bytes) -> Location:
        """Where a key lives. One lookup at a time: who missed the same range finds it when it
        ends.
        """
        while (location := self._router.find(key)) is None:
            left = call.deadline - self._monotonic()
            if left <= 0:
                raise call.out_of_time()
            if self._looking is None:
                self._looking = asyncio.Event()
                try:
                    await self._look_up(key, left)
                finally:
                    event, self._looking = self._looking, None
                    event.set()
            else:
                try:
                    async with asyncio.timeout(left):
                        await self._looking.wait()
                except TimeoutError as error:
                    raise call.out_of_time() from error
        return location

    async def _look_up(self, key: bytes, left_s: float) -> None:
        self.lookups += 1
        call = _Call(LOOKUP, self._monotonic() + left_s)
        (row, address), asked = await self._ask_a_node(call, (key,))
        leader: Address = (address[0], address[1])
        self._router.learn(
            PartitionDescriptor.from_wire(row), asked if leader == ANYWHERE else leader
        )

    async def first_link(self, budget_ms: int) -> None:
        """Reach any node. Raises what `connect` raises."""
        found: list[str] = []
        refused: Refused | None = None
        addresses = self._channels.addresses
        for i, address in enumerate(addresses):
            try:
                async with asyncio.timeout(budget_ms / 1000 / len(addresses)):
                    await self._channels.link(address)
            except TimeoutError:
                found.append(f"{_text(address)}: no answer")
            except OSError as error:
                # Numbers below 0 are getaddrinfo's: strerror does not know them.
                number = error.errno or 0
                why = os.strerror(number) if number > 0 else error.strerror
                found.append(f"{_text(address)}: {why or error}")
            except (InvalidArgument, TooLarge):  # of the first frame: these bytes are no frame
                found.append(f"{_text(address)}: what listens there is not Kvorum's native port")
            except KvorumError as error:
                found.append(f"{_text(address)}: {error.message}")
                if isinstance(error, Refused):
                    refused = error
            else:
                self._seed = i
                return
        raise refused or Unavailable(
            f"cannot reach the cluster ({'; '.join(found)}): is a node running there?",
            code="UNREACHABLE",
        )


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _left_ms(call: _Call, now: float) -> int:
    """What is left of the call's time. Raises its last error if that is nothing."""
    left_s = call.deadline - now
    if left_s <= 0:
        raise call.out_of_time()
    return max(1, int(left_s * 1000))


def _started(method: int, budget_ms: int, deadline: float) -> _Call:
    if not 0 < budget_ms <= DEADLINE_MS_MAX:
        raise InvalidArgument(f"budget_ms must be in 0 … {DEADLINE_MS_MAX}, got {budget_ms}")
    return _Call(method, deadline)


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
) -> KvClient:
    """A client of the cluster behind `addresses` (host, port): the first that answers is used, the
    others if it fails.

    Raises Unavailable (UNREACHABLE) that says what is wrong with each address, Refused of a wrong
    cluster or version.
    """
    if not addresses:
        raise InvalidArgument("connect needs at least one address")
    channels = SocketChannels(list(addresses), tcp_connector(timers, cluster))
    client = KvClient(channels, timers, rng)
    try:
        await client.first_link(budget_ms)
    except BaseException:
        client.close()
        raise
    return client
