"""Rows that a statement locks (docs/decisions/1530, 1531): FOR UPDATE and its like; at READ
COMMITTED also what it changes, refers to, and wants to be new.

A row is found as the statement's snapshot has it, then locked. If it is newer by then, a
transaction that keeps its snapshot has a conflict (40001), as in PostgreSQL. At READ COMMITTED the
newest row takes its place, if the statement still means it (PostgreSQL's EvalPlanQual).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from kv.base.errors import KeyLocked
from kv.base.limits import SQL_LOCKED_KEYS_MAX, TXN_LIFETIME_MS_MAX
from kv.base.strengths import KEY_SHARE, STRENGTHS, UPDATE
from sqlproxy.front.bound.env import Env
from sqlproxy.front.bound.exprs import Expr
from sqlproxy.front.bound.statements import Locking
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import Table
from sqlproxy.tables.access import Access
from sqlproxy.tables.reading import Stored, TableReader, Touched
from sqlproxy.values.errors import LOCK_NOT_AVAILABLE, SERIALIZATION_FAILURE, SqlError
from txn.transaction import Transaction, TxnReads

T = TypeVar("T")
Found: TypeAlias = tuple[Stored, T]
"""A row, and what the statement makes of it."""
_FOREVER_MS: Final = TXN_LIFETIME_MS_MAX


@dataclass(frozen=True, slots=True)
class Wait:
    """What a statement does about a row that somebody else has locked."""

    table: str
    policy: str = "block"  # or "error", "skip"
    strength: int = UPDATE
    going: bool = False  # it is about to remove the row, or its key

    @staticmethod
    def of(locking: Sequence[Locking], table: str) -> Wait:
        """Of several clauses NOWAIT counts before SKIP LOCKED, and the strongest, as in
        PostgreSQL.
        """
        asked = {lock.wait for lock in locking}
        policy = next((one for one in ("error", "skip") if one in asked), "block")
        return Wait(table, policy, min(STRENGTHS[lock.strength] for lock in locking))

    async def lock(self, t: TxnReads, keys: Sequence[bytes]) -> dict[bytes, int]:
        """The newest versions of those that are locked now; without those that are skipped. Raises
        SqlError (55P03), KvorumError.
        """
        left = list(keys)
        while left:
            try:
                found = await t.lock(
                    left, wait_ms=self._ms(t), strength=self.strength, going=self.going
                )
                return dict(zip(left, found, strict=True))
            except KeyLocked as met:
                if self.policy != "skip":
                    raise self._refused(met) from met
                left.remove(met.details["key"])
        return {}

    async def lock_present(self, t: TxnReads, key: bytes) -> tuple[bytes, int] | None:
        """What is at a key that is locked now; None: nothing is, or it is skipped. Raises SqlError
        (55P03), KvorumError.
        """
        try:
            return await t.lock_present(key, wait_ms=self._ms(t), strength=self.strength)
        except KeyLocked as met:
            if self.policy == "skip":
                return None
            raise self._refused(met) from met

    def _ms(self, t: TxnReads) -> int:
        return t.lock_wait_ms or _FOREVER_MS if self.policy == "block" else 0

    def _refused(self, met: KeyLocked) -> SqlError:
        if self.policy == "block":
            return lock_timed_out(met)
        words = f'could not obtain lock on row in relation "{self.table}"'
        return SqlError(LOCK_NOT_AVAILABLE, words, detail=met.message)


def lock_timed_out(met: KeyLocked) -> SqlError:
    """It has waited as long as lock_timeout says."""
    words = "canceling statement due to lock timeout"
    return SqlError(LOCK_NOT_AVAILABLE, words, detail=met.message)


class Stale(Exception):
    """At READ COMMITTED a join has found rows that are newer by the time they are locked: the
    statement, which has written nothing, has to run again on a new snapshot.
    """


async def lock_changed(
    t: Transaction,
    table: Table,
    rows: Sequence[Found[T]],
    meant: Callable[[Stored], T | None],
    strength: int,
) -> Sequence[Found[T]]:
    """The rows that a change means, locked if the transaction is READ COMMITTED, and there is
    room.
    """
    if not rows or not has_room(t, len(rows)):
        return rows
    return await lock_rows(t, table, rows, meant, Wait(table.name, strength=strength))


def locks_first(table: Table, access: Access, conditions: Sequence[Expr]) -> bool:
    """Whether a row is meant by its key alone: at READ COMMITTED a statement locks it before it
    looks at it, and needs no snapshot for that. What has other conditions, too, reads it first,
    since it locks, and waits for, only what it means.
    """
    return access.one_row and len(conditions) == len(table.key_columns)


async def lock_first(
    t: TxnReads,
    reader: TableReader,
    env: Env,
    touched: Touched,
    meant: Callable[[Stored], T | None],
    wait: Wait,
) -> list[Found[T]] | None:
    """The row that `locks_first` speaks of, as it is now, in one request. None: it has to be read
    before, at a snapshot that is renewed now.
    """
    key = reader.point(env)
    if key is None:
        return []
    if t.wrote(key) or touched.tally is not None:
        await t.renew()
        return None
    touched.get(1)
    found = await wait.lock_present(t, key)
    if found is None:
        return []
    stored = reader.stored(key, *found)
    made = meant(stored)
    return [] if made is None else [(stored, made)]


async def lock_going(t: Transaction, table: Table, keys: Sequence[bytes]) -> None:
    """READ COMMITTED: what is at these keys goes, and nobody refers to it from now on until the
    end, if there is room: who does so by himself waits with his commit.
    """
    if not t.renews:
        return
    if keys and has_room(t, len(keys)):
        await Wait(table.name, going=True).lock(t, keys)
    await t.renew()


async def share_keys(t: Transaction, table: Table, keys: Sequence[bytes]) -> dict[bytes, int]:
    """READ COMMITTED: the versions of what stays at these keys until the end, whoever else wants
    that, too. Without those that it wrote itself, or has no room for: they are to be read.
    """
    if not t.renews:
        return {}
    if not has_room(t, len(keys)):
        await t.renew()
        return {}
    mine = [key for key in keys if not t.wrote(key)]
    return await Wait(table.name, strength=KEY_SHARE).lock(t, mine)


def has_room(t: Transaction, keys: int) -> bool:
    """Whether it locks so many more. What a change does to others is a condition of the commit."""
    return t.renews and t.locked + keys <= SQL_LOCKED_KEYS_MAX


async def lock_found(t: TxnReads, keys: Sequence[bytes], wait: Wait) -> Collection[bytes]:
    """Lock what a join has found; what is locked now. Raises Stale."""
    versions = await wait.lock(t, keys)
    if t.renews:
        for key, version in versions.items():
            if not 0 < version <= t.read_ts and not t.wrote(key):
                raise Stale
    return versions.keys()


async def lock_rows(
    t: TxnReads,
    table: Table,
    rows: Sequence[Found[T]],
    meant: Callable[[Stored], T | None],
    wait: Wait,
) -> list[Found[T]]:
    """The rows that are locked now, as they are now, in their order. `meant`: what the statement
    makes of a row; None: it does not mean it.
    """
    versions = await wait.lock(t, [stored.key for stored, _ in rows])
    held = [one for one in rows if one[0].key in versions]
    newer = [s.key for s, _ in held if s.version and versions[s.key] != s.version]
    if not newer:
        return held
    if not t.renews:
        raise SqlError(SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
    now = dict(zip(newer, await t.newest(newer), strict=True))
    decode = codec(table).decode_row
    found: list[Found[T]] = []
    for stored, made in held:
        if stored.key not in now:
            found.append((stored, made))
        elif (there := now[stored.key]) is not None:
            again = Stored(stored.key, decode(stored.key[4:], there[0]), there[1])
            if (still := meant(again)) is not None:
                found.append((again, still))
    return found
