"""kv.base.rpc: every byte sequence gives messages or one clear error, within the limits."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import (
    Busy,
    InvalidArgument,
    KeyLocked,
    KvorumError,
    Refused,
    TooLarge,
    from_wire,
)
from kv.base.limits import FRAME_BYTES_MAX, LIST_ITEMS_MAX, REQUESTS_PER_FRAME_MAX
from kv.base.methods import PROTOCOL, VERSION
from kv.base.rpc import (
    FrameDecoder,
    FrameEncoder,
    Hello,
    decode,
    error_of,
    error_row,
    read_hello,
    requests_of,
)

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=200),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=10,
)
messages = st.lists(st.lists(plain, max_size=5), max_size=6)


def no_refusal(row: Any, error: KvorumError) -> None:
    raise AssertionError(f"{row!r} was refused: {error}")


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def pulled(decoder: FrameDecoder) -> list[list[Any]]:
    found = []
    while (message := decoder.pull()) is not None:
        found.append(message)
    return found


@pytest.mark.slow
@given(st.lists(messages, max_size=5), st.data())
def test_rpc_frames_survive_any_chunking(sent: list[list[Any]], data: st.DataObject) -> None:
    """TCP cuts anywhere; a decoder that leans on its chunks loses or invents requests."""
    encoder, decoder = FrameEncoder(), FrameDecoder()
    stream = b"".join(encoder.rows(message, no_refusal) for message in sent)
    got: list[list[Any]] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, max(1, len(stream) - at)))
        decoder.push(stream[at : at + size])
        at += size
        if data.draw(st.booleans()):  # pulling may be put off
            got += pulled(decoder)
    got += pulled(decoder)
    assert got == sent
    assert decoder.buffered == 0


@pytest.mark.slow
@given(messages, st.integers(1, 60))
def test_rpc_truncated_frame_gives_nothing(message: list[Any], missing: int) -> None:
    """Half a frame must wait for its rest, not be executed."""
    stream = FrameEncoder().rows(message, no_refusal)
    decoder = FrameDecoder()
    cut = stream[: max(0, len(stream) - missing)]
    decoder.push(cut)
    assert decoder.pull() is None
    assert decoder.buffered == len(cut)


@given(st.binary(max_size=300))
def test_rpc_garbage_never_crashes(garbage: bytes) -> None:
    """Whatever arrives on an open port ends as a message or as an error of ours, never as another
    one.
    """
    for stream in (garbage, framed(garbage)):
        decoder = FrameDecoder()
        decoder.push(stream)
        with contextlib.suppress(InvalidArgument, TooLarge):
            for message in pulled(decoder):
                requests_of(message)


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        b"\x93\x01",
        b"\x01\x02",
        b"\xa1\xff",
        b"\x91\xd4\x05a",
        b"\x91\xc7\x00\x05",
        b"\x91\xd6\xff\x00\x00\x00\x00",
        b"\x91" * 3000 + b"\x90",
        b"\x91\x81\x90\x01",
        b"",
        b"\x80",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" + b"\xdd\x00\x0f\x42\x40",
    ],
    ids=[
        "never-used-byte",
        "cut",
        "two-values",
        "bad-utf8",
        "ext",
        "empty-ext",
        "timestamp-ext",
        "too-deep",
        "list-as-map-key",
        "nothing",
        "a-map",
        "huge-list",
        "huge-map",
        "huge-bytes",
        "list-of-a-million",
    ],
)
def test_rpc_bad_body_is_named(body: bytes) -> None:
    """A peer that speaks wrongly must learn what was wrong."""
    with pytest.raises(InvalidArgument, match=r"malformed frame: .") as caught:
        decode(body)
    assert caught.value.code == "MALFORMED_FRAME"


def test_rpc_oversize_frame_is_refused_by_its_header() -> None:
    """A claimed length must not be believed: nothing is kept for a frame above the limit."""
    decoder = FrameDecoder()
    decoder.push(struct.pack("<I", FRAME_BYTES_MAX + 1))
    with pytest.raises(TooLarge) as caught:
        decoder.pull()
    assert caught.value.details == {
        "what": "frame",
        "limit": FRAME_BYTES_MAX,
        "actual": FRAME_BYTES_MAX + 1,
    }
    exact = FrameDecoder()
    exact.push(struct.pack("<I", FRAME_BYTES_MAX))
    assert exact.pull() is None


def test_rpc_http_request_is_not_a_frame() -> None:
    """A browser on the wrong port gets an error at once, not a hanging connection."""
    decoder = FrameDecoder()
    decoder.push(b"GET / HTTP/1.1\r\n")
    with pytest.raises(TooLarge):
        decoder.pull()


def test_rpc_hostile_headers_allocate_little() -> None:
    """Nested lists that claim millions of items each must not make the node allocate gigabytes."""
    claimed = 1 << 20
    body = (b"\xdd" + struct.pack(">I", claimed)) * 100 + b"\xc0" * claimed
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgument, match=f"{claimed} exceeds"):
            decode(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(body)


def test_rpc_longest_list_and_map() -> None:
    """The documented limit of items is the one that is enforced, for lists and for maps."""
    fits = [[None] * LIST_ITEMS_MAX, dict.fromkeys(range(LIST_ITEMS_MAX), 0)]
    assert decode(msgpack.packb(fits)) == fits
    for above in ([None] * (LIST_ITEMS_MAX + 1), dict.fromkeys(range(LIST_ITEMS_MAX + 1), 0)):
        with pytest.raises(InvalidArgument, match=f"{LIST_ITEMS_MAX + 1} exceeds"):
            decode(msgpack.packb([above]))


def test_rpc_large_frame_in_small_chunks_is_not_copied_per_chunk() -> None:
    """16 MiB in 64 KiB chunks took quadratic time with `buffer + chunk`; here it keeps one
    buffer.
    """
    value = b"v" * (16 << 20)
    stream = FrameEncoder().rows([[1, 2, 0, value]], no_refusal)
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        for at in range(0, len(stream), 65_536):
            assert decoder.pull() is None
            decoder.push(stream[at : at + 65_536])
        _, peak = tracemalloc.get_traced_memory()
        message = decoder.pull()
    finally:
        tracemalloc.stop()
    assert message == [[1, 2, 0, value]]
    assert peak < 2.5 * len(stream)


def test_rpc_encoder_splits_by_bytes_and_count() -> None:
    """Replies that come to more than a frame must travel in several, not break the connection."""
    encoder, decoder = FrameEncoder(), FrameDecoder()
    large = [[i, 0, b"x" * (6 << 20)] for i in range(1, 12)]
    stream = encoder.rows(large, no_refusal)
    decoder.push(stream)
    frames = pulled(decoder)
    assert [row for frame in frames for row in frame] == large
    assert len(frames) > 1
    many = [[i, 0] for i in range(1, REQUESTS_PER_FRAME_MAX + 2)]
    decoder.push(encoder.rows(many, no_refusal))
    frames = pulled(decoder)
    assert [row for frame in frames for row in frame] == many
    assert max(map(len, frames)) <= REQUESTS_PER_FRAME_MAX


@pytest.mark.parametrize(
    ("bad", "error_class"),
    [(object(), InvalidArgument), (1 << 64, InvalidArgument), (b"x" * (33 << 20), TooLarge)],
    ids=["object", "65-bit", "33-MiB"],
)
def test_rpc_unsendable_row_fails_alone(bad: Any, error_class: type[KvorumError]) -> None:
    """One caller's bad value must not take along those whose requests share its frame."""
    refused: list[tuple[Any, KvorumError]] = []

    def refuse(row: Any, error: KvorumError) -> list[Any] | None:
        refused.append((row, error))
        return error_row(row[0], error)

    rows = [[1, 0, b"a"], [2, 0, bad], [3, 0, b"c"]]
    decoder = FrameDecoder()
    decoder.push(FrameEncoder().rows(rows, refuse))
    got = {row[0]: row for frame in pulled(decoder) for row in frame}
    assert (got[1], got[3]) == (rows[0], rows[2])
    assert type(from_wire(got[2][2:])) is error_class
    assert [row[0] for row, _ in refused] == [2]


