"""The fence of one session's commits: nothing is committed that was bound to a version of the
schema before the last one, however long the process stood still (Q5, Q6; docs/decisions/1013).

    bound(at, version)      a change was bound to declarations that were looked at then; `at` is of
                            the monotonic clock, from before the look
    await hold(t)           before the commit of what was bound

Young commits pay nothing: until SQL_FENCE_MS after the oldest look a commit is sent within
SQL_COMMIT_MS_MAX, and a schema change waits longer than both between two versions. An older one
holds the schema's row: it commits only if that row is what the changes were bound to, and stays so
until the commit. The clock is read where the commit begins, so a pause before it makes it an old
one; a pause after it ends the commit's deadline, which partitions see, too.

A definition of the transaction's own changes the row, too, while the transaction goes on. Where it
has only added rows, and nothing that was declared before is another now, they are bound to what is
declared since (`moved`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from kv.base.errors import WriteConflict
from kv.base.limits import SQL_COMMIT_MS_MAX, SQL_FENCE_MS
from kv.base.ports import Timers
from sqlproxy.catalog import catalog
from sqlproxy.catalog.declaration_users import Presence
from txn.transaction import Transaction

Newest = Callable[[bytes], Awaitable[tuple[bytes | None, int]]]
"""What is acknowledged now, and its version."""
NEVER: Final = float("-inf")  # looked at: it is not what is declared now


class Fence:
    """See the module. Of one session; `forget` begins the next transaction. `presence`: where it is
    and learns what may still be committed unfenced, so that a schema change waits for it.
    """

    def __init__(self, database: str, timers: Timers, presence: Presence | None = None) -> None:
        self.database = database
        self._now = timers.monotonic
        self._presence = presence
        self._oldest: tuple[float, int] | None = None
        self._sent = False  # the commit is under way, unfenced
        self._adds = True  # rows, and does nothing else
        self._moved = False  # to what was declared after the transaction's snapshot

    def bound(self, at: float, version: int, *, adds: bool = False) -> None:
        """`adds`: whatever is declared beside, rows that are new break no rule of it."""
        self._adds = self._adds and adds
        if self._oldest is None or at < self._oldest[0]:
            self._oldest = at, version
            if self._presence is not None:
                self._presence.bound(self)

    def moves(self, version: int) -> bool:
        """Whether what is bound to this version can be bound to one that only declares more."""
        return self._adds and self._oldest is not None and self._oldest[1] == version

    def moved(self, at: float, version: int) -> None:
        """It is, as of a look at `at`."""
        self._oldest, self._moved = (at, version), True

    def binds(self, version: int) -> bool:
        """Whether it may still commit, unfenced, what was bound below this version."""
        if self._oldest is None or self._oldest[1] >= version:
            return False
        return self._sent or self._young(self._oldest[0])

    def _young(self, at: float) -> bool:
        return (self._now() - at) * 1000 <= SQL_FENCE_MS

    def forget(self, *, unknown: bool = False) -> None:
        """The transaction is over; `unknown`: its commit may still be under way."""
        if self._presence is not None and self._oldest is not None:
            lingers = self._oldest[1] if unknown and self._sent else None
            self._presence.released(self, unknown=lingers)
        self._oldest, self._sent = None, False
        self._adds, self._moved = True, False

    async def hold(self, t: Transaction, newest: Newest | None = None) -> None:
        """`newest`: a read of the store, for what was moved. Raises WriteConflict: the schema
        changed since; KvorumError.
        """
        if self._oldest is None:
            return
        at, version = self._oldest
        if self._young(at) and not t.spilled:
            t.commit_within(SQL_COMMIT_MS_MAX)
            self._sent = True
            return
        key = catalog.schema_key(self.database)
        row = await (newest if newest is not None and self._moved else t.get)(key)
        there, _ = catalog.schema_row(key, row[0])
        if there != version:
            raise WriteConflict(
                f"what is declared in {self.database} changed since the transaction's first "
                "change was bound to it; run it again",
                details={"database": self.database, "bound": version, "now": there},
            )
        if t.spilled or self._moved or row[1] > t.start_ts:
            t.check(key, row[1])  # an intent of the long commit stands for it
        else:
            t.hold_key(key)
