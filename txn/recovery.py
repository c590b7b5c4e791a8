"""Ends a parallel commit whose coordinator does not: asks for its intents, then settles its record.

By anybody who met an intent of it and was told STAGING with the keys of all parts, as often and by
as many at once as there are: kv.mvcc.recover has the argument why all learn the same. Sent by the
keys, not by the parts: partitions may have been split since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kv.base.errors import Moved
from kv.base.methods import PENDING, RECOVER, SETTLE
from txn.grouping import by_partition
from txn.ports import Kv

_ROUNDS_MAX: Final = 4  # of regrouping keys that moved meanwhile


async def recover(
    kv: Kv,
    start_ts: int,
    anchor: bytes,
    parts: Sequence[Sequence[bytes]],
    *,
    fence: bool,
    budget_ms: int,
) -> tuple[int, int]:
    """(COMMITTED | ABORTED, commit_ts), as the record says now; (PENDING, 0) if it is not decided:
    its coordinator lives, or (without `fence`) an intent is missing, or its keys kept moving.

    `fence`: forbid what is missing, so that there is an outcome. `budget_ms` for each message.
    Raises what they raise.
    """
    keys = [key for part in parts for key in part]
    todo: list[int] = list(range(len(keys)))
    bound, whole = 0, True

    async def ask(group: Sequence[int]) -> tuple[bool, int] | Moved:
        part = [keys[i] for i in group]
        try:
            there, low = await kv.call(
                RECOVER, part[0], start_ts, anchor, part, fence, budget_ms=budget_ms
            )
        except Moved as moved:
            return moved
        return bool(there), int(low)

    for _ in range(_ROUNDS_MAX):
        groups = await by_partition(kv, keys, todo)
        answers = await asyncio.gather(*map(ask, groups), return_exceptions=True)
        todo = []
        for group, answer in zip(groups, answers, strict=True):
            if isinstance(answer, Moved):
                todo += group
            elif isinstance(answer, BaseException):
                raise answer
            else:
                whole, bound = whole and answer[0], max(bound, answer[1])
        if not todo or not whole:
            break
    if (todo and whole) or not (whole or fence):
        return PENDING, 0
    status, commit_ts = await kv.call(
        SETTLE, anchor, anchor, start_ts, bound if whole else 0, budget_ms=budget_ms
    )
    return int(status), int(commit_ts)
