"""Messages cut from any pieces of a stream; garbage refused; nothing kept beyond its bounds."""

from __future__ import annotations

import contextlib
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.limits import SQL_MESSAGE_BYTES_MAX, SQL_STARTUP_BYTES_MAX
from sqlproxy.values.errors import SqlError
from sqlproxy.wire import codec
from sqlproxy.wire.codec import Decoder, ProtocolError, Skipped
from sqlproxy.wire.seam import Notice

KINDS = b"BCDEFHPQSXcdfp"
LARGE = b"BFPQd"


def message(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + struct.pack(">I", len(body) + 4) + body


def pulled(decoder: Decoder) -> list[tuple[int, bytes | Skipped]]:
    found = []
    while (one := decoder.pull()) is not None:
        found.append(one)
    return found


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.binary(max_size=300)), max_size=20),
    st.lists(st.integers(1, 400), min_size=1, max_size=60),
)
def test_messages_come_out_whole_however_the_stream_is_cut(
    messages: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    """A message over two packets was lost, doubled or mixed with the next."""
    stream = b"".join(message(kind, body) for kind, body in messages)
    decoder = Decoder()
    found: list[tuple[int, bytes | Skipped]] = []
    at = 0
    for cut in [*cuts, len(stream)]:
        if at < len(stream):
            decoder.push(stream[at : at + cut])
            at += cut
        found += pulled(decoder)
    decoder.push(stream[at:])
    found += pulled(decoder)
    assert found == messages
    assert decoder.buffered == 0
    assert not decoder.partial


def test_the_rest_of_a_large_message_may_come_byte_by_byte() -> None:
    """Each piece had all of the message before it copied, twice: 20 bytes a second of one client
    took a tenth of the loop.
    """
    size, pieces = 16 << 20, 2_000
    decoder = Decoder()
    decoder.push(message(codec.COPY_DATA, bytes(size))[:-pieces])
    assert decoder.pull() is None
    began = time.process_time()
    for _ in range(pieces - 1):
        decoder.push(b"x")
        assert decoder.pull() is None
    assert time.process_time() - began < 1.0  # 9 s
    decoder.push(b"x")
    assert decoder.pull() == (codec.COPY_DATA, bytes(size - pieces) + b"x" * pieces)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waits_for_more(data: bytes) -> None:
    """Bytes that are no message crashed the server's loop."""
    decoder = Decoder()
    decoder.push(data)
    try:
        found = pulled(decoder)
    except ProtocolError:
        return
    assert sum(len(body) + 5 for _, body in found if isinstance(body, bytes)) <= len(data)


@pytest.mark.parametrize("kind", LARGE)
def test_too_large_messages_are_skipped_and_the_next_one_is_read(kind: int) -> None:
    """A statement beyond the limit was kept in memory, or ended the connection."""
    size = SQL_MESSAGE_BYTES_MAX + 10
    decoder = Decoder()
    decoder.push(bytes([kind]) + struct.pack(">I", size) + b"x" * 100)
    left = size - 4 - 100
    while left:
        assert decoder.pull() is None
        piece = min(left, 1 << 20)
        decoder.push(bytes(piece))
        assert decoder.buffered == 0
        left -= piece
    assert decoder.pull() == (kind, Skipped(size))
    decoder.push(message(ord("S"), b""))
    assert pulled(decoder) == [(ord("S"), b"")]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00\x04",
        b"Q\x00\x00\x00\x03",
        b"Q\xff\xff\xff\xff",
        b"S\x00\x01\x00\x00",
        b"GET / HTTP/1.1\r\n",
        b"p\x7f\xff\xff\xff",
    ],
)
def test_what_no_client_sends_ends_the_connection(data: bytes) -> None:
    """Lengths and kinds that are none were waited for."""
    decoder = Decoder()
    decoder.push(data)
    with pytest.raises(ProtocolError) as caught:
        decoder.pull()
    assert caught.value.severity == "FATAL"


