"""Whether the histories of filling.py notice what would be wrong: each rule of the backfill is
switched off in turn, and seeds are played until one fails.

    python -m tests.sqlproxy.ddl.change.broken [FIRST [COUNT]]

Two more rules of unique indexes need rarer histories: those of tests/kv/mvcc/test_ingest.py.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from kv.base import ops
from kv.base.keys import from_u64
from kv.mvcc.ingest import ingest
from kv.partition import writes
from sqlproxy.ddl.change import slices
from tests.sqlproxy.ddl.change import filling
from txn import transaction


def _no_tombstones(patch: pytest.MonkeyPatch) -> None:
    """A delete of an entry that is not there yet leaves nothing."""

    def delete(key: bytes, cond: int | None = None, *, tombstone: bool = False) -> ops.Op:
        return ops.delete(key, cond)

    patch.setattr(transaction, "delete", delete)


def _over_newer(patch: pytest.MonkeyPatch) -> None:
    """Entries are written as if now, over what their writers left behind the snapshot."""

    def late(view: Any, keys: Sequence[bytes], values: Any, *, at: int, **more: Any) -> int:
        newest = [from_u64(record) for record in view.many_cur(keys) if record]
        return ingest(view, keys, values, at=max([at, *newest]) + 1, **more)

    patch.setattr(writes, "ingest", late)


def _not_unique(patch: pytest.MonkeyPatch) -> None:
    """An entry that another row has is passed over, as a newer one; nor does a check find it."""

    async def checked(*_of: Any) -> tuple[bool, None]:
        return True, None

    def plain(view: Any, *args: Any, unique: bool, **more: Any) -> int:
        return ingest(view, *args, unique=False, **more)

    patch.setattr(writes, "ingest", plain)
    patch.setattr(slices, "checked_in_slices", checked)


RULES: Final[dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "tombstones": _no_tombstones,
    "newer stays": _over_newer,
    "unique": _not_unique,
}


@contextlib.contextmanager
def without(rule: str) -> Iterator[None]:
    """That rule is switched off."""
    with pytest.MonkeyPatch.context() as patch:
        RULES[rule](patch)
        yield


def seeds_until_noticed(rule: str, first: int, count: int) -> int | None:
    """How many seeds it took, each of which passes with all rules; None: they all passed without
    this one.
    """
    kinds = ("unique",) if rule == "unique" else ("plain", "partial")
    for n in range(count):
        for kind in kinds:
            if _fails(rule, first + n, kind):
                filling.play(first + n, filling.INDEXES[kind])
                return n + 1
    return None


def _fails(rule: str, seed: int, kind: str) -> bool:
    with without(rule):
        try:
            filling.play(seed, filling.INDEXES[kind])
        except (AssertionError, ExceptionGroup):
            return True
    return False


if __name__ == "__main__":
    start = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    many = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    for rule in RULES:
        seeds = seeds_until_noticed(rule, start, many)
        print(f"{rule}: noticed by seed number {seeds}", flush=True)  # noqa: T201
