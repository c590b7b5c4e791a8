"""How the writes of a transaction are cut into messages of a legal size: one rule for all of them.

A message takes PREWRITE_KEYS_MAX rows and PREWRITE_BYTES_MAX bytes of keys and values, whichever
comes first, and at least one row, so that what is legal alone never waits for ever. Cutting keeps
the order. It works on a stream: what is cut is never in memory as a whole, only one run of it.

Users: the commit core (`parts`, by index), bulk transactions (`row_runs`, rising rows), and the
commit of spilled writes (`runs`, txn/bulk/spilled_commit.py). Participants enforce the same limits
(kv/partition/requests). Left out here: the ends of commits have limits of their own
(txn/commit/finishing.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import add, lt
from typing import Final, TypeAlias, TypeVar, cast

from kv.base.limits import BATCH_BYTES_MAX, BATCH_OPS_MAX, PREWRITE_BYTES_MAX, PREWRITE_KEYS_MAX
from kv.base.methods import OP_PUT, OP_READ
from kv.base.ops import Op

T = TypeVar("T")
Bytes: TypeAlias = Sequence[bytes]
Indexes: TypeAlias = tuple[int, ...]
"""Of a transaction's ops, in its order."""

FEW_OPS: Final = 64  # a commit of more is looked at: rows (`as_rows`), or to be weighed and cut


def op_bytes(op: Op) -> int:
    """What an op counts as."""
    return len(op.key) + (len(op.value) if op.value is not None else 0)


def runs(items: Iterable[T], bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    """`items` cut into messages, each as long as the limits allow."""
    run: list[T] = []
    size = 0
    for item in items:
        more = bytes_of(item)
        if run and (len(run) >= PREWRITE_KEYS_MAX or size + more > PREWRITE_BYTES_MAX):
            yield run
            run, size = [], 0
        run.append(item)
        size += more
    if run:
        yield run


def parts(ops: Sequence[Op], group: Sequence[int]) -> list[Indexes]:
    """`group`, indexes of `ops`, cut into messages."""
    return [tuple(run) for run in runs(group, lambda index: op_bytes(ops[index]))]


def row_runs(
    keys: Sequence[bytes], values: Sequence[bytes | None]
) -> list[tuple[Sequence[bytes], Sequence[bytes | None]]]:
    """Rows cut into messages, as `runs` cuts. Nothing is done row by row in Python: a bulk load has
    millions.
    """
    count = len(keys)
    sizes = map(len, [value or b"" for value in values] if None in values else cast(Bytes, values))
    ends = list(accumulate(map(add, map(len, keys), sizes)))
    if count <= 1 or (count <= PREWRITE_KEYS_MAX and ends[-1] <= PREWRITE_BYTES_MAX):
        return [(keys, values)]
    cut = []
    low = 0
    while low < count:
        before = ends[low - 1] if low else 0
        most = min(low + PREWRITE_KEYS_MAX, count)
        high = max(low + 1, bisect_right(ends, before + PREWRITE_BYTES_MAX, low, most))
        cut.append((keys[low:high], values[low:high]))
        low = high
    return cut


def as_rows(ops: Sequence[Op]) -> tuple[list[bytes], list[bytes], bool] | None:
    """Keys, values and whether they must be absent, if these are puts alike, in the order of their
    keys, and fit one entry: WRITE_ROWS takes them.
    """
    kinds, keys, values, conds, ttls = zip(*ops, strict=True)
    if set(kinds) != {OP_PUT} or set(ttls) != {0} or set(conds) not in ({0}, {None}):
        return None
    if not (rises(keys) and rows_fit(keys, values)):
        return None
    return list(keys), list(values), conds[0] == 0


def rises(keys: Sequence[bytes]) -> bool:
    """Whether each key is above the one before."""
    return all(map(lt, keys, islice(keys, 1, None)))


def rows_fit(keys: Sequence[bytes], values: Sequence[bytes]) -> bool:
    """`fits_one_entry` of puts."""
    if len(keys) > BATCH_OPS_MAX:
        return False
    return sum(map(len, keys)) + sum(map(len, values)) <= BATCH_BYTES_MAX


def fits_one_entry(ops: Sequence[Op]) -> bool:
    """Whether one request, and so one log entry, may hold them all (WRITE)."""
    if ops[-1].kind == OP_READ and sum(op.kind == OP_READ for op in ops) > PREWRITE_KEYS_MAX:
        return False
    if len(ops) > BATCH_OPS_MAX:
        return False
    return sum([len(op.key) + len(op.value or b"") for op in ops]) <= BATCH_BYTES_MAX
