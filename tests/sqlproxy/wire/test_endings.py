"""How each message ends, whatever its body and whatever state it meets; and what is finished goes
out at once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sqlproxy.wire import codec
from tests.kit.waiting import until
from tests.sqlproxy.wire.conftest import Served
from tests.sqlproxy.wire.test_hostile import OPEN, Raw, message, works

SYNC, PROBE, GOODBYE = message(b"S", b""), message(b"Q", b"select 1\0"), message(b"X", b"")
RUN = message(b"B", b"\0" * 8) + message(b"E", bytes(5))
FAIL = message(b"P", b"\0fail\0\0\0") + RUN
COPY = b"copy t from stdin\0"
BODIES = {
    "B": b"\0\0\0\1\0\1\0\1\0\0\0\0017\0\1\0\0",
    "C": b"Sa\0",
    "D": b"Pa\0",
    "E": b"\0\0\0\0\0",
    "F": struct.pack(">IHHHI", 957, 1, 0, 1, 4) + b"1234\0\0",
    "H": b"",
    "P": b"\0select $1::int4\0\0\1\0\0\0\x17",
    "Q": b"select 1\0",
    "S": b"",
    "X": b"",
    "c": b"",
    "d": b"1\ta\n",
    "f": b"no\0",
}
"""A body of each kind that a client may send once it has logged in."""
STATES = {
    "idle": b"",
    "block": message(b"Q", b"begin\0"),
    "failed": message(b"Q", b"begin\0") + message(b"Q", b"fail\0"),
    "pipeline": message(b"P", b"\0insert into log values (1)\0\0\0") + RUN,
    "silent": FAIL,
    "suspended": message(b"P", b"\0select * from rows(5)\0\0\0")
    + message(b"B", b"p\0\0\0\0\0\0\0\0")
    + message(b"E", b"p\0\0\0\0\2"),
    "copy": message(b"Q", COPY),
    "copied": message(b"P", b"\0" + COPY + b"\0\0") + RUN,
}
READIES = {"idle": 0, "block": 1, "failed": 2, "pipeline": 0, "silent": 0, "suspended": 0}
"""How many ReadyForQuery the way to the state has."""


@pytest.fixture(autouse=True)
async def _leave_nothing_open() -> AsyncIterator[None]:
    yield
    while OPEN:
        await OPEN.pop().close()


def spoiled(body: bytes) -> Iterator[bytes]:
    """A body, cut at each place, and with something behind it."""
    yield body
    for at in range(len(body)):
        yield body[:at]
    yield body + b"\0"
    yield b"\xff" * len(body)


async def told(served: Served, data: bytes) -> list[tuple[bytes, bytes]]:
    """All that is said to it until the server hangs up, which it does in time."""
    raw = await Raw.logged_in(served)
    raw.send(data)
    async with asyncio.timeout(10):
        words = await raw.reader.read()
    found = []
    at = 0
    while at < len(words):
        size = int.from_bytes(words[at + 1 : at + 5])
        found.append((words[at : at + 1], words[at + 5 : at + 1 + size]))
        at += 1 + size
    await raw.close()
    return found


def sqlstates(found: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    errors = []
    for kind, body in found:
        if kind == b"E":
            fields = {one[:1]: one[1:].decode() for one in body.split(b"\0") if one}
            errors.append((fields[b"V"], fields[b"C"]))
    return errors


def test_each_kind_of_a_client_has_a_body_here() -> None:
    """A kind of message was added and nobody looked how it ends."""
    known = {chr(kind) for kind, most in enumerate(codec._LENGTH_MAX) if most}
    assert known == {*BODIES, "p"}


@pytest.mark.few(8)
@pytest.mark.parametrize("state", READIES)
async def test_each_message_ends_in_each_state(served: Served, state: str) -> None:
    """Behind some message the client waits for ever, or is told twice that it is its turn."""
    for kind, body in BODIES.items():
        bodies = list(spoiled(body)) if state == "idle" else [body, body[:-1], body + b"\0"]
        for one in bodies:
            sent = message(kind.encode(), one)
            found = await told(served, STATES[state] + sent + SYNC + PROBE + GOODBYE)
            if kind == "X":
                assert sqlstates(found)[READIES[state] - 1 :] == [] or state != "idle"
                assert len([1 for kind, _ in found if kind == b"Z"]) == READIES[state]
                continue
            # of the state, of a message that is answered by itself, of SYNC, of PROBE
            own = kind == "S" or (kind in "QF" and state != "silent")
            readies = [body for kind, body in found if kind == b"Z"]
            assert len(readies) == READIES[state] + own + 2, (kind, one, found)
            assert found[-1][0] == b"Z"
            assert all(severity == "ERROR" for severity, _ in sqlstates(found))
            if state == "idle" and one != body and kind not in "dcf":
                assert sqlstates(found)[0][1] in ("08P01", "22021", "26000", "34000", "42601")


async def test_kinds_that_are_none_end_the_connection_in_each_state(served: Served) -> None:
    """A peer that speaks something else kept its connection, or was not told why it lost it."""
    for kind in range(256):
        if chr(kind) in BODIES:
            continue
        for state in STATES if kind in b"zpR\0" else ("idle",):
            found = await told(served, STATES[state] + message(bytes([kind]), b"\0") + PROBE)
            assert sqlstates(found)[-1] == ("FATAL", "08P01"), (kind, state)
            assert found[-1][0] == b"E"
    await works(served)


@pytest.mark.parametrize("state", ["copy", "copied"])
async def test_each_message_ends_in_a_copy(served: Served, state: str) -> None:
    """A message that belongs to no COPY kept one open for ever, or its rows were kept."""
    for kind, body in BODIES.items():
        if kind in "dcfHS":
            end = message(b"c", b"") if kind in "dHS" else b""
            found = await told(
                served, STATES[state] + message(kind.encode(), body) + end + SYNC + PROBE + GOODBYE
            )
            readies = [body for kind, body in found if kind == b"Z"]
            assert len(readies) == 2 + (state == "copy"), (kind, found)
            assert sqlstates(found) == ([("ERROR", "57014")] if kind == "f" else [])
        else:
            found = await told(served, STATES[state] + message(kind.encode(), body) + PROBE)
            assert sqlstates(found) == [("ERROR", "08P01"), ("FATAL", "08P01")], kind
    assert {tuple(row) for row in served.sessions.shared.copied} == {(1, "a")}


async def test_a_length_that_none_has_ends_the_connection(served: Served) -> None:
    """The next message was looked for where none begins."""
    for kind in BODIES:
        for length in (0, 3, 1 << 30 | 1, 0xFFFF_FFFF):
            found = await told(served, kind.encode() + struct.pack(">I", length) + PROBE)
            assert sqlstates(found) == [("FATAL", "08P01")]


# -- what is finished does not wait for what is not


def query(text: bytes) -> bytes:
    return message(b"Q", text + b"\0")


def extended(text: bytes) -> bytes:
    return message(b"P", b"\0" + text + b"\0\0\0") + RUN + SYNC


@pytest.mark.parametrize("ask", [query, extended])
@pytest.mark.parametrize("together", [True, False])
async def test_an_answer_goes_out_before_the_next_message_waits(
    served: Served, ask: Callable[[bytes], bytes], together: bool
) -> None:
    """An answer was held back until a later statement of the same pipeline had ended."""
    raw = await Raw.logged_in(served)
    first, slow = ask(b"select 1"), ask(b"sleep")
    if together:
        raw.send(first + first + slow)
    else:
        raw.send(first)
        raw.send(first + slow)
    async with asyncio.timeout(5):
        for _ in range(2):
            assert (await raw.until(b"Z"))[-1] == (b"Z", b"I")
        await served.sessions.shared.running.wait()
    sleeping = served.sessions.opened[-1]._wait
    assert sleeping is not None
    sleeping.set_result(None)
    assert (await raw.until(b"Z"))[-1] == (b"Z", b"I")


async def test_an_answer_of_the_short_way_goes_out_before_the_next_message_waits(
    served: Served,
) -> None:
    """What came while a statement of the short way ran held its answer back."""
    shared = served.sessions.shared
    shared.short = True
    raw = await Raw.logged_in(served)
    raw.send(message(b"P", b"s\0select $1::int4\0\0\0") + SYNC)
    await raw.until(b"Z")
    raw.send(message(b"B", b"\0s\0\0\0\0\1\0\0\0\0017\0\0") + message(b"E", bytes(5)) + SYNC)
    async with asyncio.timeout(5):
        await shared.running.wait()
        shared.running.clear()
        raw.send(query(b"sleep"))
        decoder = next(iter(served.server._connections))._decoder
        await until(lambda: bool(decoder._chunks))
        done, answer = shared.begun.pop()
        done(answer)
        assert (await raw.until(b"Z"))[-1] == (b"Z", b"I")
        await shared.running.wait()
    sleeping = served.sessions.opened[-1]._wait
    assert sleeping is not None
    sleeping.set_result(None)
    assert (await raw.until(b"Z"))[-1] == (b"Z", b"I")


async def test_answers_that_wait_for_nothing_go_out_together(served: Served) -> None:
    """Each answer of a pipeline of short statements cost a write of its own."""
    raw = await Raw.logged_in(served)
    connection = next(iter(served.server._connections))
    transport = connection._transport
    assert transport is not None
    writes: list[bytes] = []

    class Counting:
        def write(self, data: bytes) -> None:
            writes.append(data)
            transport.write(data)

        def __getattr__(self, name: str) -> object:
            return getattr(transport, name)

    connection._transport = Counting()  # type: ignore[assignment]
    raw.send(extended(b"select 1") * 20)
    for _ in range(20):
        await raw.until(b"Z")
    connection._transport = transport
    assert len(writes) <= 3
