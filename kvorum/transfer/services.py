"""What the procedures of this package work with, in a node or in the process of a command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from kv.base.errors import InvalidArgument, KvorumError, NotFound, Refused
from kv.base.limits import (
    DEADLINE_MS_DEFAULT,
    TRANSFER_LEASE_MS,
    TRANSFER_PAUSE_MS_MAX,
    TRANSFER_RATE_MIN,
    TRANSFER_STROKE_ROWS,
    WAIT_MS_MAX,
)
from kv.base.ports import Timers
from kvorum.api.model import ProcedureInfo, SnapshotInfo
from kvorum.transfer.allowed_places import check_database, opened
from kvorum.transfer.listings import Listings
from kvorum.transfer.places import Place
from kvorum.transfer.row_group_cache import Groups
from kvorum.transfer.sealing import Key, read_key
from kvorum.transfer.spools import Spools
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, again
from txn.client import TxnClient
from txn.results import ScanPage

T = TypeVar("T")
LATER: Final = frozenset({"retry", "reroute", "restart_txn", "unknown_outcome"})


class Backend(Protocol):
    """What is needed of kvorum.native.native.NativeBackend."""

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int) -> SnapshotInfo: ...
    async def renew_snapshot(self, id: int) -> None: ...
    async def release_snapshot(self, id: int) -> bool: ...
    async def cluster(self) -> dict[str, object]: ...
    async def submit(
        self, name: str, args: object, nonce: str | None, options: dict[str, object] | None = None
    ) -> int: ...
    async def procedure(self, procedure: int, wait_ms: int) -> ProcedureInfo: ...
    async def acknowledge(self, procedure: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Services:
    """`in_thread` runs a blocking call beside the loop. `backend()` and `txn()` are asked for when
    a step runs: a node makes them later than its procedures.
    """

    txn: Callable[[], TxnClient]
    backend: Callable[[], Backend]
    in_thread: Callable[[Callable[[], None]], Awaitable[None]]
    timers: Timers
    own: Callable[[], frozenset[str]] = frozenset
    """The names of the product's procedures."""
    groups: Groups = field(default_factory=Groups)
    spools: Spools = field(default_factory=Spools)
    listings: Listings = field(default_factory=Listings)
    places: tuple[str, ...] | None = None
    """The node's setting transfer_places; None: whoever submits is this process's user."""
    key_file: str = ""
    """Of encrypted backups; "" = there is none."""
    mine: asyncio.Future[int] | None = None
    """The only procedure that this process works for; None: any."""

    async def beside(self, call: Callable[[], T]) -> T:
        """What a blocking call returns."""
        found: list[T] = []
        await self.in_thread(lambda: found.append(call()))
        return found[0]

    async def place(self, ctx: StepContext, field: str, *, here: bool) -> Place:
        """That an argument of the procedure names. See `opened`: each step asks, since another node
        may go on with the procedure. Raises InvalidArgument, Refused.
        """
        target = text_in(ctx.args, field)
        await self._is_mine(ctx)
        return await self.beside(lambda: opened(target, here=here, listed=self.places))

    async def backup_key(self) -> Key | None:
        """As it is now. Raises InvalidArgument."""
        return await self.beside(lambda: read_key(self.key_file)) if self.key_file else None

    async def check_database(self, ctx: StepContext, source: str, *, here: bool) -> None:
        """The same of a database that is read."""
        await self._is_mine(ctx)
        check_database(source, here=here, listed=self.places)

    async def _is_mine(self, ctx: StepContext) -> None:
        """Whoever may submit procedures could have a command read and write its user's files."""
        if self.mine is not None and await asyncio.shield(self.mine) != ctx.id:
            raise Refused(
                f"the command in this pool works for another procedure than {ctx.id}",
                code="OTHER_PROCEDURE",
            )

    def paced(self, began: float, size: int, args: Any) -> Outcome:
        """The next piece, after a pause if this one, of so many bytes, came faster than the rate in
        the procedure's arguments.
        """
        took_ms = (self.timers.monotonic() - began) * 1000
        return again(delay_ms=pause_ms(size, args.get("rate", 0), took_ms))

    async def run(self, name: str, args: Any, nonce: str) -> object:
        """The result of another procedure, which is one and the same for one nonce. Raises Refused
        with the code of what it failed with.
        """
        backend = self.backend()
        try:
            id = await backend.submit(name, args, nonce)
        except Refused as error:
            # What a step finds when it runs again may differ: the first counts.
            if error.code != "NONCE_REUSED" or error.details.get("name") != name:
                raise
            id = int(error.details["procedure"])
        while True:
            info = await backend.procedure(id, WAIT_MS_MAX)
            if info.finished:
                break
        if info.state != "SUCCESS":
            failure = info.error or {}
            raise Refused(
                f"{name} ({id}) ended {info.state}: {failure.get('message', '')}",
                code=str(failure.get("code") or "FAILED"),
                details={"procedure": id},
            )
        return info.result


