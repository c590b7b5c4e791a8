"""The peer protocol's bytes: what is packed arrives as it was, and nothing else arrives."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft import wire
from raft.records import GROUP_ID_MAX
from raft.wire import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    MESSAGES,
    FrameReader,
    Malformed,
    frame,
    messages_body,
    pack_message,
    read_messages,
)

U64 = st.integers(0, 2**64 - 1)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=64),
    st.lists(U64, max_size=4).map(tuple),
)
ENTRY = st.tuples(st.binary(max_size=100), U64, U64)
MESSAGE = st.fixed_dictionaries(
    {"type": st.text(min_size=1, max_size=12)},
    optional={
        "term": U64,
        "round": U64,
        "at": st.floats(allow_nan=False),
        "x": PLAIN,
        "entries": st.lists(ENTRY, max_size=5),
    },
)
ROWS = st.lists(st.tuples(st.integers(0, 2**32 - 1), MESSAGE), max_size=40)


def body_of(rows: list[tuple[int, dict[str, Any]]]) -> bytes:
    return messages_body([pack_message(group_id, message) for group_id, message in rows])


def read_all(reader: FrameReader, data: bytes, sizes: list[int]) -> list[tuple[int, bytes]]:
    """The frames of a stream that comes in pieces of these sizes (then the rest)."""
    frames = []
    while data:
        size = min(sizes.pop(0) if sizes else len(data), len(data), len(reader.room()))
        reader.room()[:size] = data[:size]
        frames += [(kind, bytes(body)) for kind, body in reader.received(size)]
        data = data[size:]
    return frames


@pytest.mark.slow
@given(ROWS)
def test_messages_arrive_as_they_were(rows: list[tuple[int, dict[str, Any]]]) -> None:
    """A type that changes on the way (an entry that is a list) would break comparisons."""
    assert read_messages(body_of(rows)) == rows
    for _, message in read_messages(body_of(rows)):
        assert all(type(entry) is tuple for entry in message.get("entries", []))


def test_long_lists_of_messages_have_the_right_head() -> None:
    """Three forms of a list's head, one per size: a wrong one loses heartbeats."""
    for count in (0, 1, 15, 16, 65535, 65536):
        rows = [pack_message(1, {"type": "x"})] * count
        assert len(read_messages(messages_body(rows))) == count


@pytest.mark.slow
@given(st.lists(ROWS, max_size=5), st.lists(st.integers(1, 50), max_size=200))
def test_half_frames_wait_for_their_rest(
    frames: list[list[tuple[int, dict[str, Any]]]], sizes: list[int]
) -> None:
    """A stream has no borders: any cut of it must give the same messages."""
    stream = b"".join(frame(MESSAGES, body_of(rows)) for rows in frames)
    reader = FrameReader(FRAME_BYTES_MAX)
    got = read_all(reader, stream, sizes)
    assert [read_messages(body) for _, body in got] == frames
    assert reader.buffered == 0


def test_every_byte_alone() -> None:
    """The same, where every border falls between two bytes, headers included."""
    stream = frame(MESSAGES, b"abc") + frame(wire.PING, b"12345678") + frame(wire.PART, b"")
    reader = FrameReader(100)
    got = read_all(reader, stream, [1] * len(stream))
    assert got == [(MESSAGES, b"abc"), (wire.PING, b"12345678"), (wire.PART, b"")]


@given(st.binary(max_size=400), st.lists(st.integers(1, 50), max_size=50))
def test_garbage_is_refused_or_waited_for(data: bytes, sizes: list[int]) -> None:
    """Bytes of anybody must end in `Malformed` or in patience, never in another exception."""
    reader = FrameReader(64)
    try:
        for _, body in read_all(reader, data, sizes):
            read_messages(body)
    except Malformed:
        return
    assert reader.buffered <= 64 + HEADER_BYTES


@given(st.binary(max_size=300))
def test_garbage_in_a_whole_frame_is_refused_or_means_something(body: bytes) -> None:
    """A frame with a right checksum may still hold anything."""
    try:
        rows = read_messages(body)
    except Malformed:
        return
    for group_id, message in rows:
        assert type(group_id) is int
        assert type(message["type"]) is str


