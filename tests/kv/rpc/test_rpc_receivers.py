"""Who is told of a reply by a call (`kv.client.links.Receiver`), in a future's place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import Busy
from kv.base.methods import GET
from kv.base.rpc import OK, error_row
from kv.client.links import LinkExpired, LinkLost, LocalLink, Receiver


class Node:
    """What a LocalLink submits to: it keeps the rows."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []

    def submit(self, conn: LocalLink, requests: list[list[Any]]) -> None:
        self.rows += requests


class Told(Receiver):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.ends: list[Any] = []
        self.ended = asyncio.Event()

    def set_result(self, result: list[Any], /) -> None:
        self.ends.append(result)
        self.ended.set()

    def set_exception(self, error: Exception, /) -> None:
        self.ends.append(error)
        self.ended.set()


async def sent(budget_s: float = 5) -> tuple[LocalLink, Told, list[Any]]:
    """A request that has left, and the row that the node has of it."""
    node, timers, told = Node(), LoopTimers(asyncio.get_running_loop()), Told()
    link = LocalLink(node, timers)
    link.send_for(told, GET, 5_000, timers.monotonic() + budget_s, (1, 1, b"key"))
    assert node.rows == []
    await asyncio.sleep(0)
    (row,) = node.rows
    return link, told, row


async def test_receivers_are_told_behind_the_drain() -> None:
    """Statements would be answered in the middle of a drain, while the disk waits for its end; or
    twice.
    """
    link, told, row = await sent()
    link.reply([row[0], OK, b"value", 7])
    assert told.ends == []
    link.flush()
    link.reply([row[0], OK, b"value", 7])
    link.flush()
    assert told.ends == [[b"value", 7]]
    assert link.in_flight == 0


async def test_receivers_are_told_of_refusals() -> None:
    """A refused write would be told as done."""
    link, told, row = await sent()
    link.reply(error_row(row[0], Busy("later")))
    link.flush()
    (error,) = told.ends
    assert isinstance(error, Busy)


@pytest.mark.parametrize("answered", [False, True])
async def test_receivers_learn_of_a_lost_link_once(answered: bool) -> None:
    """A write whose reply was lost would never end, or be told twice; one whose reply has come is
    known to be done.
    """
    link, told, row = await sent()
    if answered:
        link.reply([row[0], OK, 7])
    link.close()
    link.flush()
    (end,) = told.ends
    if answered:
        assert end == [7]
    else:
        assert isinstance(end, LinkLost)
        assert end.sent


async def test_receivers_learn_that_time_is_over() -> None:
    """A client would wait for ever for a partition that says nothing."""
    link, told, row = await sent(budget_s=0.02)
    async with asyncio.timeout(5):
        await told.ended.wait()
    link.reply([row[0], OK, 7])
    link.flush()
    (error,) = told.ends
    assert isinstance(error, LinkExpired)
    assert error.sent
