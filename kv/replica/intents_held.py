"""The intents and guards of the partitions that a node leads, for people (GET /v1/locks).

A transaction of a million keys is one row a table, with a count, and does not hide the others;
keys that somebody waits for have rows of their own. Or each key has (`every`). Not all are looked
at: a look must not hold up the node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import chain, islice
from typing import Final

from kv.base.methods import OP_CHECK
from kv.base.strengths import STRENGTHS
from kv.base.timestamps import physical_ms
from kv.base.waits import GUARD, INTENT, Held
from kv.mvcc.guards import Guard
from kv.mvcc.records import Lock
from kv.replica.replica import Replica

_LOOKED_AT: Final = 10_000  # per partition where each key gets a row …
_COUNTED: Final = 100_000  # … and where most are only counted
_PREFIX_BYTES: Final = 4  # the table's id

_NAMES: Final = {number: name for name, number in STRENGTHS.items()}

OwnerOf = Callable[[bytes, int], str]
Waited = Collection[tuple[int, bytes]]
"""(transaction, key) of what somebody waits for."""


def held(
    replicas: Iterable[Replica],
    node: int,
    now_ms: int,
    most: int,
    *,
    owner_of: OwnerOf,
    waited: Waited = (),
    every: bool = False,
) -> tuple[list[Held], bool]:
    """The `most` rows, those that are waited for first, then the oldest; and whether there are
    more.
    """
    found: list[Held] = []
    more = False
    looked_at = _LOOKED_AT if every else _COUNTED
    for replica in replicas:
        state = replica.state
        # A partition that sleeps has no lease, and keeps its intents.
        if not (state.locks or state.guards.by_at) or not replica.leads():
            continue
        locks, guards = state.locks, state.guards.by_at
        more = more or len(locks) > looked_at or len(guards) > looked_at
        rows = _Rows(node, replica.descriptor.id, now_ms, owner_of, waited, every=every)
        held_here: Iterable[tuple[bytes, Lock | Guard]] = chain(
            islice(locks.items(), looked_at),
            ((one.start, one) for one in islice(guards.values(), looked_at)),
        )
        rows.add_all(held_here)
        found += rows.all()
    first = nsmallest(most, found, key=lambda one: ((one.txn, one.key) not in waited, one.txn))
    return first, more or len(found) > most


@dataclass(slots=True)
class _Fold:
    """Keys of one transaction in one table, and the first of them."""

    key: bytes
    one: Lock | Guard
    keys: int = 1


class _Rows:
    """The rows of one partition."""

    def __init__(
        self,
        node: int,
        partition: int,
        now_ms: int,
        owner_of: OwnerOf,
        waited: Waited,
        *,
        every: bool,
    ) -> None:
        self._node, self._partition, self._now_ms = node, partition, now_ms
        self._owner_of, self._waited, self._every = owner_of, waited, every
        self._single: list[Held] = []
        self._folded: dict[tuple[int, bool, bytes], _Fold] = {}

    def add_all(self, held_here: Iterable[tuple[bytes, Lock | Guard]]) -> None:
        waited, every, folded = self._waited, self._every, self._folded
        for key, one in held_here:
            if every or (waited and (one.start_ts, key) in waited):
                self._single.append(self._row(key, one))
                continue
            of = one.start_ts, isinstance(one, Guard), key[:_PREFIX_BYTES]
            fold = folded.get(of)
            if fold is None:
                folded[of] = _Fold(key, one)
                continue
            fold.keys += 1
            if key < fold.key:
                fold.key, fold.one = key, one

    def all(self) -> list[Held]:
        rows = (replace(self._row(f.key, f.one), keys=f.keys) for f in self._folded.values())
        return [*self._single, *rows]

    def _row(self, key: bytes, one: Lock | Guard) -> Held:
        return Held(
            self._node,
            self._partition,
            GUARD if isinstance(one, Guard) else INTENT,
            key,
            one.end if isinstance(one, Guard) else None,
            one.start_ts,
            self._owner_of(one.anchor, one.start_ts),
            max(0, self._now_ms - physical_ms(one.start_ts)),
            one.ttl_ms,
            strength=_strength(one),
        )


def _strength(one: Lock | Guard) -> str:
    """Of a row lock: a check that is there before the commit has no bound."""
    if isinstance(one, Guard):
        return _NAMES[one.shared] if one.shared else ""
    return _NAMES[one.value_ttl_ms] if one.kind == OP_CHECK and not one.min_commit_ts else ""


class Owners:
    """Who owns a transaction whose record lies at this node, leader or not: what a follower has not
    applied yet does not matter to people.
    """

    def __init__(self, replicas: Callable[[], Iterable[Replica]]) -> None:
        self._replicas = replicas

    def __call__(self, anchor: bytes, start_ts: int) -> str:
        """ "" = not known here."""
        for replica in self._replicas():
            if replica.descriptor.covers(anchor):
                record = replica.state.txn(anchor, start_ts)
                return "" if record is None else record.owner
        return ""
