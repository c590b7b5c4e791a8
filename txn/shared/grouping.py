"""Which partitions serve a set of keys, by walking the location cache in key order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Unavailable
from kv.base.limits import (
    PARALLEL_KEY_BYTES_MAX,
    PARALLEL_PARTS_MAX,
    PREWRITE_BYTES_MAX,
    PREWRITE_KEYS_MAX,
    PREWRITES_IN_FLIGHT_MAX,
)
from kv.base.ops import Op
from kv.client.calls import NO_PARTITION
from kv.mvcc.records import Parts
from txn.shared.message_sizes import FEW_OPS, Indexes
from txn.shared.ports import Kv


async def by_partition(
    kv: Kv, keys: Sequence[bytes], indexes: Iterable[int], unknown: list[int] | None = None
) -> list[list[int]]:
    """`indexes` into `keys`, grouped by the partition that serves them now; each group keeps their
    order.

    The groups are in the order of their first index, so that the one with the anchor comes first.
    `unknown` gets those that no node knows a partition of (their table was dropped, or they are not
    made yet); without it, that is Unavailable (NO_PARTITION).
    """
    wanted = list(indexes)
    groups: dict[int, list[int]] = {}
    here: PartitionDescriptor | None = None
    located = getattr(kv, "located", None)  # what a KvClient knows already costs no coroutine
    if located is not None and _known(located, keys, wanted, groups):
        return _in_order(groups, wanted)
    groups.clear()
    for index in sorted(wanted, key=keys.__getitem__):
        key = keys[index]
        if here is None or not here.covers(key):
            try:
                here = await kv.locate(key)
            except Unavailable as error:
                if unknown is None or error.code != NO_PARTITION:
                    raise
                unknown.append(index)
                continue
        groups.setdefault(here.id, []).append(index)
    if unknown:
        return sorted(map(sorted, groups.values()))
    return _in_order(groups, wanted)


def _known(
    located: Callable[[bytes], PartitionDescriptor | None],
    keys: Sequence[bytes],
    wanted: Sequence[int],
    groups: dict[int, list[int]],
) -> bool:
    """Whether all of them are known; then `groups` has them."""
    here: PartitionDescriptor | None = None
    for index in wanted:
        key = keys[index]
        if here is None or not here.covers(key):
            here = located(key)
            if here is None:
                return False
            group = groups.setdefault(here.id, [])
        group.append(index)
    return True


def _in_order(groups: dict[int, list[int]], wanted: list[int]) -> list[list[int]]:
    return [wanted] if len(groups) == 1 else sorted(map(sorted, groups.values()))


async def end_of_part(kv: Kv, keys: Sequence[bytes], at: int) -> int:
    """The first of the rising keys, from `at` on, that the partition of `keys[at]` does not
    serve.
    """
    descriptor = await kv.locate(keys[at])
    return bisect_left(keys, descriptor.end, at) if descriptor.end else len(keys)


def few_parts(
    ops: Sequence[Op], located: Callable[[bytes], PartitionDescriptor | None]
) -> tuple[list[Indexes], Parts] | None:
    """What may be staged at once (CommitCore.start_staged): indexes and keys by partition, in the
    order of their first ones. None: not all is known, it is too much, or one partition has it all.
    """
    if len(ops) > FEW_OPS:
        return None
    groups: dict[int, list[int]] = {}
    keys: dict[int, list[bytes]] = {}
    here, key_bytes, size = None, 0, 0
    for i, op in enumerate(ops):
        key = op.key
        if here is None or not here.covers(key):
            here = located(key)
            if here is None:
                return None
        groups.setdefault(here.id, []).append(i)
        keys.setdefault(here.id, []).append(key)
        key_bytes += len(key)
        size += len(op.value or b"")
    if not 1 < len(groups) <= min(PARALLEL_PARTS_MAX, PREWRITES_IN_FLIGHT_MAX):
        return None
    if max(map(len, groups.values())) > PREWRITE_KEYS_MAX:
        return None
    if key_bytes > PARALLEL_KEY_BYTES_MAX or key_bytes + size > PREWRITE_BYTES_MAX:
        return None
    return list(map(tuple, groups.values())), tuple(map(tuple, keys.values()))
