"""kvorum.cluster.dispensable: whether the others can do without what a node stores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from kv.base.ids import META_PARTITION
from kv.base.limits import BALANCE_LAG_MAX
from kvorum.cluster.dispensable import Whole, needed_by, whole
from kvorum.cluster.replica_status import Standing
from tests.kvorum.cluster.three import READY_S, trio

OWN = 1
HERE = Standing(
    id=7,
    epoch=1,
    role="follower",
    term=1,
    leader=2,
    asleep=False,
    applied=1000,
    commit=1000,
    last=1000,
    first=1,
    log_bytes=0,
    voters=(1, 2, 3),
    learners=(),
    witnesses=(),
    followers=(),
    size=0,
    entries=1000,
)


def others(*nodes: int, mine: Standing = HERE) -> dict[int, Whole]:
    return {node: {mine.id: mine} for node in nodes}


def test_a_node_that_nobody_needs_may_begin_anew() -> None:
    """A cluster that is well would have a node stopped for each flipped byte."""
    assert needed_by(OWN, [HERE], others(2, 3)) is None
    late = replace(HERE, applied=HERE.commit - BALANCE_LAG_MAX)
    assert needed_by(OWN, [HERE], others(2) | others(3, mine=late)) is None
    leaving = replace(HERE, id=8, voters=(2, 3, 4), learners=(OWN,))
    assert needed_by(OWN, [HERE, leaving], others(2, 3)) is None, "it has no vote there"
    witnessed = replace(HERE, witnesses=(3,))
    kept = replace(witnessed, applied=0)
    assert needed_by(OWN, [witnessed], others(2) | others(3, mine=kept)) is None


@pytest.mark.parametrize(
    ("mine", "elsewhere", "told"),
    [
        (HERE, others(2), "node 3 does not answer, or has no whole copy of partition 7"),
        (HERE, others(2) | {3: {}}, "node 3 does not answer, or has no whole copy"),
        (HERE, others(2) | others(3, mine=replace(HERE, applied=5)), "node 3 lacks 995 entries"),
        (replace(HERE, voters=(1,)), others(2, 3), "the only copy of partition 7 is here"),
        (replace(HERE, voters=(1, 2), learners=(3,)), others(2, 3), "no majority without"),
        (replace(HERE, witnesses=(2, 3)), others(2, 3), "the only copy of partition 7 is here"),
    ],
)
def test_what_others_need_is_kept(mine: Standing, elsewhere: dict[int, Whole], told: str) -> None:
    """The same damage at three nodes within minutes, and each puts its copy aside: nothing serves
    any more; or the only copy of a table goes without that anybody has decided it.
    """
    fine = replace(HERE, id=6)
    elsewhere = {node: {6: fine, **there} for node, there in elsewhere.items()} | {
        node: {6: fine} for node in (2, 3) if node not in elsewhere
    }
    assert told in (needed_by(OWN, [fine, mine], elsewhere) or "")


def test_what_is_damaged_elsewhere_is_no_copy() -> None:
    """A replica that waits to be rebuilt was counted as whole."""
    rows: Iterable[Standing] = (HERE, replace(HERE, id=8))
    told = {"replicas": [one.to_wire() for one in rows], "damaged": [7]}
    assert set(whole(told)) == {8}
    del told["damaged"]  # of a node before it said so
    assert set(whole(told)) == {7, 8}


async def test_nodes_ask_each_other() -> None:
    """A node that has failed, too, or whose replica is lost, said that it has everything."""
    async with trio() as cluster:
        first, second, third = (cluster.nodes[number].store for number in (1, 2, 3))
        async with asyncio.timeout(READY_S):
            while await first.needed() is not None:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)
        second.failed = True
        assert "node 2 does not answer" in (await first.needed() or "")
        second.failed = False
        assert await first.needed() is None
        meta = third.manager.replica(META_PARTITION)
        assert meta is not None
        meta.stop()
        third.manager.lose(meta.descriptor, "flipped")
        assert f"node 3 does not answer, or has no whole copy of partition {META_PARTITION}" in (
            await first.needed() or ""
        )
