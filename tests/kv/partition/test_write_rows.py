"""WRITE_ROWS on a node: refused when malformed, one entry, behind whoever holds a key."""

from __future__ import annotations

from typing import Any

import pytest

from kv.base import limits
from kv.base.errors import ConditionFailed, InvalidArgument, Moved, TooLarge
from kv.base.methods import BLIND, COMMIT, PREWRITE, RESOLVE, WRITE_ROWS
from kv.base.ops import put
from tests.kv.partition.node import Node
from tests.kv.partition.test_chunk_intents import k

BAD: list[tuple[list[Any], type[Exception]]] = [
    ([[], [], 0, 0], InvalidArgument),
    ([[k("k")], [], 0, 0], InvalidArgument),
    ([(k("k"),), [b"v"], 0, 0], InvalidArgument),
    ([[k("k"), "m"], [b"v", b"v"], 0, 0], InvalidArgument),
    ([[k("k")], [None], 0, 0], InvalidArgument),
    ([[k("k"), k("j")], [b"v", b"v"], 0, 0], InvalidArgument),
    ([[k("k"), k("k")], [b"v", b"v"], 0, 0], InvalidArgument),
    ([[k("k")], [b"v"], -1, 0], InvalidArgument),
    ([[k("k")], [b"v"], 0, "x"], InvalidArgument),
    ([[k("k")], [b"v"], 0, 0, {"absent": 1}], InvalidArgument),
    ([[k("k")], [b"v"], 5, 0, {"reads": [k("a")]}], InvalidArgument),
    ([[b"k"], [b"v"], 0, 0], InvalidArgument),
    ([[k("k" * 4097)], [b"v"], 0, 0], TooLarge),
    ([[k("k")], [b"x" * (limits.VALUE_BYTES_MAX + 1)], 0, 0], TooLarge),
    (
        [
            [k(f"{i:05d}") for i in range(limits.BATCH_OPS_MAX + 1)],
            [b"v"] * (limits.BATCH_OPS_MAX + 1),
            0,
            0,
        ],
        TooLarge,
    ),
    ([[k(f"{i:05d}") for i in range(17)], [b"x" * limits.MiB] * 17, 0, 0], TooLarge),
]


@pytest.mark.parametrize(("args", "kind"), BAD)
def test_b7_malformed_rows_are_refused(args: list[Any], kind: type[Exception]) -> None:
    """Malformed rows reach the log, or end the node."""
    node = Node()
    assert isinstance(node.error(node.send(WRITE_ROWS, k("k"), *args)), kind)
    assert node.get(k("k")) == (None, 0)


def test_b7_rows_outside_the_partition_move() -> None:
    """Rows are written beyond the border of their partition."""
    node = Node((k("m"),))
    args = [[k("k"), k("n")], [b"v", b"v"], 0, 0]
    assert isinstance(node.error(node.send(WRITE_ROWS, k("k"), *args)), Moved)


def test_b7_rows_see_what_is_in_flight() -> None:
    """Two batches of new rows race in one entry, and both win."""
    node = Node(sync_s=0.01)
    keys = [k(f"{i:04d}") for i in range(300)]
    args = (keys, [b"1"] * 300, 0, 0, {"absent": True})
    first, second = node.send(WRITE_ROWS, keys[0], *args), node.send(WRITE_ROWS, keys[0], *args)
    (version,) = node.reply(first)
    assert isinstance(node.error(second), ConditionFailed)
    again = node.send(WRITE_ROWS, keys[7], keys[7:9], [b"2", b"2"], 0, 0)
    assert node.reply(again)[0] > version
    assert [node.get(key)[0] for key in keys[6:10]] == [b"1", b"2", b"2", b"1"]
    assert node.get(keys[8], at=version) == (b"1", version), "what was replaced is still there"


def test_b7_rows_wait_for_an_intent() -> None:
    """Rows that meet a transaction are refused at once, or written past it."""
    node = Node()
    held, start = k("0003"), node.oracle(1)
    node.call(PREWRITE, held, start, held, 1_000, [list(put(held, b"x"))], BLIND)
    keys = [k(f"{i:04d}") for i in range(8)]
    rid = node.send(WRITE_ROWS, keys[0], keys, [b"v"] * 8, 0, 0)
    commit_ts = node.oracle(1)
    node.call(COMMIT, held, held, start, commit_ts)
    node.call(RESOLVE, held, start, commit_ts, [held])
    (version,) = node.reply(rid)
    assert version > commit_ts
    assert [node.get(key) for key in keys] == [(b"v", version)] * 8


@pytest.mark.parametrize("seed", range(4))
def test_b7_rows_after_a_power_loss(seed: int) -> None:
    """Rows that were acknowledged are lost, or half of a batch is kept."""
    node = Node(sync_s=0.003)
    keys = [k(f"{i:04d}") for i in range(500)]
    version = node.call(WRITE_ROWS, keys[0], keys, [b"v"] * 500, node.oracle(1), 0)[0]
    after = node.crash(seed)
    assert [after.get(key) for key in keys] == [(b"v", version)] * 500


@pytest.mark.parametrize("there", [0, 150, 299, None])
def test_b7_a_row_among_many_new_ones_is_found(there: int | None) -> None:
    """One seek says that nothing lies between many keys; a row at either end, or beside them, would
    be passed over.
    """
    node = Node(sync_s=0.01)
    keys = [k(f"{i:04d}") for i in range(300)]
    for other in (k("!"), keys[-1] + b"!") if there is None else (keys[there],):
        node.reply(node.send(WRITE_ROWS, other, [other], [b"0"], 0, 0))
    done = node.send(WRITE_ROWS, keys[0], keys, [b"1"] * 300, 0, 0, {"absent": True})
    if there is None:
        node.reply(done)
        assert node.get(keys[299])[0] == b"1"
    else:
        error = node.error(done)
        assert isinstance(error, ConditionFailed)
        assert error.details["key"] == keys[there]
