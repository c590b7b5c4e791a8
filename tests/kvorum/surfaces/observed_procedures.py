"""Procedures whose spans are looked at."""

from __future__ import annotations

from typing import Any

import kvorum


@kvorum.procedure("observed.child")
class Child:
    @kvorum.step(first=True)
    async def write(self, ctx: Any) -> Any:
        ctx.txn.table("default", "observed").put(f"child {ctx.id}", ctx.trace)
        return kvorum.done(ctx.trace)


@kvorum.procedure("observed.parent")
class Parent:
    @kvorum.step(first=True, undo="back")
    async def begin(self, ctx: Any) -> Any:
        ctx.txn.table("default", "observed").put("parent", ctx.trace)
        await ctx.submit("observed.child")
        return kvorum.children([("observed.child", None)], then="end")

    @kvorum.step
    async def end(self, ctx: Any) -> Any:
        await ctx.txn.table("default", "observed").get("parent")
        return kvorum.fail("NO", "back") if ctx.args == "fail" else kvorum.done()

    @kvorum.undo
    async def back(self, ctx: Any) -> None:
        ctx.txn.table("default", "observed").delete("parent")
