"""Chunk intents on a node: refused when malformed, found again after a crash, read around."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgpack
import pytest

from kv.base import limits
from kv.base.errors import Corruption, InvalidArgument, KeyLocked, Moved, TooLarge
from kv.base.methods import BLIND, COMMIT, OP_PUT, PREWRITE, PREWRITE_ROWS, RESOLVE
from kv.base.ops import put
from kv.mvcc.records import Lock
from kv.mvcc.view import Mutations
from kv.partition.entry import Entry, decode, size_of
from kv.partition.locks import LockMirror
from tests.kit.each import each
from tests.kv.mvcc.store import packed
from tests.kv.partition.node import Node

TABLE = b"\x00\x00\x00\x64"
PACKED = False  # whether chunks are sent as packed rows
ANCHOR = TABLE + b"a"


def k(text: str) -> bytes:
    return TABLE + text.encode()


@pytest.fixture(autouse=True, params=[False, True], ids=["rows", "packed"])
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of rows, and of packed rows, are the same to everybody."""
    monkeypatch.setattr("tests.kv.partition.test_chunk_intents.PACKED", request.param)


def sent(keys: list[bytes], values: list[bytes | None]) -> list[Any]:
    """As PREWRITE_ROWS takes them."""
    if not PACKED:
        return [keys, values]
    packed_keys, packed_values = packed(keys, values, len(TABLE))
    return [packed_keys.sent(), packed_values]


def laid(node: Node, count: int = 10) -> tuple[int, list[bytes]]:
    """(start_ts, keys) of a transaction with an anchor and a chunk."""
    start, keys = node.oracle(1), [k(f"k{i:05d}") for i in range(count)]
    node.call(PREWRITE, ANCHOR, start, ANCHOR, 1_000, [list(put(ANCHOR, b""))], BLIND)
    node.call(PREWRITE_ROWS, keys[0], start, ANCHOR, 1_000, *sent(keys, [b"v"] * count))
    return start, keys


BAD: list[tuple[list[Any], type[Exception]]] = [
    ([0, ANCHOR, 1, [k("k")], [b"v"]], InvalidArgument),
    ([5, ANCHOR, 0, [k("k")], [b"v"]], InvalidArgument),
    ([5, "a", 1, [k("k")], [b"v"]], InvalidArgument),
    ([5, ANCHOR, 1, [], []], InvalidArgument),
    ([5, ANCHOR, 1, [k("k")], []], InvalidArgument),
    ([5, ANCHOR, 1, (k("k"),), [b"v"]], InvalidArgument),
    ([5, ANCHOR, 1, [k("k"), "m"], [b"v", b"v"]], InvalidArgument),
    ([5, ANCHOR, 1, [k("k")], ["v"]], InvalidArgument),
    ([5, ANCHOR, 1, [k("k"), k("j")], [b"v", b"v"]], InvalidArgument),
    ([5, ANCHOR, 1, [k("k"), k("k")], [b"v", b"v"]], InvalidArgument),
    ([5, ANCHOR, 1, [ANCHOR, k("k")], [b"v", b"v"]], InvalidArgument),
    ([5, ANCHOR, 1, [k("k" * 4097)], [b"v"]], TooLarge),
    ([5, ANCHOR, 1, [k("k")], [b"x" * (limits.VALUE_BYTES_MAX + 1)]], TooLarge),
    (
        [
            5,
            ANCHOR,
            1,
            [k(f"{i:05d}") for i in range(limits.PREWRITE_KEYS_MAX + 1)],
            [b"v"] * (limits.PREWRITE_KEYS_MAX + 1),
        ],
        TooLarge,
    ),
    ([5, ANCHOR, 1, [k(f"{i:05d}") for i in range(9)], [b"x" * limits.MiB] * 9], TooLarge),
]


@pytest.mark.parametrize(("args", "kind"), BAD)
def test_o6_malformed_chunks_are_refused(args: list[Any], kind: type[Exception]) -> None:
    """A malformed chunk locks something."""
    node = Node()
    error = node.error(node.send(PREWRITE_ROWS, k("k"), *args))
    assert isinstance(error, kind)
    assert node.locks() == {}


def broken(**wrong: Any) -> list[Any]:
    """Arguments of packed rows, of which one thing is wrong."""
    rows = ["1", "2", "3"]
    own = {"first": k("1"), "prefix": 4, "rows": 3, "last": k("3"), "start": 5, "anchor": ANCHOR}
    own |= {"keys": [one.encode() for one in rows], "values": [b"v", None, b""]} | wrong
    packed_keys = own["keys"] if isinstance(own["keys"], bytes) else msgpack.packb(own["keys"])
    packed_values = (
        own["values"] if isinstance(own["values"], bytes) else msgpack.packb(own["values"])
    )
    head = [own["first"], own["prefix"], own["rows"], packed_keys, own["last"]]
    return [own["start"], own["anchor"], 1, head, packed_values]


