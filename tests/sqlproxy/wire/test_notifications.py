"""When a client is given what other sessions said to it, and how it ends if that cannot be."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from sqlproxy.catalog.notifications import Notification
from sqlproxy.values.errors import SqlError
from sqlproxy.wire.seam import Channel
from tests.sqlproxy.wire.conftest import Served


def say(channel: Channel, text: str) -> None:
    """As the session does it (sqlproxy.session.state.listening)."""
    channel.notifications.append(Notification("c", text, 7))
    assert channel.heard is not None
    channel.heard()


async def test_notifications_come_between_transactions(served: Served) -> None:
    """They would break into the rows of a statement or into a transaction, come behind the answer
    that they belong before, or wait for the next statement.
    """
    async with await psycopg.AsyncConnection.connect(served.url, autocommit=True) as conn:
        got: list[tuple[str, str, int]] = []
        conn.add_notify_handler(lambda n: got.append((n.channel, n.payload, n.pid)))
        channel = served.sessions.opened[-1].channel
        say(channel, "idle")
        assert not channel.notifications, "it is sent at once"
        await conn.execute("select 1")
        assert got == [("c", "idle", 7)]
        await conn.execute("begin")
        say(channel, "waits")
        await conn.execute("select 1")
        with pytest.raises(psycopg.errors.DivisionByZero):
            await conn.execute("fail")
        assert len(got) == 1
        await conn.execute("rollback")
        assert got[1:] == [("c", "waits", 7)]
        sleeps = asyncio.get_running_loop().create_task(conn.execute("sleep"))
        await served.sessions.shared.running.wait()
        say(channel, "while it runs")
        assert channel.notifications
        await conn.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            await sleeps
        await conn.execute("select 1")
        assert got[2:] == [("c", "while it runs", 7)]


async def test_who_can_not_be_told_is_hung_up_on(served: Served) -> None:
    """A client would go on as if it had heard everything."""
    async with await psycopg.AsyncConnection.connect(served.url, autocommit=True) as conn:
        end = served.sessions.opened[-1].channel.end
        assert end is not None
        end(SqlError("53400", "too many notifications", hint="Read them."))
        with pytest.raises(psycopg.OperationalError, match="too many notifications"):
            await conn.execute("select 1")
