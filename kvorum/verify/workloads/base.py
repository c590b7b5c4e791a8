"""What all workloads have in common."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from kv.base.config import ORACLE
from kv.base.errors import AlreadyExists
from kvorum.sdk.database import AsyncDatabase
from kvorum.verify.client import NAMESPACE, Client

ISOLATIONS: Final = ("snapshot", "serializable")
READ_COMMITTED: Final = "read_committed"
"""For workloads that lock what they change: the others would lose updates there, as they may."""


class Workload(ABC):
    """One run of a workload. An object serves one run: it hands out unique values and keys."""

    name: ClassVar[str]
    about: ClassVar[str]
    """One line for `kvorum verify --help`."""
    splits: ClassVar[Sequence[str]] = ()
    """Where its table is cut into partitions, so that its transactions cross them."""
    modules: ClassVar[Sequence[str]] = ()
    """Modules of procedures that the nodes must have been started with."""
    isolations: ClassVar[Sequence[str]] = ISOLATIONS
    """Under which of them the workload has something to check."""
    clocks: ClassVar[Sequence[str]] = (ORACLE,)
    """With which of them what it checks is promised."""
    clusters: ClassVar[int] = 1
    """How many clusters it is about. Of more, client I works on the one numbered I modulo that."""

    def __init__(self) -> None:
        self._count = 0

    def parameters(self) -> dict[str, object]:
        """What the checker must know; it goes into the header of the history."""
        return {}

    async def begin(self, databases: Sequence[AsyncDatabase], table: str) -> None:
        """`prepare`, by the first of the databases. May run again after a failure."""
        await self.prepare(databases[0], table)

    async def prepare(self, db: AsyncDatabase, table: str) -> None:
        """Make the table and what lies in it at the beginning. May run again after a failure."""
        await make_table(db, table, self.splits)

    async def clean(self, db: AsyncDatabase, table: str) -> None:
        """Remove what `prepare` made."""
        await db.drop_table(NAMESPACE, table)

    @abstractmethod
    async def step(self, client: Client) -> None:
        """One operation of one client, recorded."""

    @abstractmethod
    async def final(self, client: Client) -> bool:
        """Read and record the state at the end, by operations whose names begin with "final".

        True when all of it was answered; else it is asked again.
        """

    def unique(self) -> int:
        """1, 2, 3, …: never the same number twice in a run."""
        self._count += 1
        return self._count


async def make_table(db: AsyncDatabase, table: str, splits: Sequence[str] = ()) -> None:
    """Namespace and table, if they are not there."""
    with contextlib.suppress(AlreadyExists):
        await db.create_namespace(NAMESPACE)
    with contextlib.suppress(AlreadyExists):
        await db.create_table(NAMESPACE, table, split_keys=tuple(splits))
