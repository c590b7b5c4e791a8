"""What all sessions of a node share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from kv.base.ports import Clock
from kv.base.rights import Identity
from kv.base.tenants import Tenants
from sqlproxy.ddl.private import PrivateIds
from sqlproxy.declared.catalogs import Catalogs
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.statements import Select
from sqlproxy.loop.trimming import Trimming
from sqlproxy.pg.answers import Row
from sqlproxy.pgcatalog.catalog import SystemCatalog
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.session.shared.advisory_locks import AdvisoryLocks
from sqlproxy.session.shared.notifier import Notifier
from sqlproxy.session.shared.prepared import Plans
from sqlproxy.session.shared.roster import Roster
from sqlproxy.session.shared.statistics import Statistics
from sqlproxy.tables.reading import Described, Reads, Touched
from sqlproxy.tables.statistics import Estimates
from sqlproxy.tables.writing import Outcome, Work
from sqlproxy.values.errors import SqlError
from sqlproxy.values.memory import Share
from txn.client import TxnClient


class Run(Protocol):
    """Runs a procedure to its end: DDL goes through the master."""

    def __call__(
        self, procedure: str, args: Mapping[str, object], tell: Callable[[str], None]
    ) -> Awaitable[object]:
        """Its result; `tell` gets its progress now and then. Raises KvorumError."""
        ...


class Numbers(Protocol):
    """Values of sequences, given out from runs that were taken before
    (sqlproxy.catalog.sequence_pool)."""

    async def reserve(self, sequence: SequenceRow, count: int) -> Sequence[int]:
        """So many values, in order. Raises SqlError (2200H)."""
        ...

    async def some(self, sequence: SequenceRow, count: int) -> tuple[Sequence[int], int]:
        """The same, fewer at its end; and of which run."""
        ...

    def give_back(self, sequence: SequenceRow, values: list[int], run: int) -> None:
        """What was not used of `some`: the last ones of it, in order."""
        ...

    def at_once(self, sequence: SequenceRow, count: int) -> list[int] | None:
        """The same without waiting; None: it would have to wait."""
        ...

    def take_back(self, sequence: SequenceRow, values: list[int]) -> None:
        """What `at_once` just gave was not used."""
        ...

    async def set_value(self, sequence: SequenceRow, value: int, called: bool = True) -> None:
        """setval. Raises SqlError (22003)."""
        ...

    async def stand(self, sequence: SequenceRow) -> tuple[int, int, bool]:
        """last_value, log_cnt, is_called."""
        ...

    def forget(self, sequence: int) -> None:
        """It was changed: what was taken of it is not given out any more."""
        ...


class Analytic(Protocol):
    """Joins, aggregates and large sorts (sqlproxy.analytic)."""

    def rows(
        self,
        select: Select,
        reads: Reads,
        env: Env,
        touched: Touched,
        text: str,
        kept: list[Any] | None = None,
    ) -> AsyncIterator[Sequence[Row]]:
        """The rows of a SELECT, whose statement is `text`. `kept`: what this has found of it, for
        its next run. Raises SqlError.
        """
        ...

    def describe(
        self, bound: object, env: Env, estimates: Estimates | None = None
    ) -> Sequence[Described]:
        """The tables that it would scan, and how. Raises SqlError."""
        ...

    async def change(self, job: Work, bound: object, text: str) -> Outcome:
        """A change whose rows have to be found by a join. Raises SqlError."""
        ...


class Audit(Protocol):
    """Is called for each decision on a statement."""

    def decided(
        self,
        identity: Identity,
        address: str,
        said: str,
        what: str,
        relations: Iterable[int],
        refused: SqlError | None,
    ) -> None:
        """`said`: application_name; `what`: the kind of statement; `relations`: ids."""
        ...


@dataclass(slots=True)
class Services:
    """`cluster`: the databases and roles that there are. `random` and `uuid`: what gen_random_uuid
    and random() ask; `token`: so many random bytes.
    """

    client: TxnClient
    tenants: Tenants
    catalogs: Catalogs
    system: SystemCatalog
    run: Run
    numbers: Numbers
    clock: Clock
    cluster: Callable[[], Awaitable[Cluster]]
    cancel_after: Callable[[float, Callable[[], None]], asyncio.TimerHandle]
    random: Callable[[], float]
    uuid: Callable[[], UUID]
    token: Callable[[int], bytes]
    analytic: Analytic | None = None
    advisory: AdvisoryLocks | None = None
    notifier: Notifier | None = None
    plans: Plans = field(default_factory=Plans)
    roster: Roster = field(default_factory=Roster)
    memory: Share = field(default_factory=Share)
    session_defaults: Mapping[str, str] = field(default_factory=dict)
    trimming: Trimming | None = None
    private_ids: PrivateIds = field(default_factory=PrivateIds)
    statistics: Statistics | None = None
    audit: Audit | None = None