@dataclass(frozen=True, slots=True)
class Past:
    """Reads of the newest state as it was at one timestamp (sqlproxy.catalog.catalog.Reader)."""

    txn: TxnClient
    at: int

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        return await self.txn.get(key, self.at)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage:
        return await self.txn.scan(start, end, limit=limit, at=self.at)


async def scan_expiring(
    txn: TxnClient, start: bytes, end: bytes, at: int, limit: int
) -> tuple[ScanPage, dict[int, int]]:
    """See txn.reading.reader.Reader.scan_expiring."""
    return await txn.reader_at(at).scan_expiring(
        start, end, at, limit=limit, budget_ms=DEADLINE_MS_DEFAULT
    )


async def hold(services: Services, ctx: StepContext, at: int, what: str) -> int:
    """A lease on the snapshot of `at`: its id."""
    owner = f"{what} {ctx.id}"
    return (await services.backend().open_snapshot(at, owner, TRANSFER_LEASE_MS)).id


async def keep(services: Services, ctx: StepContext, what: str) -> None:
    """The snapshot of ctx.state goes on being held; if its lease has ended meanwhile, with a new
    one. Raises SnapshotTooOld: what it was to read may be gone.
    """
    try:
        await services.backend().renew_snapshot(ctx.state["lease"])
    except NotFound:
        ctx.state["lease"] = await hold(services, ctx, ctx.state["at"], what)


async def let_go(services: Services, ctx: StepContext) -> None:
    """It is held no more; if that cannot be said, it expires."""
    if "lease" not in ctx.state:
        return
    try:
        await services.backend().release_snapshot(ctx.state["lease"])
    except KvorumError as error:
        if error.disposition not in LATER:
            raise


def pause_ms(size: int, rate: int, took_ms: float) -> int:
    """How long to wait after so many bytes, so that `rate` bytes per second (0 = any) are kept.
    Only one value of megabytes at a few KiB per second waits for less: its snapshot would be lost.
    """
    if not rate:
        return 0
    return min(TRANSFER_PAUSE_MS_MAX, max(0, round(size * 1000 / rate - took_ms)))


def stroke(rate: int, seconds: int, most: int) -> int:
    """Bytes of one file: what comes between two pauses is read and written as fast as it goes, so
    at a low rate that must be little. It depends on the rate alone (Backup.copy).
    """
    return min(most, rate * seconds) if rate else most


def page_of(left: int, rows: int, size: int, most: int) -> int:
    """How many rows of a table to ask for, of which `rows` had `size` bytes, so that hardly more
    is read than the `left` bytes that a file has room for.
    """
    if not rows:
        return min(most, TRANSFER_STROKE_ROWS)
    return max(1, min(most, left * rows // max(size, 1) + 1))


def text_in(args: object, field: str, default: str | None = None) -> str:
    """Raises InvalidArgument."""
    value = args.get(field, default) if isinstance(args, dict) else None
    if not isinstance(value, str):
        raise InvalidArgument(f"the argument {field!r} must be text, got {value!r:.80}")
    return value


def flag_in(args: Any, field: str) -> bool:
    value = args.get(field, False)
    if type(value) is not bool:
        raise InvalidArgument(f"the argument {field!r} must be true or false, got {value!r:.40}")
    return value


def rate_in(args: Any) -> int:
    """Bytes per second, 0 = any. Raises InvalidArgument."""
    rate = args.get("rate", 0)
    if type(rate) is not int or (rate and rate < TRANSFER_RATE_MIN):
        raise InvalidArgument(
            f"rate must be 0 or at least {TRANSFER_RATE_MIN} bytes per second, got {rate!r:.40}"
        )
    found: int = rate
    return found
