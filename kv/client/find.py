"""Which key a transaction's record lies under, over all nodes.

A node that finds the record in its data is right, whether it leads or not: the record's partition
is asked next, at its leader, for what became of it. That there is none is known only when every
partition was asked at its leader. A node that missed the making of a partition does not name it,
so a majority of the nodes must have answered: each partition is at a majority, but for those of
tables that want fewer replicas, which the leader of the meta partition names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kv.base.errors import DeadlineExceeded, TryLater
from kv.base.limits import REROUTE_WAIT_MS_MAX, RETRY_WAIT_MS_FIRST
from kv.base.methods import FIND_TXN
from kv.base.node_methods import NodesAt
from kv.base.wire_row import WireRow

_ANSWER_MS_MAX: Final = 2_000  # a node that needs longer is asked again


async def find_txn(
    kv: NodesAt, start_ts: int, monotonic: Callable[[], float], budget_ms: int
) -> bytes | None:
    """See KvClient.find_txn."""
    deadline = monotonic() + budget_ms / 1000
    pause_ms = RETRY_WAIT_MS_FIRST
    while True:
        left_ms = max(1, int((deadline - monotonic()) * 1000))
        first = await kv.call_node(FIND_TXN, start_ts, budget_ms=left_ms)
        found, unled = await _everywhere(kv, start_ts, first, min(left_ms, _ANSWER_MS_MAX))
        if found is not None or not unled:
            return found
        if monotonic() + pause_ms / 1000 >= deadline:
            raise DeadlineExceeded(
                f"not every node could be asked about transaction {start_ts}: {unled}; ask again"
            )
        await asyncio.sleep(pause_ms / 1000)
        pause_ms = min(2 * pause_ms, REROUTE_WAIT_MS_MAX)


def _placed(answer: WireRow) -> list[int]:
    """The partitions that may be at few nodes, if the leader of the meta partition says so."""
    return answer[4] if len(answer) > 4 else []


async def _everywhere(
    kv: NodesAt, start_ts: int, first: WireRow, budget_ms: int
) -> tuple[bytes | None, str]:
    """The anchor, and why the answer is not complete ("" = it is). `first` is the first node's."""
    anchor, _, others, nodes, *_ = first
    if anchor is not None or (not others and not nodes):
        return anchor, ""

    async def ask(address: tuple[str, int]) -> WireRow | None:
        try:
            return await kv.call_at(address, FIND_TXN, start_ts, budget_ms=budget_ms)
        except TryLater:
            return None

    asked = await asyncio.gather(*(ask((host, port)) for host, port in nodes))
    answers = [first, *(answer for answer in asked if answer is not None)]
    for answer in answers:
        if answer[0] is not None:
            return answer[0], ""
    missing = {id for answer in answers for id in (*answer[2], *_placed(answer))}
    missing -= {id for answer in answers for id in answer[1]}
    if missing:
        return None, f"partition {min(missing)} has no leader that answers"
    if 2 * len(answers) <= len(nodes) + 1:
        return None, f"{len(answers)} of {len(nodes) + 1} nodes answer"
    return None, ""
