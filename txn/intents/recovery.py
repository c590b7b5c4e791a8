"""Ends a parallel commit whose coordinator does not: asks for its intents, then settles its record.

By anybody who met an intent of it and got STAGING with the keys of all parts, as often and by
as many at once as there are: kv.mvcc.recover has the argument why all learn the same. Sent by the
keys, not by the parts: partitions may have been split since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kv.base.errors import Moved, Unavailable
from kv.base.methods import PENDING, RECOVER, SETTLE
from kv.client.calls import NO_PARTITION
from txn.shared.grouping import by_partition
from txn.shared.ports import Kv

_ROUNDS_MAX: Final = 4  # of regrouping keys that moved meanwhile


async def recover(
    kv: Kv,
    start_ts: int,
    anchor: bytes,
    parts: Sequence[Sequence[bytes]],
    *,
    fence: bool,
    budget_ms: int,
    dropped: Callable[[bytes], Awaitable[bool]],
    user: str = "",
) -> tuple[int, int]:
    """(COMMITTED | ABORTED, commit_ts), as the record says now; (PENDING, 0) if it is not decided:
    its coordinator lives, or (without `fence`) an intent is missing, or its keys kept moving.

    `fence`: forbid what is missing, so that there is an outcome. `budget_ms` for each message.
    `dropped`: whether the table of a key certainly was dropped: such a key counts as missing, for
    what was decided by it was decided before the drop (kvorum/storage/drop_transactions.py). Raises
    what they raise. `user`: whose it is.
    """
    more = (user,) if user else ()
    keys = [key for part in parts for key in part]
    todo: list[int] = list(range(len(keys)))
    bound, whole = 0, True

    async def ask(group: Sequence[int]) -> tuple[bool, int] | Moved:
        part = [keys[i] for i in group]
        try:
            there, low = await kv.call(
                RECOVER, part[0], start_ts, anchor, part, fence, *more, budget_ms=budget_ms
            )
        except Moved as moved:
            return moved
        except Unavailable as error:
            await _check_dropped(dropped, part[:1], error)
            return False, 0
        return bool(there), int(low)

    for _ in range(_ROUNDS_MAX):
        unknown: list[int] = []
        groups = await by_partition(kv, keys, todo, unknown)
        if unknown:
            nowhere = Unavailable(
                f"no node knows a partition of {keys[unknown[0]][:32]!r}, which transaction "
                f"{start_ts} wrote; trying again",
                code=NO_PARTITION,
            )
            await _check_dropped(dropped, [keys[i] for i in unknown], nowhere)
            whole = False
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


async def _check_dropped(
    dropped: Callable[[bytes], Awaitable[bool]], keys: Sequence[bytes], error: Unavailable
) -> None:
    """Raises `error` unless it says that no node knows these keys and their tables are gone."""
    if error.code != NO_PARTITION:
        raise error
    for key in keys:
        if not await dropped(key):
            raise error