@given(ROWS, st.data())
def test_one_flipped_bit_never_passes(
    rows: list[tuple[int, dict[str, Any]]], data: st.DataObject
) -> None:
    """TCP's checksum misses some damage; a damaged entry would be replicated to all."""
    whole = bytearray(frame(MESSAGES, body_of(rows)))
    at = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[at // 8] ^= 1 << at % 8
    reader = FrameReader(FRAME_BYTES_MAX)
    try:
        assert read_all(reader, bytes(whole), []) == []  # the length grew: it waits for more
    except Malformed:
        return
    assert at < 32


def test_long_frame_is_refused_by_its_header() -> None:
    """Its body must not be collected first: that is what a peer could fill our memory with."""
    reader = FrameReader(100)
    head = frame(MESSAGES, bytes(101))[:HEADER_BYTES]
    with pytest.raises(Malformed, match="frame of 101 bytes; the limit is 100"):
        read_all(reader, head, [])


def test_reader_grows_between_frames_and_keeps_what_it_has() -> None:
    """After the proofs frames may be longer; bytes that came with the proof must survive."""
    reader = FrameReader(16)
    long = frame(MESSAGES, bytes(range(200)))
    first = frame(wire.PROOF, b"proof") + long[:10]
    room = reader.room()
    room[: len(first)] = first
    got = []
    for kind, body in reader.received(len(first)):
        got.append((kind, bytes(body)))
        reader.body_bytes_max = 200
    got += read_all(reader, long[10:], [7, 1])
    assert got == [(wire.PROOF, b"proof"), (MESSAGES, bytes(range(200)))]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (1, "must be a list"),
        ([1], "group id"),
        ([[1]], "group id"),
        ([[1, {"type": "x"}, 3]], "group id"),
        ([["1", {"type": "x"}]], "group id"),
        ([[True, {"type": "x"}]], "group id"),
        ([[-1, {"type": "x"}]], "group id"),
        ([[GROUP_ID_MAX + 1, {"type": "x"}]], "group id"),
        ([[1, {"type": 3}]], "group id"),
        ([[1, {}]], "group id"),
        ([[1, ["type"]]], "group id"),
        ([[1, {"type": "x", "entries": 3}]], "entries must be a list"),
        ([[1, {"type": "x", "entries": [[b"", 1]]}]], "an entry must be"),
        ([[1, {"type": "x", "entries": [["", 1, 1]]}]], "an entry must be"),
        ([[1, {"type": "x", "entries": [[b"", 1, True]]}]], "an entry must be"),
        ([[1, {"type": "x", "entries": [[b"", 1.0, 1]]}]], "an entry must be"),
        ([[1, {"type": "x", 5: 1}]], "int is not allowed for map key"),
        ([[1, {"type": "x", **{str(i): i for i in range(64)}}]], "max_map_len"),
        ([[1, {"type": "x", "e": msgpack.ExtType(5, b"a")}]], "max_ext_len"),
        ([[1, {"type": "x", "e": msgpack.ExtType(5, b"")}]], "extension type"),
        ([[1, {"type": "x", "e": msgpack.Timestamp(1)}]], "max_ext_len"),
    ],
)
def test_other_shapes_are_refused(data: object, why: str) -> None:
    """What gets past this door reaches consensus, which trusts its fields' types."""
    with pytest.raises(Malformed, match=why):
        read_messages(msgpack.packb(data))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x90\x90",  # more than one object
        b"\x92\x01",  # less than one
        b"\xc1",  # a byte without a meaning
        b"\x91\xa1\xff",  # not UTF-8
        b"\x91" * 2000,  # too deep
        b"\xdd\xff\xff\xff\xff",  # a list longer than its bytes
    ],
)
def test_broken_msgpack_is_malformed(body: bytes) -> None:
    """Every way in which msgpack gives up must end the connection, not the node."""
    with pytest.raises(Malformed):
        read_messages(body)
