"""One write of a batch, a transaction or a prewrite; travels as the msgpack list of its fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import NamedTuple, cast

from kv.base.methods import OP_CHECK, OP_DELETE, OP_PUT, OP_TOMBSTONE


class Op(NamedTuple):
    """`cond`: None = none, 0 = the key must be absent, else the version that it must have now."""

    kind: int  # OP_PUT, OP_DELETE, OP_TOMBSTONE, OP_CHECK
    key: bytes  # storage key, with the table prefix
    value: bytes | None = None
    cond: int | None = None
    ttl_ms: int = 0  # 0 = for ever; counted from the commit timestamp


def put(key: bytes, value: bytes, cond: int | None = None, ttl_ms: int = 0) -> Op:
    return Op(OP_PUT, key, value, cond, ttl_ms)


def puts(
    keys: Iterable[bytes], values: Iterable[bytes], cond: int | Iterable[int | None] | None = None
) -> Iterator[Op]:
    """`put` of many; `cond`: of all of them, or of each."""
    return _many(OP_PUT, keys, values, cond)


def deletes(
    keys: Iterable[bytes],
    cond: int | Iterable[int | None] | None = None,
    *,
    tombstone: bool = False,
) -> Iterator[Op]:
    """`delete` of many; `cond`: of all of them, or of each."""
    return _many(OP_TOMBSTONE if tombstone else OP_DELETE, keys, repeat(None), cond)


def _many(
    kind: int,
    keys: Iterable[bytes],
    values: Iterable[bytes | None],
    cond: int | Iterable[int | None] | None,
) -> Iterator[Op]:
    """A named tuple's constructor is Python's, this one is C's."""
    conds: Iterable[int | None] = repeat(cond) if cond is None or isinstance(cond, int) else cond
    rows = zip(repeat(kind), keys, values, conds, repeat(0))
    return cast(Iterator[Op], map(partial(tuple.__new__, Op), rows))


def delete(key: bytes, cond: int | None = None, *, tombstone: bool = False) -> Op:
    """`tombstone`: leave one even where nothing is."""
    return Op(OP_TOMBSTONE if tombstone else OP_DELETE, key, None, cond, 0)


def check(key: bytes, cond: int) -> Op:
    return Op(OP_CHECK, key, None, cond, 0)