@pytest.mark.parametrize(
    ("row", "rid"),
    [
        ("x", None),
        ([], None),
        ([1], 1),
        ([1, 2], 1),
        ([1, "2", 0], 1),
        ([1, -2, 0], 1),
        ([1, 2, None], 1),
        ([True, 2, 0], None),
        ([0, 2, 0], None),
        ([-1, 2, 0], None),
        (["a", 2, 0], None),
    ],
)
def test_rpc_wrong_row_shapes_are_named(row: Any, rid: int | None) -> None:
    """A row that is no request is a protocol error; it names the request where it has an id."""
    with pytest.raises(InvalidArgument, match="a request is") as caught:
        requests_of([[7, 64, 0], row])
    assert caught.value.details.get("rid") == rid


def test_rpc_requests_per_frame_are_limited() -> None:
    """A frame of endless tiny requests would hold the loop; the limit and the count are in the
    error.
    """
    rows = [[i, 64, 0] for i in range(1, REQUESTS_PER_FRAME_MAX + 2)]
    assert requests_of(rows[:-1]) == rows[:-1]
    with pytest.raises(TooLarge, match=f"{REQUESTS_PER_FRAME_MAX + 1} requests"):
        requests_of(rows)


def test_rpc_hello_layout() -> None:
    """The bytes of the first frame are what other people's clients are written to."""
    hello = Hello(cluster="c1", node=3)
    frame = FrameEncoder().message(hello.to_wire())
    body = msgpack.packb([PROTOCOL, VERSION, {"cluster": "c1", "node": 3}])
    assert frame == framed(body)
    assert read_hello(decode(body), "c1") == hello
    assert read_hello([PROTOCOL, VERSION, {}], "c1") == Hello()
    assert read_hello([PROTOCOL, VERSION, {"cluster": "c2", "later": 1}], "").cluster == "c2"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (["http", 1, {}], "WRONG_PROTOCOL"),
        ([PROTOCOL, VERSION + 1, {}], "WRONG_VERSION"),
        ([PROTOCOL, VERSION, {"cluster": "other"}], "WRONG_CLUSTER"),
        ([], "MALFORMED_FRAME"),
        ([PROTOCOL, VERSION], "MALFORMED_FRAME"),
        ([PROTOCOL, "1", {}], "MALFORMED_FRAME"),
        ([PROTOCOL, VERSION, []], "MALFORMED_FRAME"),
        ([PROTOCOL, VERSION, {"cluster": 5}], "MALFORMED_FRAME"),
        ([PROTOCOL, VERSION, {"node": "n"}], "MALFORMED_FRAME"),
        ([b"kvorum-rpc", VERSION, {}], "MALFORMED_FRAME"),
    ],
)
def test_rpc_wrong_hello_is_refused_with_the_reason(message: list[Any], code: str) -> None:
    """Talking to another cluster or version must fail before anything is read or written there."""
    with pytest.raises((Refused, InvalidArgument)) as caught:
        read_hello(message, "c1")
    assert caught.value.code == code


def test_rpc_errors_travel_whole() -> None:
    """A caller switches on class, code and details; a broken error reply is an error, too."""
    row = error_row(5, KeyLocked("busy", details={"key": b"k", "txn": 2**63}))
    got = error_of(decode(msgpack.packb(row)))
    assert (type(got), got.code, got.details) == (
        KeyLocked,
        "KEY_LOCKED",
        {"key": b"k", "txn": 2**63},
    )
    assert type(error_of([5, 1, "BUSY", "BUSY", "m", {}])) is Busy
    for broken in (
        [5, 1],
        [5, 1, "BUSY"],
        [5, 1, "BUSY", "BUSY", "m", 7],
        [5, 1, [], "C", "m", {}],
    ):
        assert error_of(broken).code == "MALFORMED_FRAME"
