"""Procedures with typed arguments, signals, outside systems and progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import kvorum


@dataclass
class Order:
    item: str
    count: int = 1


@kvorum.procedure("more.order", args=Order)
class Typed:
    @kvorum.step(first=True)
    def take(self, ctx: Any) -> Any:
        assert isinstance(ctx.args, Order)
        return kvorum.done([ctx.args.item, ctx.args.count])


@kvorum.procedure("more.number", result=int)
class Number:
    @kvorum.step(first=True)
    def give(self, ctx: Any) -> Any:
        return kvorum.done(ctx.args)


@kvorum.procedure("more.approval")
class Approval:
    """Takes signals until one says stop; tells how far it is."""

    @kvorum.step(first=True)
    async def wait(self, ctx: Any) -> Any:
        ctx.progress(0.5, "waits for approvals")
        while (signal := await ctx.receive("approval")) is not None:
            ctx.state.setdefault("got", []).append(signal.payload)
            if signal.payload == "stop":
                return kvorum.done(ctx.state["got"])
        return ctx.until_signal("approval", then="wait")


def heard(view: Any, args: Any) -> Any:
    return [*view.state["heard"], args]


@kvorum.update.validator("say")
def short(view: Any, text: Any) -> None:
    if text == "too long":
        raise kvorum.Refused("say less", code="TOO_LONG")


@kvorum.workflow("more.talker", queries=[heard], validators=[short])
async def talker(flow: kvorum.Flow, args: Any) -> Any:
    """Takes updates until one says stop; refuses what is no text. First it hears a signal."""

    async def take(ctx: Any, update: Any) -> Any:
        if isinstance(update.args, str):
            ctx.answer(update, len(got))
            return update.args
        ctx.refuse(update, "NO_TEXT", "only text")
        return None

    got = flow.shown["heard"] = [await flow.signal("begin")]
    while got[-1] != "stop":
        said = await flow.step(take, await flow.update("say"))
        if said is not None:
            got.append(said)
    return got


@kvorum.workflow("more.teller")
async def teller(flow: kvorum.Flow, args: Any) -> Any:
    """Emits what it is signalled, until that is None."""

    async def tell(ctx: Any, what: Any) -> Any:
        ctx.emit("heard", what)
        return what

    flow.emit("begun", {"bytes": b"\xff", "args": args})
    while await flow.step(tell, await flow.signal("say")) is not None:
        pass
    flow.emit("end")


@kvorum.workflow("more.row_watcher")
async def row_watcher(flow: kvorum.Flow, table: str) -> Any:
    """What a row becomes, until it is deleted."""
    found: list[Any] = []
    since = None
    while not found or found[-1] is not None:
        row = await flow.row_changed("default", table, "watched", since=since)
        since = row.version
        found.append(None if row.value is None else row.value.decode())
        flow.emit("seen", found[-1])
    return found


@kvorum.workflow("more.typed_talker")
async def typed_talker(flow: kvorum.Flow, order: Order) -> Order:
    async def more(ctx: Any, count: int) -> int:
        return count + 1

    return Order(order.item, await flow.step(more, order.count))


@kvorum.procedure("more.drain")
class Drain:
    """Takes what there is before it waits, in plain methods; the last one is `args`."""

    @kvorum.step(first=True)
    def take(self, ctx: Any) -> Any:
        got = ctx.state.setdefault("got", [])
        while (signal := ctx.receive("m")) is not None:
            got.append(signal.payload)
        return kvorum.done(got) if ctx.args in got else ctx.until_signal("m", then="take")


@kvorum.procedure("more.payment")
class Payment:
    """Asks an outside system, in plain methods."""

    @kvorum.step(first=True)
    def ask(self, ctx: Any) -> Any:
        ctx.state["token"] = ctx.external()
        ctx.txn.table("default", ctx.args).put("token", ctx.state["token"])
        return ctx.until_done(ctx.state["token"], then="end")

    @kvorum.step
    def end(self, ctx: Any) -> Any:
        told = ctx.completed(ctx.state["token"])
        if told is None:
            return ctx.until_done(ctx.state["token"], then="end")
        if not told.ok:
            return kvorum.fail("DECLINED", str(told.error))
        return kvorum.done(told.result)


@kvorum.procedure("more.quick")
class Quick:
    @kvorum.step(first=True)
    async def go(self, ctx: Any) -> Any:
        return kvorum.done(ctx.now_ms)


@kvorum.procedure("more.held")
class Held:
    @kvorum.step(first=True)
    async def go(self, ctx: Any) -> Any:
        return ctx.until_signal("go", then="end")

    @kvorum.step
    async def end(self, ctx: Any) -> Any:
        if await ctx.receive("go") is None:
            return ctx.until_signal("go", then="end")
        return kvorum.done(ctx.now_ms)