@pytest.mark.parametrize("length", [0, 7, SQL_STARTUP_BYTES_MAX + 1, -1, 1 << 30])
def test_first_packets_have_a_bounded_length(length: int) -> None:
    """A peer that is not logged in made the server keep what it sends."""
    decoder = Decoder()
    decoder.push(struct.pack(">i", length) + bytes(20))
    with pytest.raises(ProtocolError, match="invalid length of startup packet"):
        decoder.pull_startup()


@given(st.binary(min_size=4, max_size=100))
def test_startup_packets_are_read_or_refused(body: bytes) -> None:
    """A first packet crashed the reader."""
    try:
        found = codec.read_startup(body)
    except ProtocolError:
        return
    assert isinstance(found, codec.Startup | codec.EncryptionRequest | codec.CancelRequest)


@given(st.binary(max_size=80), st.sampled_from(range(6)))
def test_bodies_are_read_or_refused(body: bytes, which: int) -> None:
    """A body that does not hold what it claims crashed its reader."""
    readers = (
        codec.read_parse,
        codec.read_bind,
        codec.read_execute,
        codec.read_target,
        codec.read_query,
        codec.read_sasl_initial,
    )
    with contextlib.suppress(SqlError):
        readers[which](body)


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=10),
    st.lists(st.none() | st.binary(max_size=20), max_size=8),
    st.lists(st.sampled_from([0, 1]), max_size=8),
)
def test_bind_gives_back_what_was_sent(
    name: str, values: list[bytes | None], codes: list[int]
) -> None:
    """A parameter was read from the wrong place."""
    raw = name.encode()
    body = raw + b"\x00" + raw + b"\x00" + struct.pack(f">h{len(codes)}h", len(codes), *codes)
    body += struct.pack(">h", len(values))
    for value in values:
        body += b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value
    body += struct.pack(">hh", 1, 1)
    found = codec.read_bind(body)
    assert (found.portal, found.statement, found.values) == (name, name, values)
    if len(codes) == 8:
        assert codec.format_codes(found.formats, 8, "{given}{count}") == tuple(codes)
    assert codec.format_codes(found.results, 3, "") == (1, 1, 1)


def test_format_codes_are_checked_against_the_columns() -> None:
    """Two codes for three columns would shift the formats of all that follow."""
    with pytest.raises(SqlError, match="2 result formats but query has 3") as caught:
        codec.format_codes(
            struct.pack(">hhh", 2, 0, 1), 3, "{given} result formats but query has {count}"
        )
    assert caught.value.sqlstate == "08P01"
    with pytest.raises(SqlError, match="unsupported format code: 7"):
        codec.format_codes(struct.pack(">hh", 1, 7), 3, "")


def test_errors_and_notices_carry_their_fields() -> None:
    """Drivers read these by letter: byte by byte what PostgreSQL sends."""
    error = SqlError(
        "23505",
        "duplicate",
        detail="Key.",
        hint="h",
        position=5,
        schema="public",
        table="t",
        column="c",
        datatype="int4",
        constraint="t_pkey",
        where="COPY t",
    )
    assert codec.error_response(error, offset=10) == message(
        ord("E"),
        b"SERROR\0VERROR\0C23505\0Mduplicate\0DKey.\0Hh\0P15\0WCOPY t\0spublic\0tt\0cc\0dint4\0"
        b"nt_pkey\0\0",
    )
    assert codec.notice_response(Notice("NOTICE", "00000", "a\0b")) == message(
        ord("N"), b"SNOTICE\0VNOTICE\0C00000\0Mab\0\0"
    )


def test_long_errors_are_cut() -> None:
    """An error that repeats a value of 16 MiB made a message of 16 MiB."""
    raw = codec.error_response(SqlError("22P02", "x" * 1_000_000, detail="ä" * 1_000_000))
    assert len(raw) < 64 * 1024