BROKEN: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"first": k("0")}, InvalidArgument),
    ({"first": TABLE[:3]}, InvalidArgument),
    ({"first": 7}, InvalidArgument),
    ({"last": k("2")}, InvalidArgument),
    ({"last": None}, InvalidArgument),
    ({"prefix": -1}, InvalidArgument),
    ({"prefix": 3}, InvalidArgument),
    ({"prefix": 9}, InvalidArgument),
    ({"rows": 2}, InvalidArgument),
    ({"rows": 0, "keys": [], "values": []}, InvalidArgument),
    ({"keys": [b"1", b"3", b"2"], "last": k("2")}, InvalidArgument),
    ({"keys": [b"1", b"1", b"3"]}, InvalidArgument),
    ({"keys": [b"1", "2", b"3"]}, InvalidArgument),
    ({"keys": b"\xc1"}, InvalidArgument),
    ({"keys": msgpack.packb([b"1", b"2", b"3"]) + b"x"}, InvalidArgument),
    ({"keys": msgpack.packb(3)}, InvalidArgument),
    ({"keys": {b"1": 1, b"2": 1, b"3": 1}}, InvalidArgument),
    ({"values": [b"v", None]}, InvalidArgument),
    ({"values": [b"v", None, "text"]}, InvalidArgument),
    ({"values": b""}, InvalidArgument),
    ({"values": [b"v", [], b""]}, InvalidArgument),
    ({"anchor": k("2")}, InvalidArgument),
    ({"start": 0}, InvalidArgument),
    ({"keys": [b"1", b"2", b"2" * 4097], "last": k("2" * 4097)}, TooLarge),
    ({"values": [b"v", b"x" * (limits.VALUE_BYTES_MAX + 1), b""]}, TooLarge),
    ({"values": [b"x" * limits.VALUE_BYTES_MAX] * 3}, TooLarge),
    (
        {
            "first": k("p" * 4_090 + "1"),
            "prefix": 4_094,
            "rows": 2_000,
            "last": k("p" * 4_090 + "999"),
            "keys": sorted(b"%d" % i for i in range(1, 2_001)),
            "values": [b"v" * 99] * 2_000,
        },
        TooLarge,
    ),
    (
        {
            "rows": 2_001,
            "keys": [b"%05d" % i for i in range(2_001)],
            "values": [b""] * 2_001,
            "first": k("00000"),
            "last": k("02000"),
        },
        TooLarge,
    ),
]


@each(("wrong", "kind"), BROKEN)
def test_o6_packed_rows_are_what_they_say(wrong: dict[str, Any], kind: type[Exception]) -> None:
    """Packed rows lock other keys than they say, or lie there and can never become versions."""
    node = Node()
    error = node.error(node.send(PREWRITE_ROWS, k("k"), *broken(**wrong)))
    assert type(error) is kind
    assert node.locks() == {}


def test_o6_packed_rows_that_are_right_are_taken() -> None:
    """The rows of the test above would be refused for something else."""
    node = Node()
    node.call(PREWRITE_ROWS, k("k"), *broken(start=node.oracle(1)))
    assert sorted(node.locks()) == [k("1"), k("2"), k("3")]


def test_o3_chunk_outside_the_partition() -> None:
    """A chunk reaches rows of another partition."""
    node = Node((k("m"),))
    args = [5, ANCHOR, 1, *sent([k("k"), k("n")], [b"v", b"v"])]
    assert isinstance(node.error(node.send(PREWRITE_ROWS, k("k"), *args)), Moved)


def test_o3_reads_and_writes_meet_a_chunk() -> None:
    """A read or a write passes a chunk intent, or a snapshot before it is held up."""
    node = Node()
    before = node.put(k("k00003"), b"old")
    _, keys = laid(node)
    assert isinstance(node.error(node.send(1, keys[3], keys[3], 0, None)), KeyLocked)
    assert isinstance(node.error(node.send(2, keys[3], keys[3], b"x", None, 0)), KeyLocked)
    assert node.get(keys[3], at=before) == (b"old", before)


