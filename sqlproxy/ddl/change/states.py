"""What steps of a schema change share: the next version of a descriptor, and the wait before it.

A wait (`sqlproxy.ddl.change.version_waits`) ends when every proxy has acknowledged the version, and
begins anew when its step does. At its end the namespace's schema row is written once more
(`settled`): a transaction that is still bound to the version before the last holds that row with
its commit (docs/decisions/1013), so it is refused from then on, however long its process was
paused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from kv.base.errors import NotFound
from kv.base.ids import TableId
from kv.base.ports import Rng, Timers
from procedures.engine.context import StepContext
from procedures.master.map.partitions import Maker
from sqlproxy.catalog import catalog, relations
from sqlproxy.ddl.change.version_waits import Settled, Store
from sqlproxy.ddl.steps import CatalogTxn, DdlServices, known_fields, name_in, wrong_kind
from sqlproxy.rows.schema import USABLE, Table, stands_by
from sqlproxy.values.refusals import invalid, refusal
from txn.results import ScanPage
from txn.transaction import Transaction

T = TypeVar("T")


class Client(Store, Protocol):
    """What is needed of `txn.client.TxnClient`."""

    async def run(self, fn: Callable[[Transaction], Awaitable[T]]) -> T: ...

    async def ingest(
        self, keys: Sequence[bytes], values: Sequence[bytes], *, at: int, unique: bool
    ) -> int: ...

    async def now(self) -> int: ...

    async def scan(self, start: bytes, end: bytes, *, limit: int, at: int = 0) -> ScanPage: ...

    async def multi_get(
        self, keys: Sequence[bytes], at: int = 0
    ) -> tuple[list[tuple[bytes, int] | None], int]: ...


class Held(Protocol):
    """A snapshot that is held."""

    @property
    def id(self) -> int: ...


class Snapshots(Protocol):
    """What is needed of `kvorum.native.native.NativeBackend`."""

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int) -> Held: ...
    async def renew_snapshot(self, id: int) -> None: ...
    async def release_snapshot(self, id: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class ChangeServices:
    """What schema changes work with. `changed` is called for every table whose descriptor changed.
    `store`: where proxies say what they use; without one all waits are by time. `snapshots()` is
    asked for when a step runs; without it old versions are there as long as they are kept anyway.
    """

    partitions: Maker
    changed: Callable[[str, str], None]
    timers: Timers
    store: Client | None = None
    rng: Rng | None = None  # for values that are chance
    loop_s: Callable[[], float] = float  # what the loop has used of a processor (0: nobody counts)
    snapshots: Callable[[], Snapshots] | None = None
    settled: Settled = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settled", Settled(self.timers, self.store))

    @property
    def ddl(self) -> DdlServices:
        return DdlServices(self.partitions, self.changed, self.settled)


class Change:
    """A procedure that changes a table which stays. ctx.state: table (id)."""

    def __init__(self, services: ChangeServices) -> None:
        self.services = services

    @staticmethod
    async def named(
        ctx: StepContext, fields: frozenset[str]
    ) -> tuple[Mapping[str, Any], CatalogTxn, Table]:
        """The arguments, which may have `fields`, and the table that they name. Raises NotFound,
        InvalidArgument.
        """
        args = known_fields(ctx.args, fields)
        t = await CatalogTxn.of(ctx)
        return args, t, await usable(t, name_in(args, "namespace"), name_in(args, "name"))

    async def settle(self, ctx: StepContext, *, native: bool = False) -> None:
        """Until nobody uses the version before the last one, nor can commit what was bound to it;
        `native`: nobody without SQL either. It comes before the step's first read: what the step
        then sees is settled.
        """
        await self.services.settled.proxies(
            ctx.args["namespace"], lambda text: ctx.progress(0, text)
        )
        if native:
            await self.services.settled.native_writers(TableId(ctx.state["table"]))

    @staticmethod
    async def find(t: CatalogTxn, ctx: StepContext) -> Table:
        """The table as it is now. Raises NotFound: it was dropped by force."""
        table = await catalog.find_by_id(t, TableId(ctx.state["table"]))
        if table is None:
            raise gone(ctx.args.get("name", ""))
        return table

    async def write(self, t: CatalogTxn, table: Table, **changes: Any) -> Table:
        """The next version of its descriptor."""
        changed = replace(table, version=table.version + 1, **changes)
        await catalog.write(t, changed, awaited=True)
        self.services.changed(table.namespace, table.name)
        return changed


def gone(name: str) -> Exception:
    """42P01, in PostgreSQL's words."""
    return refusal("42P01", f'relation "{name}" does not exist', kind=NotFound, name=name)


async def usable(t: CatalogTxn, namespace: str, name: str) -> Table:
    """A table with columns that users see. Raises NotFound, InvalidArgument (42809)."""
    there = await relations.find_relation(t, namespace, name)
    if there is not None and not isinstance(there, Table):
        raise wrong_kind(name, there.kind, "table")
    if there is None or there.state not in USABLE:
        raise gone(name)
    if there.plain:
        raise invalid(
            "0A000", f'"{name}" is a key-value table without columns: it cannot have this'
        )
    if there.standby:
        raise stands_by(there)
    return there
