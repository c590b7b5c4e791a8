"""Procedures that the surface tests submit."""

from __future__ import annotations

from typing import Any

import kvorum


@kvorum.procedure("sample.transfer")
class Transfer:
    """Moves an amount in two steps; refuses at the second if told to, and then undoes the first."""

    @kvorum.step(first=True, undo="refund")
    async def withdraw(self, ctx: Any) -> Any:
        await self._add(ctx, ctx.args["from"], -ctx.args["amount"])
        return kvorum.next("deposit")

    @kvorum.step
    async def deposit(self, ctx: Any) -> Any:
        if ctx.args.get("refuse"):
            return kvorum.fail("NO_SUCH_ACCOUNT", "there is no such account")
        await self._add(ctx, ctx.args["to"], ctx.args["amount"])
        return kvorum.done({"moved": ctx.args["amount"]})

    @kvorum.undo
    async def refund(self, ctx: Any) -> None:
        await self._add(ctx, ctx.args["from"], ctx.args["amount"])

    async def _add(self, ctx: Any, account: str, amount: int) -> None:
        accounts = ctx.txn.table("default", ctx.args["table"])
        record = await accounts.get(account)
        balance = int(record.value) if record else 0
        accounts.put(account, str(balance + amount))


@kvorum.procedure("sample.wait")
class Wait:
    """Waits for an event that nobody sends, so that it can be aborted."""

    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:
        return kvorum.suspend(event="never", then="end")

    @kvorum.step
    def end(self, ctx: Any) -> Any:
        return kvorum.done()


@kvorum.procedure("sample.echo")
class Echo:
    """Returns its arguments."""

    @kvorum.step(first=True)
    def say(self, ctx: Any) -> Any:
        return kvorum.done(ctx.args)


@kvorum.procedure("sample.claim")
class Claim:
    """Takes a key that must be free."""

    @kvorum.step(first=True)
    def take(self, ctx: Any) -> Any:
        ctx.txn.table("default", ctx.args["table"]).put(ctx.args["key"], b"taken", if_absent=True)
        return kvorum.done()


@kvorum.procedure("sample.put")
class Put:
    """Writes a record, and reads it again if told to."""

    @kvorum.step(first=True)
    async def put(self, ctx: Any) -> Any:
        table = ctx.txn.table("default", ctx.args["table"])
        if ctx.args.get("first_read"):
            await table.get("a")
        table.put("a", "b")
        return kvorum.done(True)