@pytest.mark.parametrize("seed", range(8))
def test_o9_chunk_after_a_power_loss(seed: int) -> None:
    """After a crash an acknowledged chunk is not locked, or its rows are lost."""
    node = Node(sync_s=0.003)
    start, keys = laid(node, 300)
    after = node.crash(seed)
    assert after.locks().keys() >= set(keys)
    commit_ts = after.oracle(1)
    assert after.call(COMMIT, ANCHOR, ANCHOR, start, commit_ts)[0] == 2
    resolve = after.send(RESOLVE, keys[7], start, commit_ts, [keys[7]])
    if seed % 2:
        assert after.reply(resolve) == [300, 0]
    last = after.crash(seed + 1)
    last.call(RESOLVE, keys[7], start, commit_ts, [ANCHOR, keys[7]])
    assert [last.get(key) for key in keys] == [(b"v", commit_ts)] * 300
    assert last.locks() == {}


def test_o9_chunk_resolved_while_it_is_in_flight() -> None:
    """A resolution that overtakes the disk finds no values."""
    node = Node(sync_s=0.05)
    start, keys = node.oracle(1), [k(f"k{i}") for i in range(5)]
    commit_ts = node.oracle(1)
    rids = [
        node.send(PREWRITE, ANCHOR, start, ANCHOR, 1_000, [list(put(ANCHOR, b""))], BLIND),
        node.send(PREWRITE_ROWS, keys[0], start, ANCHOR, 1_000, keys, [b"v"] * 5),
        node.send(COMMIT, ANCHOR, ANCHOR, start, commit_ts),
        node.send(RESOLVE, keys[2], start, commit_ts, [keys[2]]),
    ]
    assert node.reply(rids[3]) == [5, 0]
    assert node.get(keys[4])[0] == b"v"


def test_o3_mirror_forgets_keys_that_nobody_scanned() -> None:
    """Keys of resolved intents stay in memory until somebody scans, which may be never."""
    mirror, lock = LockMirror(), Lock(1, 1, 1, ANCHOR, 0, None)
    for i in range(1_000):
        mirror.set(k(f"{i}"), lock)
    for i in range(1_000):
        mirror.set(k(f"{i}"), None)
    assert mirror._new == mirror._sorted == []
    mirror.set(ANCHOR, lock)  # one intent that stays
    for i in range(50_000):
        mirror.set(k(f"{i}"), lock)
        mirror.set(k(f"{i}"), None)
        assert len(mirror._new) + len(mirror._sorted) < 12_000
    assert list(mirror.range(b"", b"")) == [ANCHOR]


def test_o3_first_versions_in_columns_are_rows() -> None:
    """Many first versions at once count, weigh, log or store otherwise than one by one."""
    keys = [k(f"k{i:04d}") for i in range(100)]
    records = [b"%08d\x00v%d" % (i, i) for i in range(100)]
    columns, rows, mixed = Mutations(), Mutations(), Mutations()
    columns.versions(keys[50:], records[50:])
    columns.versions(keys[:50], records[:50])
    for m, some in ((rows, range(100)), (mixed, range(50))):
        for i in some:
            m.version((keys[i], records[i], None, None), 7)
    mixed.versions(keys[50:], records[50:])
    told = []
    for m in (columns, rows, mixed):
        m.drop_lock(k("a"))
        m.top_ts = 7
        entry = Entry(1)
        entry.add(m, size_of(m))
        state = Node().manager.replicas()[0].state
        batch = state.batch()
        state.fill(batch, entry.rows, entry.others, fresh=entry.all_fresh)
        state.engine.write(batch)
        stored = state.engine.scan("cur", TABLE, b"")
        assert len(stored) == 100
        told.append(
            (entry.seal(), entry.live_bytes, entry.old_versions, entry.size, entry.pending, stored)
        )
        assert entry.all_fresh == (m is columns)
    assert told[0] == told[1] == told[2]


def test_d3_an_entry_says_that_it_has_packed_intents() -> None:
    """A replica of an older program would end with words of nobody; one of this program would read
    an entry that it does not understand.
    """
    keys, m, entry = [k("k1"), k("k2")], Mutations(), Entry(1)
    lock = Lock(5, OP_PUT, 1_000, ANCHOR, 0, None, tuple(keys))
    if PACKED:
        own, values = packed(keys, [b"v", None], len(TABLE))
        m.set_packed(lock._replace(chunk=own), own, values)
    else:
        m.set_chunk(lock, [b"v", None])
    entry.add(m, size_of(m))
    command = entry.seal()
    assert command[5] == (3 if PACKED else 1)
    assert decode(command, "here").others == tuple(m.others)
    newer = command[4:5] + b"\x04" + command[6:]
    with pytest.raises(Corruption, match="start the version of Kvorum that wrote it"):
        decode(crc32(newer).to_bytes(4, "little") + newer, "here")
