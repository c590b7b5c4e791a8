"""INGEST on a node: refused when malformed, in the order of the log, read as any version."""

from __future__ import annotations

from typing import Any

import pytest

from kv.base import limits, methods
from kv.base.errors import ConditionFailed, InvalidArgument, KeyLocked, Moved, TooLarge
from kv.base.methods import BLIND, COMMIT, INGEST, PREWRITE, RESOLVE, WRITE
from kv.base.ops import delete, put
from tests.kv.partition.node import Node
from tests.kv.partition.test_chunk_intents import k
from tests.kv.partition.test_timestamps_later import drain, far_node

BAD: list[tuple[list[Any], type[Exception]]] = [
    ([[], [], 5, False], InvalidArgument),
    ([[k("k")], [], 5, False], InvalidArgument),
    ([[k("k")], [None], 5, False], InvalidArgument),
    ([[k("k"), k("j")], [b"v", b"v"], 5, False], InvalidArgument),
    ([[k("k")], [b"v"], 0, False], InvalidArgument),
    ([[k("k")], [b"v"], 5, 1], InvalidArgument),
    ([[b"k"], [b"v"], 5, False], InvalidArgument),
    ([[k("k" * 4097)], [b"v"], 5, False], TooLarge),
    ([[k("k")], [b"x" * (limits.VALUE_BYTES_MAX + 1)], 5, False], TooLarge),
]


@pytest.mark.parametrize(("args", "kind"), BAD)
def test_q4_malformed_entries_are_refused(args: list[Any], kind: type[Exception]) -> None:
    """Malformed entries reach the log, or end the node."""
    node = Node()
    assert isinstance(node.error(node.send(INGEST, k("k"), *args)), kind)
    assert node.get(k("k")) == (None, 0)


def test_q4_entries_outside_the_partition_move() -> None:
    """Entries are written beyond the border of their partition."""
    node = Node((k("m"),))
    args = [[k("k"), k("n")], [b"v", b"v"], node.oracle(1), False]
    assert isinstance(node.error(node.send(INGEST, k("k"), *args)), Moved)


def test_q4_entries_see_what_is_in_flight() -> None:
    """A writer's tombstone that is on its way to the disk would be passed over."""
    node = Node(sync_s=0.01)
    at = node.oracle(1)
    gone = node.send(WRITE, k("b"), [list(delete(k("b"), tombstone=True))], 0, 0)
    keys = [k("a"), k("b"), k("c")]
    first = node.send(INGEST, keys[0], keys, [b"1"] * 3, at, False)
    again = node.send(INGEST, keys[0], keys, [b"1"] * 3, at, False)
    assert node.reply(first) == [2]
    assert node.reply(again) == [0]
    assert [node.get(key) for key in keys] == [(b"1", at), (None, 0), (b"1", at)]
    assert node.reply(gone)[0] > at
    after = node.crash(1)
    assert [after.get(key) for key in keys] == [(b"1", at), (None, 0), (b"1", at)]


def test_q4_a_reader_waits_for_entries_in_flight() -> None:
    """It was asked for behind the snapshot, so it would have to find the entry later, too."""
    node = Node(sync_s=0.01)
    at = node.put(k("z"), b"")
    done = node.send(INGEST, k("a"), [k("a")], [b"1"], at, False)
    read = node.send(methods.GET, k("a"), k("a"), node.oracle(1), None)
    before = node.send(methods.GET, k("a"), k("a"), at - 1, None)
    assert node.reply(before) == [None, 0]
    assert node.reply(read) == [b"1", at]
    assert node.reply(done) == [1]


def test_q4_entries_of_a_transaction_are_not_waited_for_here() -> None:
    """Who holds an entry is asked by the client: it has no timestamp that it would wait with."""
    node = Node()
    start = node.oracle(1)
    ops = [list(delete(k("a"), tombstone=True))]
    node.call(PREWRITE, k("a"), start, k("a"), 1_000, ops, BLIND)
    at = node.oracle(1)
    refused = node.error(node.send(INGEST, k("a"), [k("a")], [b"1"], at, False))
    assert isinstance(refused, KeyLocked)
    assert "waited_ms" not in refused.details
    commit_ts = node.oracle(1)
    node.call(COMMIT, k("a"), k("a"), start, commit_ts)
    node.call(RESOLVE, k("a"), start, commit_ts, [k("a")])
    assert node.call(INGEST, k("a"), [k("a")], [b"1"], at, False) == [0]
    refused = node.error(node.send(INGEST, k("a"), [k("a")], [b"1"], at, True))
    assert isinstance(refused, ConditionFailed)


def test_q4_no_entry_comes_between_a_timestamp_and_its_write() -> None:
    """A write whose timestamp is on its way would lie below the entry that came meanwhile: versions
    of a key must rise.
    """
    node, remote = far_node()
    write = node.send(WRITE, k("a"), [list(put(k("a"), b"new"))], 0, 0)
    drain(node)
    first = remote.take()
    at = node.oracle(1)
    entry = node.send(INGEST, k("a"), [k("a")], [b"old"], at, False)
    node.timers.run(0.1)
    assert entry not in node.conn.rows
    remote.tell()
    assert node.reply(write) == [first]
    assert node.reply(entry) == [1]
    assert node.get(k("a")) == (b"old", at)
    assert node.get(k("a"), at=first) == (b"new", first)
