"""Procedures of test_procedure_messages.py."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import kvorum


@dataclass
class Line:
    item: str
    count: int = 1


@dataclass
class Cart:
    owner: str
    lines: list[Line] = field(default_factory=list)
    notes: dict[str, Line] = field(default_factory=dict)
    gift: Line | None = None
    free: Any = None


@kvorum.procedure("message.cart", args=Cart)
class Typed:
    """Says whose it is."""

    @kvorum.step(first=True)
    def go(self, ctx: Any) -> Any:
        return kvorum.done(ctx.args.owner)


@kvorum.procedure("message.writes")
class Writes:
    """Three writes in one step, of which the last has a condition that does not hold."""

    @kvorum.step(first=True)
    def go(self, ctx: Any) -> Any:
        table = ctx.txn.table("default", ctx.args)
        table.put("a", "1")
        table.put("b", "2")
        table.put("c", "3", if_version=77)
        return kvorum.done()


@kvorum.procedure("message.child")
class Child:
    @kvorum.step(first=True)
    def go(self, ctx: Any) -> Any:
        return kvorum.suspend(event="never", then="go")


@kvorum.procedure("message.parent")
class Parent:
    @kvorum.step(first=True)
    def go(self, ctx: Any) -> Any:
        return kvorum.children([("message.child", None)], then="go")


@kvorum.procedure("message.busy")
class Outside:
    """Whose step cannot, now."""

    @kvorum.step(first=True)
    async def go(self, ctx: Any) -> Any:
        raise kvorum.Busy("the bank is closed")


@kvorum.procedure("message.cancels")
class Cancels:
    """Cancels the task that it runs in: and then waits, goes on, or returns."""

    @kvorum.step(first=True)
    async def go(self, ctx: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        if ctx.args == "later":
            await asyncio.sleep(0)
        task.cancel()
        if ctx.args != "returns":
            await asyncio.sleep(60)
        return kvorum.done()


@kvorum.procedure("message.timeouts")
class Timeouts:
    """Has things of its own cancelled, and goes on."""

    @kvorum.step(first=True)
    async def go(self, ctx: Any) -> Any:
        found = []
        for _ in range(3):
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.sleep(60)
            except TimeoutError:
                found.append("timeout")
        other = asyncio.ensure_future(asyncio.sleep(60))
        other.cancel()
        await asyncio.wait([other])
        return kvorum.done([*found, other.cancelled()])
