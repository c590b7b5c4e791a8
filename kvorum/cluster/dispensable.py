"""Whether the other nodes can do without the replicas of this one: asked before it begins anew
without them (kvorum/programs/process.py).

They can if of every partition in which it votes the other voters answer, have whole copies, and are
a majority without it. Nothing less is enough: several nodes may meet the same damage within
minutes, and each would put its copy aside before the one before it has its own again. A node that
is about to begin anew itself has nothing whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from kv.base.errors import KvorumError
from kv.base.limits import BALANCE_LAG_MAX
from kv.base.node_methods import NodesById
from kvorum.api.verbs import STANDING
from kvorum.cluster.replica_status import Standing
from procedures.engine.plain_data import Plain

_ASK_MS: Final = 1_500

Whole = Mapping[int, Standing]
"""By partition: the replicas of a node that are not damaged."""


async def needed(calls: NodesById, own: int, here: Iterable[Standing]) -> str | None:
    """Why others need what is here; None: they do not."""
    mine = list(here)
    nodes = sorted({node for standing in mine for node in standing.voters} - {own})
    answers = await asyncio.gather(*(_whole_at(calls, node) for node in nodes))
    return needed_by(own, mine, dict(zip(nodes, answers, strict=True)))


async def _whole_at(calls: NodesById, node: int) -> Whole:
    try:
        (map_,) = await calls.call_at(node, STANDING, budget_ms=_ASK_MS)
    except KvorumError:
        return {}
    return whole(map_)


def whole(map_: Plain) -> Whole:
    """Of what a node answers."""
    standings = map(Standing.from_wire, map_["replicas"])
    return {s.id: s for s in standings if s.id not in map_.get("damaged", ())}


def needed_by(own: int, here: Iterable[Standing], others: Mapping[int, Whole]) -> str | None:
    """As `needed`, from what the others have said."""
    for mine in here:
        if own not in mine.voters:
            continue
        elsewhere = [node for node in mine.voters if node != own]
        if not set(elsewhere) - set(mine.witnesses):
            return f"the only copy of partition {mine.id} is here"
        if 2 * len(elsewhere) <= len(mine.voters):
            return f"partition {mine.id} has no majority without this node"
        for node in elsewhere:
            copy = others.get(node, {}).get(mine.id)
            if copy is None:
                return f"node {node} does not answer, or has no whole copy of partition {mine.id}"
            behind = mine.commit - copy.applied
            if node not in mine.witnesses and behind > BALANCE_LAG_MAX:
                return f"node {node} lacks {behind} entries of partition {mine.id}"
    return None
