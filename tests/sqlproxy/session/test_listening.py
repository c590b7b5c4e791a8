"""What a session that listens gets of the feed, and what becomes of one that does not take it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from kv.base.errors import SnapshotTooOld
from kv.base.limits import SQL_NOTIFICATIONS_MAX, SQL_PAYLOAD_BYTES_MAX
from kvorum.testing.simulation.loop import SimLoop, run
from sqlproxy.catalog.notifications import Notification, decoded, encoded, row_key, span
from sqlproxy.session.shared.notifier import Notifier
from sqlproxy.session.state.listening import Listening
from sqlproxy.session.state.notes import Notes, Wish
from sqlproxy.values.errors import SqlError
from sqlproxy.wire.seam import Channel
from txn.reading.feed_parts import Part


class Feed:
    def __init__(self) -> None:
        self.parts: asyncio.Queue[Part | None] = asyncio.Queue()
        self.closed = False

    async def next(self) -> Part:
        part = await self.parts.get()
        if part is None:
            raise SnapshotTooOld("too slow")
        return part

    async def close(self) -> None:
        self.closed = True


class Store:
    """A store whose feeds say what the test puts in."""

    def __init__(self) -> None:
        self.at = 100
        self.feeds: list[Feed] = []

    async def now(self) -> int:
        return self.at

    async def get(self, key: bytes, at: int = 0) -> tuple[bytes | None, int]:
        return None, 0

    def feed(
        self,
        ranges: Sequence[tuple[bytes, bytes]],
        *,
        above: int | None,
        check: Callable[[], Awaitable[None]],
    ) -> Any:
        assert ranges == [span("db")]
        assert above == self.at
        self.feeds.append(Feed())
        return self.feeds[-1]

    async def commit(self, version: int, *said: tuple[str, str]) -> None:
        rows = []
        for number, (channel, payload) in enumerate(said):
            key = row_key("db", version, number)
            rows.append((key, encoded(key, Notification(channel, payload, 7)), version, 1))
        for feed in self.feeds:
            if not feed.closed:
                feed.parts.put_nowait(Part("changes", version, rows))
        await asyncio.sleep(0.01)


class Session:
    def __init__(self, notifier: Notifier) -> None:
        self.wire = Channel()
        self.ended: list[SqlError] = []
        self.wire.end = self.ended.append
        self.listening = Listening(notifier, "db", self.wire)

    async def does(self, *wishes: Wish) -> None:
        """A transaction of LISTEN and UNLISTEN."""
        await self.listening.join(wishes)
        notes = Notes()
        notes.wishes.extend(wishes)
        await self.listening.committed(notes, 0)
        await asyncio.sleep(0.01)  # a feed begins

    @property
    def heard(self) -> list[str]:
        return [one.payload for one in self.wire.notifications]


def test_what_was_committed_before_is_not_heard() -> None:
    """A session would hear of what was before its LISTEN, or after its UNLISTEN; or cost a feed
    that nobody listens to.
    """

    async def main(loop: SimLoop) -> None:
        store = Store()
        notifier = Notifier(store)
        one, two = Session(notifier), Session(notifier)
        await one.does(Wish(True, "a"))
        await store.commit(110, ("a", "first"), ("b", "nobody's"))
        store.at = 120
        await two.does(Wish(True, "a"), Wish(True, "b"))
        await store.commit(115, ("a", "second"))
        await store.commit(121, ("a", "third"), ("b", "fourth"))
        assert one.heard == ["first", "second", "third"]
        assert two.heard == ["third", "fourth"]
        assert len(store.feeds) == 1
        await two.does(Wish(False, "a"))
        assert two.heard == ["fourth"]
        await one.listening.join([Wish(True, "c")])
        one.listening.failed()  # its transaction was rolled back
        await store.commit(130, ("a", "fifth"), ("c", "sixth"))
        assert (one.heard[3:], two.heard) == (["fifth"], ["fourth"])
        one.listening.close()
        await two.does(Wish(False, None))
        await asyncio.sleep(0.01)
        assert store.feeds[0].closed
        await one.does(Wish(True, "a"))
        assert len(store.feeds) == 2
        await notifier.close()

    run(main)


def test_who_does_not_take_what_he_hears_is_hung_up_on() -> None:
    """A client that reads nothing would take a node's memory, or miss something silently."""

    async def main(loop: SimLoop) -> None:
        store = Store()
        notifier = Notifier(store)
        slow, quick = Session(notifier), Session(notifier)
        quick.wire.heard = quick.wire.notifications.clear
        for session in (slow, quick):
            await session.does(Wish(True, "a"))
        for n in range(200):
            await store.commit(200 + n, ("a", "x" * SQL_PAYLOAD_BYTES_MAX))
        assert [error.sqlstate for error in slow.ended] == ["53400"]
        assert not slow.heard
        assert not quick.ended
        store.feeds[0].parts.put_nowait(None)
        await asyncio.sleep(0.01)
        assert [error.sqlstate for error in quick.ended] == ["57P01"]
        assert len(slow.ended) == 1
        assert store.feeds[0].closed
        await notifier.close()

    run(main)


def test_a_session_waits_for_what_it_says_to_itself() -> None:
    """It would get its answer before its own notification; or wait for ever for a feed that is cut
    off.
    """

    async def main(loop: SimLoop) -> None:
        store = Store()
        notifier = Notifier(store)
        session = Session(notifier)
        await session.does(Wish(True, "a"))
        notes = Notes()
        notes.say("a", "x")
        waits = loop.create_task(session.listening.committed(notes, 210))
        await store.commit(205, ("a", "other"))
        assert not waits.done()
        await store.commit(210, ("a", "x"))
        assert waits.done()
        began = loop.time()
        await session.listening.committed(notes, 300)
        assert 0.9 < loop.time() - began < 1.1
        notes = Notes()
        notes.say("b", "to others")
        await session.listening.committed(notes, 400)
        assert loop.time() - began < 1.1
        await notifier.close()

    run(main)


def test_a_transaction_says_the_same_once() -> None:
    """What is taken back to a savepoint would be said, or what came before it be lost."""
    notes = Notes()
    for payload in ("b", "a", "b"):
        notes.say("c", payload)
    mark = notes.mark()
    notes.say("c", "d")
    notes.say("c", "a")
    notes.wish(Wish(True, "c"))
    notes.undo_to(mark)
    assert (list(notes.said), notes.wishes) == ([("c", "b"), ("c", "a")], [])
    notes.say("c", "d")
    assert len(notes.said) == 3
    for n in range(SQL_NOTIFICATIONS_MAX - 3):
        notes.say("c", str(n))
    with pytest.raises(SqlError) as caught:
        notes.say("c", "one more")
    assert caught.value.sqlstate == "54000"


def test_rows_are_in_the_order_in_which_they_were_said() -> None:
    """Those of one transaction would be heard in another order than they were sent."""
    keys = [row_key("db", 5, n) for n in (0, 1, 255, 256, 70_000)]
    assert keys == sorted(keys)
    start, end = span("db")
    assert all(start < key < end for key in keys)
    assert not start <= row_key("db2", 5, 0) < end
    one = Notification("c", "ü\x01", 9)
    assert decoded(keys[0], encoded(keys[0], one)) == one
