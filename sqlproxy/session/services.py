"""What all sessions of a node share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from kv.base.limits import SQL_PLANS_CHARS_MAX, SQL_PLANS_MAX
from kv.base.ports import Clock
from sqlproxy.declared import Catalogs
from sqlproxy.pgcatalog.catalog import SystemCatalog
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.session.roster import Roster
from sqlproxy.turns import Turns
from txn.client import TxnClient

if TYPE_CHECKING:
    from sqlproxy.front.env import Env
    from sqlproxy.rows.schema import Table
    from sqlproxy.session.advisory import AdvisoryLocks
    from sqlproxy.session.portals import Batches
    from sqlproxy.session.prepared import Prepared
    from sqlproxy.session.running import Job
    from sqlproxy.session.session import SqlSession
    from sqlproxy.tables.access import Access
    from sqlproxy.tables.reading import Reads, Touched
    from sqlproxy.tables.writing import Outcome


class Run(Protocol):
    """Runs a procedure to its end: DDL goes through the master."""

    def __call__(
        self, procedure: str, args: Mapping[str, Any], tell: Callable[[str], None]
    ) -> Awaitable[Any]:
        """Its result; `tell` is told now and then where it is. Raises KvorumError."""
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

    async def query(
        self,
        session: SqlSession,
        prepared: Prepared,
        values: Sequence[Any],
        reads: Reads,
        env: Env,
        touched: Touched,
    ) -> Batches:
        """The rows of a SELECT. Raises SqlError."""
        ...

    def describe(self, bound: Any, env: Env) -> Sequence[tuple[Table, Access | None]]:
        """The tables that it would scan, and how; None: a plain table, whole. Raises SqlError."""
        ...

    async def change(self, job: Job, prepared: Prepared, values: Sequence[Any]) -> Outcome:
        """A change whose rows have to be found by a join. Raises SqlError."""
        ...


class Plans:
    """Bound statements with what was compiled for them, by text and everything that they depend on;
    the least used ones go, when they are too many or their texts are too long together.
    """

    def __init__(self, most: int = SQL_PLANS_MAX, chars_max: int = SQL_PLANS_CHARS_MAX) -> None:
        self._known: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._most, self._chars_max = most, chars_max
        self._chars = 0

    def get(self, key: Any) -> Any:
        found = self._known.get(key)
        if found is None:
            return None
        self._known.move_to_end(key)
        return found[0]

    def put(self, key: Any, plan: Any, chars: int) -> None:
        """`chars`: of its text."""
        if (old := self._known.pop(key, None)) is not None:
            self._chars -= old[1]
        self._known[key] = plan, chars
        self._chars += chars
        while len(self._known) > self._most or self._chars > self._chars_max:
            _, (_, gone) = self._known.popitem(last=False)
            self._chars -= gone


@dataclass(slots=True)
class Services:
    """`cluster`: the databases and roles that there are. `random` and `uuid`: what gen_random_uuid
    and random() ask; `token`: so many random bytes.
    """

    client: TxnClient
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
    plans: Plans = field(default_factory=Plans)
    roster: Roster = field(default_factory=Roster)
    turns: Turns = field(default_factory=Turns)
