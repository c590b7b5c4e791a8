"""Procedures of tests/kvorum/http/test_console.py, and of tests/procedures/engine/test_early.py at
a node."""

from __future__ import annotations

from typing import Any

import kvorum


@kvorum.procedure("console.child")
class Child:
    """Waits for ever."""

    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:
        return kvorum.suspend(event="never", then="end")

    @kvorum.step
    def end(self, ctx: Any) -> Any:
        return kvorum.done()


@kvorum.procedure("console.import", locks=lambda args: [kvorum.exclusive(args["lock"])])
class Import:
    """One step that can be undone, then children that wait for ever, under a lock."""

    @kvorum.step(first=True, undo="unprepare")
    def prepare(self, ctx: Any) -> Any:
        return kvorum.next("spread")

    @kvorum.step
    def spread(self, ctx: Any) -> Any:
        return kvorum.children([("console.child", None)] * 2, then="finish")

    @kvorum.step
    def finish(self, ctx: Any) -> Any:
        return kvorum.done()

    @kvorum.undo
    def unprepare(self, ctx: Any) -> None:
        """Nothing is left of it."""


@kvorum.procedure("console.quick")
class Quick:
    """One step that may be stored with its submission."""

    @kvorum.step(first=True, early=True)
    async def go(self, ctx: Any) -> Any:
        ctx.txn.table("default", "t").put(ctx.args, "1")
        return kvorum.done(ctx.args)


@kvorum.procedure("console.broken")
class Broken:
    """Fails with what it is given, which may look like markup."""

    @kvorum.step(first=True)
    def go(self, ctx: Any) -> Any:
        return kvorum.fail("BROKEN", ctx.args)
