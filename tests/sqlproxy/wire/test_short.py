"""The short way of the wire: one prepared statement, its Sync, and nothing else on the line."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sqlproxy.catalog.notifications import Notification
from sqlproxy.values.errors import SqlError
from sqlproxy.wire.codec import Decoder
from tests.sqlproxy.wire.conftest import Served
from tests.sqlproxy.wire.test_hostile import OPEN, Raw, message

DESCRIBE = message(b"D", b"P\0")
EXECUTE, SYNC = message(b"E", b"\0" + bytes(4)), message(b"S", b"")


@pytest.fixture(autouse=True)
async def _leave_nothing_open() -> AsyncIterator[None]:
    yield
    while OPEN:
        await OPEN.pop().close()


def bind(*values: bytes, statement: bytes = b"s") -> bytes:
    body = b"\0" + statement + b"\0" + struct.pack(">HH", 0, len(values))
    for value in values:
        body += struct.pack(">I", len(value)) + value
    return message(b"B", body + struct.pack(">H", 0))


def cycle(value: bytes = b"7", *, describe: bool = False) -> bytes:
    return bind(value) + (DESCRIBE if describe else b"") + EXECUTE + SYNC


async def ready(served: Served) -> Raw:
    """A client with the prepared statement `s`, of one parameter."""
    served.sessions.shared.short = True
    raw = await Raw.logged_in(served)
    raw.send(message(b"P", b"s\0select $1::int4 as a\0" + bytes(2)) + SYNC)
    await raw.until(b"Z")
    return raw


async def begun(served: Served) -> None:
    """A statement is under way in the session."""
    async with asyncio.timeout(5):
        await served.sessions.shared.running.wait()
    served.sessions.shared.running.clear()


def finish(served: Served) -> None:
    done, answer = served.sessions.shared.begun.pop(0)
    done(answer)


def test_cycle_is_one_statement_and_its_sync_only() -> None:
    """A cycle that is cut, has more behind it, or names a portal goes the usual way."""
    whole = cycle()
    for at in range(len(whole)):
        decoder = Decoder()
        decoder.push(whole[:at])
        assert decoder.cycle() is None
    for other in (
        whole + SYNC,
        message(b"B", b"c" + bind(b"7")[5:]) + EXECUTE + SYNC,
        bind(b"7") + message(b"E", b"\0" + struct.pack(">I", 5)) + SYNC,
        bind(b"7") + EXECUTE + message(b"H", b""),
        bind(b"7") + bind(b"7") + EXECUTE + SYNC,
    ):
        decoder = Decoder()
        decoder.push(other)
        assert decoder.cycle() is None, other
    decoder = Decoder()
    decoder.push(whole)
    found = decoder.cycle()
    assert found is not None
    assert (found.parse, found.bind, found.described, found.size) == (
        b"",
        bind(b"7")[5:],
        False,
        len(whole),
    )
    decoder.push(b"X")
    decoder.skip(found.size)
    assert (decoder.buffered, decoder.pull()) == (1, None)


@pytest.mark.parametrize("describe", [False, True])
async def test_short_answer_is_the_usual_one(served: Served, describe: bool) -> None:
    """The client could tell from its bytes which way a statement went."""
    raw = await ready(served)
    raw.send(cycle(describe=describe))
    await begun(served)
    finish(served)
    short = await raw.until(b"Z")
    raw.send(cycle(describe=describe)[:3])  # cut in pieces it goes the usual way
    await asyncio.sleep(0.05)
    raw.send(cycle(describe=describe)[3:])
    assert await raw.until(b"Z") == short
    assert [kind for kind, _ in short] == [b"2", *([b"T"] if describe else []), b"D", b"C", b"Z"]
    assert not served.sessions.shared.begun


async def test_notifications_come_behind_a_short_answer(served: Served) -> None:
    """They would break into it, or wait for the statement after it."""
    raw = await ready(served)
    raw.send(cycle())
    await begun(served)
    channel = served.sessions.opened[-1].channel
    channel.notifications.append(Notification("c", "x", 7))
    assert channel.heard is not None
    channel.heard()
    assert channel.notifications
    finish(served)
    assert [kind for kind, _ in await raw.until(b"Z")] == [b"2", b"D", b"C", b"Z"]
    assert (await raw.until(b"A"))[-1] == (b"A", b"\0\0\0\x07c\0x\0")


async def test_known_text_needs_no_preparing(served: Served) -> None:
    """Drivers that prepare nothing would pay for the binding of every statement."""
    raw = await ready(served)
    text = "select $1::int4 as b"
    parse = message(b"P", b"\0" + text.encode() + b"\0" + bytes(2))
    sent = parse + bind(b"5", statement=b"") + DESCRIBE + EXECUTE + SYNC
    raw.send(sent)
    usual = await raw.until(b"Z")
    assert [kind for kind, _ in usual] == [b"1", b"2", b"T", b"D", b"C", b"Z"]
    served.sessions.shared.known.add(text)
    raw.send(sent)
    await begun(served)
    finish(served)
    assert await raw.until(b"Z") == usual
    assert "" in served.sessions.opened[0].statements
    raw.send(parse + cycle())  # another statement than the one that it parses
    assert (await raw.until(b"Z"))[0][0] == b"1"


async def test_declined_goes_the_usual_way(served: Served) -> None:
    """What met something unusual would be lost, or answered twice."""
    raw = await ready(served)
    raw.send(cycle(b"41"))
    await begun(served)
    served.sessions.shared.begun.pop()[0](None)
    found = await raw.until(b"Z")
    assert [kind for kind, _ in found] == [b"2", b"D", b"C", b"Z"]
    assert found[1][1].endswith(b"41")


async def test_error_of_the_short_way_is_told(served: Served) -> None:
    """An outcome that is not known would look like success."""
    raw = await ready(served)
    raw.send(cycle())
    await begun(served)
    served.sessions.shared.begun.pop()[0](SqlError("40003", "the outcome is not known"))
    found = await raw.until(b"Z")
    assert [kind for kind, _ in found] == [b"2", b"E", b"Z"]
    assert b"C40003" in found[1][1]


async def test_rows_that_cannot_be_written_are_an_error(served: Served) -> None:
    """The client would wait for ever for an answer that was half written."""
    raw = await ready(served)
    raw.send(cycle())
    await begun(served)
    done, answer = served.sessions.shared.begun.pop()
    done(replace(answer, rows=[(object(),)]))
    found = await raw.until(b"Z")
    assert [kind for kind, _ in found] == [b"2", b"E", b"Z"]
    assert b"CXX000" in found[1][1]


async def test_what_comes_meanwhile_waits(served: Served) -> None:
    """A client that sends ahead would have its statements mixed up."""
    raw = await ready(served)
    raw.send(cycle(b"1"))
    await begun(served)
    raw.send(cycle(b"2") + cycle(b"3"))
    await asyncio.sleep(0.05)
    assert len(served.sessions.shared.begun) == 1
    finish(served)
    values = [next(body for kind, body in await raw.until(b"Z") if kind == b"D") for _ in range(3)]
    assert [value[-1:] for value in values] == [b"1", b"2", b"3"]


async def test_client_that_leaves_meanwhile_is_closed_once(served: Served) -> None:
    """Its session would stay for ever, or be closed under its statement."""
    raw = await ready(served)
    raw.send(cycle())
    await begun(served)
    await raw.close()
    await asyncio.sleep(0.05)
    assert served.sessions.shared.closed == 0
    finish(served)
    await asyncio.sleep(0.05)
    assert served.sessions.shared.closed == 1


async def test_stop_waits_for_the_answer(served: Served) -> None:
    """A node that stops would hang up on a commit, and the client would not know of it."""
    raw = await ready(served)
    raw.send(cycle())
    await begun(served)
    stopping = asyncio.ensure_future(served.server.stop(grace_s=5))
    await asyncio.sleep(0.05)
    finish(served)
    kinds = [kind for kind, _ in await raw.until(b"E")]
    assert kinds == [b"2", b"D", b"C", b"Z", b"E"]
    await stopping


async def test_bad_values_are_told_by_the_usual_way(served: Served) -> None:
    """An error before the statement would have no end of its message."""
    raw = await ready(served)
    raw.send(cycle(b"seven"))
    found = await raw.until(b"Z")
    assert [kind for kind, _ in found] == [b"E", b"Z"]
    assert b"C22P02" in found[0][1]


async def test_next_values_are_read_as_the_first_were(served: Served) -> None:
    """What is kept of a statement's Bind would be taken for what the next one says."""
    raw = await ready(served)
    nothing = message(b"B", b"\0s\0" + struct.pack(">HHiH", 0, 1, -1, 0)) + EXECUTE + SYNC
    binary = b"\0s\0" + struct.pack(">HHHIiH", 1, 1, 1, 4, 7, 0)
    shown_binary = b"\0s\0" + struct.pack(">HHIcHH", 0, 1, 1, b"7", 1, 1)
    short = [
        (cycle(b"1"), b"1"),
        (cycle(b"-0022"), b"-22"),
        (cycle(b" 3 "), b"3"),
        (nothing, b"\xff\xff\xff\xff"),
        (message(b"B", binary) + EXECUTE + SYNC, b"7"),
        (message(b"B", shown_binary) + EXECUTE + SYNC, b"\0\0\0\7"),
        (cycle(b"2147483647"), b"2147483647"),
    ]
    for _ in range(2):
        for sent, value in short:
            raw.send(sent)
            await begun(served)
            finish(served)
            found = await raw.until(b"Z")
            assert [kind for kind, _ in found] == [b"2", b"D", b"C", b"Z"]
            assert found[1][1].endswith(value), sent
    for wrong, state in (
        (cycle(b"2147483648"), b"C22003"),
        (cycle(b""), b"C22P02"),
        (cycle("٣".encode()), b"C22P02"),
        (cycle(b"\xff"), b"C22021"),
        (bind() + EXECUTE + SYNC, b"C08P01"),
        (bind(b"1", b"2") + EXECUTE + SYNC, b"C08P01"),
    ):
        raw.send(wrong)
        found = await raw.until(b"Z")
        assert [kind for kind, _ in found] == [b"E", b"Z"]
        assert state in found[0][1]
    raw.send(message(b"B", shown_binary[:-1]) + EXECUTE + SYNC)  # it ends too early
    assert b"C08P01" in (await raw.until(b"E"))[-1][1]


async def test_statement_of_the_same_name_is_another(served: Served) -> None:
    """A client that closed a statement would run it again."""
    raw = await ready(served)
    raw.send(cycle(b"1"))
    await begun(served)
    finish(served)
    await raw.until(b"Z")
    other = message(b"P", b"s\0select $1::text as a, 5 as b\0" + bytes(2))
    raw.send(message(b"C", b"Ss\0") + other + SYNC)
    await raw.until(b"Z")
    raw.send(cycle(b"1"))
    await begun(served)
    finish(served)
    found = await raw.until(b"Z")
    assert found[1][1] == struct.pack(">HIcIc", 2, 1, b"1", 1, b"5")
