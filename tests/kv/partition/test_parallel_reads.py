"""Reads beside the intents of a parallel commit that are on their way to the log (D13)."""

from __future__ import annotations

from typing import Any

import pytest

from kv.base import methods
from kv.base.methods import STAGING
from tests.kv.partition.node import Node
from tests.kv.partition.test_machine import in_flight, put_op

KEY, OTHER = b"tab.k", b"tab.z"


def stage(node: Node, start_ts: int, **more: Any) -> int:
    """A prewrite of a parallel commit of KEY and OTHER, its anchor KEY; the rid."""
    options = {"fence": True, "stage": [[KEY], [OTHER]], **more}
    ops = [put_op(KEY, b"new")]
    return node.send(methods.PREWRITE, KEY, start_ts, KEY, 5000, ops, 0, options)


def test_d13_read_above_the_bound_waits_for_the_intent_in_flight() -> None:
    """The transaction commits at its bound as soon as it is durable; a reader above it that was
    answered before would have missed it.
    """
    node = Node()
    old = node.put(KEY, b"old")
    start_ts = node.oracle(1)
    below = node.oracle(1)
    rid = stage(node, start_ts)
    in_flight(node)
    above = node.oracle(1)
    early = node.send(methods.GET, KEY, KEY, below, None)
    get = node.send(methods.GET, KEY, KEY, above, None)
    mget = node.send(methods.MGET, KEY, [b"tab.a", KEY], above, None)
    scan = node.send(methods.SCAN, KEY, b"tab.a", b"tab.z", above, 10, False, None)
    elsewhere = node.send(methods.GET, OTHER, OTHER, above, None)
    assert node.reply(early) == [b"old", old], "its snapshot is older than the bound"
    assert node.reply(elsewhere) == [None, 0]
    assert not {rid, get, mget, scan} & set(node.conn.rows)
    bound, exact = node.reply(rid)
    assert exact
    assert below < bound < above
    assert [node.error(r).code for r in (get, mget, scan)] == ["KEY_LOCKED"] * 3
    again = node.send(methods.GET, KEY, KEY, bound - 1, None)
    assert node.reply(again) == [b"old", old], "nor does it ask for a transaction above it"


def test_d13_bound_is_above_every_read_that_was_served() -> None:
    """With a timestamp that was fetched before, a later reader has seen the old value already."""
    node = Node()
    node.put(KEY, b"old")
    start_ts, read_ts = node.oracle(1), node.oracle(1)
    assert node.reply(node.send(methods.GET, KEY, KEY, read_ts, None))[0] == b"old"
    bound, exact = node.reply(stage(node, start_ts))
    assert exact
    assert bound > read_ts


def test_d13_bound_is_not_raised_when_the_intent_is_applied() -> None:
    """Those who recover it from the intent would commit below what the coordinator was told."""
    node = Node()
    start_ts = node.oracle(1)
    rid = stage(node, start_ts)
    in_flight(node)
    high = node.oracle(1)
    assert node.reply(node.send(methods.GET, OTHER, OTHER, high, None)) == [None, 0]
    bound, _ = node.reply(rid)
    assert bound < high
    assert node.machine().view.lock(KEY).min_commit_ts == bound  # type: ignore[union-attr]
    assert node.reply(stage(node, start_ts)) == [bound, True], "sent again"


def test_d13_restart_keeps_stage_bound_and_fence() -> None:
    """After a power loss nobody could tell a committed transaction from a half one."""
    node = Node()
    start_ts = node.oracle(1)
    bound, _ = node.reply(stage(node, start_ts))
    args = (start_ts, KEY, [OTHER], True)
    assert node.reply(node.send(methods.RECOVER, OTHER, *args)) == [False, 0]
    node = node.crash()
    told = node.reply(node.send(methods.CHECK, KEY, KEY, start_ts, 0, 5000))
    assert told[0] == STAGING
    assert [list(map(bytes, part)) for part in told[5]] == [[KEY], [OTHER]]
    whole = node.send(methods.RECOVER, KEY, start_ts, KEY, [KEY], False)
    assert node.reply(whole) == [True, bound]
    late = [put_op(OTHER, b"late")]
    rid = node.send(methods.PREWRITE, OTHER, start_ts, KEY, 5000, late, 0, {"fence": True})
    assert node.error(rid).code == "TXN_ABORTED"
    assert node.manager.find_txn(start_ts) == KEY, "the fence is not its record"


@pytest.mark.parametrize(
    "options",
    [
        {"stage": []},
        {"stage": [[]]},
        {"stage": [b"tab.k"]},
        {"stage": [[KEY], [OTHER, KEY]]},
        {"stage": [["text"]]},
        {"stage": [[b"k"] * 257]},
        {"stage": [[b"k"]] * 17},
        {"fence": False},
        {"own": 1},
        {"beside": []},
        {"beside": [KEY]},
        {"beside": [[KEY, 0]]},
        {"beside": [["text", 5]]},
        {"beside": [[KEY, 5], [KEY, 5]]},
    ],
    ids=str,
)
def test_d13_bad_options_change_nothing(options: dict[str, Any]) -> None:
    """A stage that nobody can recover would leave a transaction without an end."""
    node = Node()
    rid = stage(node, node.oracle(1), **options)
    assert node.error(rid).code in ("INVALID_ARGUMENT", "TOO_LARGE")
    assert node.machine().view.lock(KEY) is None
