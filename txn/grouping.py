"""Which partitions serve a set of keys, by walking the location cache in key order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Unavailable
from kv.client.calls import NO_PARTITION
from txn.ports import Kv


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
    if len(groups) == 1 and not unknown:
        return [wanted]
    return sorted((sorted(group) for group in groups.values()), key=lambda group: group[0])
