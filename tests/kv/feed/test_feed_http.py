"""The stream of a watch: its bytes, and a client whose connection breaks at the worst moments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import InvalidArgument, KvorumError, NotFound, Unavailable
from kv.base.limits import FRAME_BYTES_MAX
from kvorum.api.watching import Change, Event, WatchSpec
from kvorum.http.client.transport import HttpTransport
from kvorum.http.client.watch_client import HttpWatcher
from kvorum.http.wire import sse

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
keys = st.binary(min_size=1, max_size=5)
changes = st.lists(
    st.builds(Change, keys, st.none() | st.binary(max_size=5), st.integers(0, 1 << 40)), max_size=4
)
events = st.builds(
    Event,
    st.sampled_from(["changes", "snapshot"]),
    st.integers(1, (1 << 64) - 1),
    changes,
    st.integers(0, 9),
    st.booleans(),
)


@given(st.lists(events, max_size=4), st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_u6_events_come_back_however_they_are_cut(told: list[Event], cuts: list[int]) -> None:
    """Any bytes are keys and values, and a socket cuts a stream anywhere."""
    data = sse.COMMENT + b"".join(map(sse.event_bytes, told)) + sse.COMMENT
    decoder, at, found = sse.Decoder(), 0, []
    while at < len(data):
        size = cuts[at % len(cuts)]
        found += [sse.event_of(message) for message in decoder.feed(data[at : at + size])]
        at += size
    assert found == told


def test_u6_a_line_without_end_is_refused() -> None:
    """Whatever answers must not fill the memory of a client."""
    decoder = sse.Decoder()
    assert decoder.feed(b"data: " + bytes(FRAME_BYTES_MAX - 10)) == []
    with pytest.raises(InvalidArgument, match="event"):
        decoder.feed(bytes(10))


# --------------------------------------------------------------------------- broken connections


def part(
    version: int, number: int, keys: str, *, last: bool = False, kind: str = "changes"
) -> bytes:
    rows = [Change(key.encode(), b"v") for key in keys]
    return sse.event_bytes(Event(kind, version, rows, number, last))  # type: ignore[arg-type]


class Scripted:
    """A node that sends one script per connection, then hangs up; and what it was asked."""

    def __init__(self, scripts: Sequence[bytes]) -> None:
        self.scripts = list(scripts)
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(request.split(b" ")[1].decode())
        if self.scripts:
            writer.write(self.scripts.pop(0))
        writer.close()


@asynccontextmanager
async def scripted(*scripts: bytes) -> AsyncIterator[Scripted]:
    node = Scripted(scripts)
    server = await asyncio.start_server(node.answer, "127.0.0.1", 0)
    node.port = server.sockets[0].getsockname()[1]
    try:
        yield node
    finally:
        server.close()
        await server.wait_closed()


def watcher(node: Scripted, above: int | None = 1) -> HttpWatcher:
    return HttpWatcher(transport(node), "n", "t", WatchSpec(above, b"p"), 1_000)


def transport(node: Scripted) -> HttpTransport:
    return HttpTransport("127.0.0.1", node.port, asyncio.get_running_loop())


def test_f14_a_break_inside_an_event_repeats_no_row() -> None:
    """The node tells the event again from its first part, which may be cut elsewhere; a consumer
    must get each row once, and its parts must count on.
    """

    async def main() -> None:
        first = HEAD + part(5, 0, "ab") + part(5, 1, "cd")
        second = HEAD + part(5, 0, "abc") + part(5, 1, "def") + part(5, 2, "g", last=True)
        async with scripted(first, second + part(6, 0, "a", last=True)) as node:
            watch = watcher(node)
            told = [await watch.next() for _ in range(5)]
            assert ["".join(c.key.decode() for c in e.changes) for e in told] == [
                "ab",
                "cd",
                "ef",
                "g",
                "a",
            ]
            assert [(e.version, e.part, e.last) for e in told] == [
                (5, 0, False),
                (5, 1, False),
                (5, 2, False),
                (5, 3, True),
                (6, 0, True),
            ]
            assert watch.position == 6
            assert node.asked == ["/v1/watch/n/t?from=1&prefix=p"] * 2
            await watch.close()

    asyncio.run(main())


def test_f14_a_break_behind_an_event_goes_on_behind_it() -> None:
    """From the last whole event, also if the watch began without a version; errors that pass and
    half lines are breaks like others.
    """

    async def main() -> None:
        resolved = sse.event_bytes(Event("resolved", 3, []))
        gone = sse.error_bytes(Unavailable("stopping"))
        scripts = (
            HEAD + resolved,
            HEAD + part(4, 0, "a", last=True) + gone,
            HEAD + part(5, 0, "b", last=True)[:-9],
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}",
            HEAD + part(5, 0, "b", last=True),
        )
        async with scripted(*scripts) as node:
            watch = watcher(node, None)
            assert [(await watch.next()).version for _ in range(3)] == [3, 4, 5]
            starts = [asked.partition("?")[2].partition("&")[0] for asked in node.asked]
            assert starts == ["prefix=p", "from=3", "from=4", "from=4", "from=4"]
            await watch.close()

    asyncio.run(main())


def test_f14_a_snapshot_that_broke_off_begins_anew() -> None:
    """It is of another moment: rows of the first one must not be mixed into it."""

    async def main() -> None:
        first = HEAD + part(5, 0, "ab", kind="snapshot")
        second = HEAD + part(7, 0, "ac", kind="snapshot", last=True)
        async with scripted(first, second) as node:
            watch = watcher(node, 0)
            told = [await watch.next() for _ in range(2)]
            assert [(e.version, e.part, len(e.changes)) for e in told] == [(5, 0, 2), (7, 0, 2)]
            assert node.asked[1].startswith("/v1/watch/n/t?from=0")
            await watch.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "script",
    [
        HEAD + sse.error_bytes(NotFound("gone", code="TABLE_NOT_FOUND")),
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 90\r\n\r\n"
        + b'{"error":{"code":"TABLE_NOT_FOUND","message":"gone","retry":"no","details":{}}}'.ljust(
            90
        ),
    ],
    ids=["in the stream", "instead of it"],
)
def test_f14_what_does_not_pass_is_raised(script: bytes) -> None:
    """A watch that tries for ever what can never be tells nobody."""

    async def main() -> None:
        async with scripted(script) as node:
            with pytest.raises(NotFound) as told:
                await watcher(node).next()
            assert told.value.code == "TABLE_NOT_FOUND"

    asyncio.run(main())


def test_f14_nobody_there_is_told_in_time() -> None:
    """The first connection fails like any other operation; later ones are waited for."""

    async def main() -> None:
        async with scripted() as node:
            pass
        watch = HttpWatcher(transport(node), "n", "t", WatchSpec(1), 50)
        with pytest.raises(KvorumError) as told:
            await watch.next()
        assert told.value.code == "UNREACHABLE"

    asyncio.run(main())
