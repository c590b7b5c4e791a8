"""Procedures whose steps end their process, hold Python's lock, block their loop; and some others
that do all that a step may. Imported by the processes of
tests/procedures/engine/test_step_processes.py, too.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import kvorum
from kv.base import limits

EARLY_MS = "KVORUM_TEST_EARLY_MS"
if patience := os.environ.get(EARLY_MS):  # of a process for steps, on a loaded machine
    vars(limits)["PROCEDURE_EARLY_MS"] = int(patience)


def note(ctx: Any) -> None:
    """That it was run, where a test can see it though nothing of it is committed."""
    where = ctx.args.get("log") if isinstance(ctx.args, dict) else None
    if where:
        with Path(where).open("a") as log:
            log.write(f"{ctx.name} {ctx.step} {ctx.attempt}\n")


def harm(how: str) -> None:
    match how:
        case "exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segv":
            ctypes.string_at(0)


@kvorum.procedure("harmful.ends", locks=[kvorum.exclusive("harmful/lock")])
class Ends:
    @kvorum.step(first=True, undo="back")
    async def begin(self, ctx: Any) -> Any:
        return kvorum.next("work")

    @kvorum.step
    def work(self, ctx: Any) -> Any:
        note(ctx)
        ctx.txn.table("default", "k").put("half", "done")
        while (go := ctx.args.get("wait_for")) and not Path(go).exists():
            time.sleep(0.01)
        if (
            ctx.attempt <= ctx.args.get("times", 1_000)
            and not Path(ctx.args.get("mended", "/nowhere")).exists()
        ):
            harm(ctx.args["how"])
        return kvorum.done(ctx.attempt)

    @kvorum.undo
    def back(self, ctx: Any) -> Any:
        if ctx.args.get("undo"):
            note(ctx)
            harm(ctx.args["undo"])


@kvorum.procedure("harmful.undo")
class Undo:
    @kvorum.step(first=True, undo="back")
    async def begin(self, ctx: Any) -> Any:
        return kvorum.next("work")

    @kvorum.step
    async def work(self, ctx: Any) -> Any:
        return kvorum.fail("NO", "no")

    @kvorum.undo
    def back(self, ctx: Any) -> None:
        note(ctx)
        harm("exit")


@kvorum.procedure("harmful.holds")
class Holds:
    """Keeps Python's lock for so many seconds: no thread and no loop of its process runs."""

    @kvorum.step(first=True)
    def work(self, ctx: Any) -> Any:
        note(ctx)
        ctypes.PyDLL(None).sleep(ctx.args["s"])
        return kvorum.done(ctx.attempt)


@kvorum.procedure("harmful.blocks")
class Blocks:
    """Blocks the loop that it runs on, until a file is there."""

    @kvorum.step(first=True)
    async def work(self, ctx: Any) -> Any:
        note(ctx)
        while not Path(ctx.args["until"]).exists():  # noqa: ASYNC240  it is what this is about
            time.sleep(0.01)  # noqa: ASYNC251
        harm(ctx.args.get("how", ""))
        return kvorum.done(ctx.attempt)


@kvorum.procedure("harmful.waits")
class Waits:
    @kvorum.step(first=True)
    def work(self, ctx: Any) -> Any:
        note(ctx)
        while not Path(ctx.args["until"]).exists():
            time.sleep(0.01)
        return kvorum.done(ctx.attempt)


@kvorum.procedure("harmful.told")
class Told:
    """Is told to stop as a service's processes are, and ends one that it forked."""

    @kvorum.step(first=True)
    def work(self, ctx: Any) -> Any:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(os.getpid(), number)
        forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        forked.start()
        forked.terminate()
        forked.join()
        return kvorum.done([ctx.attempt, forked.exitcode])


@kvorum.procedure("harmful.timed")
class Timed:
    """Does not end by its deadline, in many ways."""

    @kvorum.step(first=True, undo="back")
    async def begin(self, ctx: Any) -> Any:
        return kvorum.next(ctx.args.get("how", "plain"))

    def _live(self, ctx: Any) -> Any:
        note(ctx)
        until = time.monotonic() + ctx.args["s"]
        while time.monotonic() < until:
            with Path(ctx.args["lives"]).open("a") as lives:
                lives.write(".")
            time.sleep(0.01)
        return kvorum.done(ctx.attempt)

    @kvorum.step(deadline_ms=1_000)
    def plain(self, ctx: Any) -> Any:
        return self._live(ctx)

    @kvorum.step(deadline_ms=1_000)
    async def blocked(self, ctx: Any) -> Any:
        return self._live(ctx)

    @kvorum.step(deadline_ms=1_000)
    def locked(self, ctx: Any) -> Any:
        note(ctx)
        ctypes.PyDLL(None).sleep(int(ctx.args["s"]))
        return kvorum.done(ctx.attempt)

    @kvorum.step(deadline_ms=1_000)
    async def stubborn(self, ctx: Any) -> Any:
        note(ctx)
        until = time.monotonic() + ctx.args["s"]
        while time.monotonic() < until:
            try:
                await asyncio.sleep(ctx.args["s"])
            except asyncio.CancelledError:
                continue
        return kvorum.done(ctx.attempt)

    @kvorum.step(deadline_ms=1_000)
    async def awaits(self, ctx: Any) -> Any:
        note(ctx)
        await asyncio.sleep(ctx.args["s"])
        return kvorum.done(ctx.attempt)

    @kvorum.step(deadline_ms=60_000)
    def beside(self, ctx: Any) -> Any:
        note(ctx)
        time.sleep(ctx.args["s"] if ctx.attempt == 1 else 0)
        return kvorum.done(ctx.attempt)

    @kvorum.undo
    def back(self, ctx: Any) -> None:
        if "lives" in ctx.args:
            size = Path(ctx.args["lives"]).stat().st_size
            Path(ctx.args["lives"]).with_suffix(".undo").write_text(str(size))


@kvorum.procedure(
    "harmful.retried", retry=kvorum.retry(attempts=3, first_ms=10, never=[LookupError])
)
class Retried:
    @kvorum.step(first=True, attempt_ms=500)
    def work(self, ctx: Any) -> Any:
        note(ctx)
        if ctx.attempt < 3:
            match ctx.args["how"]:
                case "hangs":
                    time.sleep(60)
                case "value":
                    raise ValueError("no")
                case "key":
                    raise KeyError("no")
        return kvorum.done(ctx.attempt)


def shown(view: Any, args: Any) -> Any:
    return [view.state["part"], args]


@kvorum.workflow("harmful.flow", queries=[shown])
async def flow_apart(flow: kvorum.Flow, args: Any) -> Any:
    """All that a workflow may do, elsewhere: async and plain steps, undo, another procedure."""

    async def put(ctx: Any, key: str) -> str:
        ctx.txn.table("default", "k").put(key, ctx.token)
        return str(ctx.token)

    def put_plainly(ctx: Any, key: str) -> str:
        ctx.txn.table("default", "k").put(key, "plain")
        return key

    def remove(ctx: Any, key: str) -> None:
        ctx.txn.table("default", "k").delete(key)

    flow.shown["part"] = "first"
    token = await flow.step(put, "first", undo=remove)
    other = flow.start("harmful.retried", {"how": "value"})
    flow.shown["part"] = "second"
    second, third = await flow.gather(
        flow.step(put_plainly, "second", undo=remove), flow.step(put, "third", undo=remove)
    )
    said = await flow.signal("go on")
    if said == "fail":
        raise ValueError(second)
    return [await other, second, token.rpartition("-")[0] == third.rpartition("-")[0]]


@kvorum.workflow("harmful.plain_flow")
def plain_flow_apart(flow: kvorum.Flow) -> Any:
    def put(ctx: Any, key: str) -> str:
        ctx.txn.table("default", "k").put(key, "plain")
        return key

    return [flow.step(put, "p").get(), flow.start("harmful.retried", {"how": "none"}).get()]


def _rule(how: str) -> None:
    match how:
        case "spin":
            while True:
                pass
        case "hold":
            ctypes.PyDLL(None).sleep(600)
        case "raise":
            raise KeyError("amount")
        case "leave":
            raise SystemExit(3)
        case _:
            harm(how)


@dataclasses.dataclass
class Checked:
    """Arguments whose check is code of their author."""

    how: str = ""
    count: float = 1.0

    def __post_init__(self) -> None:
        _rule(self.how)


def _locks(args: Any) -> list[Any]:
    if "once" in args and not Path(args["once"]).exists():
        Path(args["once"]).touch()
        time.sleep(600)
    _rule(args["how"])
    return [kvorum.exclusive(f"rule/{args['n']}")]


@kvorum.procedure("harmful.rule", locks=_locks)
class Rule:
    @kvorum.step(first=True)
    async def work(self, ctx: Any) -> Any:
        return kvorum.done(ctx.fence(f"rule/{ctx.args['n']}") > 0)


@kvorum.procedure("harmful.checked", args=Checked, result=Checked)
class CheckedArgs:
    @kvorum.step(first=True)
    async def work(self, ctx: Any) -> Any:
        return kvorum.done({"count": ctx.args.count})


@kvorum.procedure("harmful.family")
class Family:
    """Has children whose locks or arguments are told by such a rule."""

    @kvorum.step(first=True)
    async def begin(self, ctx: Any) -> Any:
        return kvorum.children([tuple(call) for call in ctx.args], then="end")

    @kvorum.step
    async def end(self, ctx: Any) -> Any:
        return kvorum.done([child.result for child in ctx.children])


@kvorum.procedure("harmful.queued")
class Queued:
    @kvorum.step(first=True)
    async def begin(self, ctx: Any) -> Any:
        return kvorum.next("work")

    @kvorum.step(deadline_ms=60_000)
    def work(self, ctx: Any) -> Any:
        note(ctx)
        while not Path(ctx.args["until"]).exists():
            time.sleep(0.01)
        return kvorum.done()


@kvorum.procedure("harmful.early")
class EarlyOne:
    @kvorum.step(first=True, early=True)
    async def work(self, ctx: Any) -> Any:
        await asyncio.sleep(ctx.args)
        return kvorum.done(ctx.attempt)


@kvorum.procedure("harmful.quick")
class Quick:
    @kvorum.step(first=True)
    async def work(self, ctx: Any) -> Any:
        return kvorum.done(ctx.args)


# ---------------------------------------------------------------------- what any step may do
@kvorum.procedure("every.reads")
class Reads:
    @kvorum.step(first=True)
    async def begin(self, ctx: Any) -> Any:
        table = ctx.txn.table("default", "k")
        for i in range(20):
            await table.put(f"r{i:02}", str(i))
        ctx.txn.fence  # noqa: B018  it is there
        ctx.state["own"] = [(await table.get("r03")).version, len(await table.scan(prefix="r"))]
        return kvorum.next("look")

    @kvorum.step
    def look(self, ctx: Any) -> Any:
        table = ctx.txn.table("default", "k")
        many = [row.value for row in table.multi_get(["r01", "r05"])]
        part = [item.key for item in table.scan(start="r10", limit=3)]
        back = [item.key for item in table.scan(prefix="r", reverse=True, limit=2)]
        table.delete("r01")
        gone = table.get("r01")
        return kvorum.done([many, part, back, gone, table.get("none"), ctx.state, ctx.args])


@kvorum.procedure("every.outcomes")
class Outcomes:
    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:
        if ctx.round < 3:
            ctx.state["rounds"] = ctx.round
            return kvorum.again()
        return kvorum.suspend(timeout_ms=1, then="woken")

    @kvorum.step
    def woken(self, ctx: Any) -> Any:
        ctx.state["wake"] = ctx.wake
        calls = [(Quick, {"n": 1}), ("harmful.quick", [1, b"\x00", 2.5, None])]
        return kvorum.children(calls, then="end")

    @kvorum.step
    async def end(self, ctx: Any) -> Any:
        ctx.signal("somebody")
        ctx.progress(0.5, "half")
        told = [(c.name, c.state, c.result) for c in ctx.children]
        return kvorum.done([told, ctx.state, ctx.attempt, ctx.round, ctx.owner, ctx.parent])


class _NoneOfOurs(BaseException):
    """No Exception: nobody who catches those sees it."""


class _NoWords:
    def __repr__(self) -> str:
        raise ValueError("it has no words")


@kvorum.procedure("every.error")
class Errors:
    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:  # noqa: C901  a table of mistakes
        match ctx.args:
            case "raise":
                return kvorum.done({}["amount"])
            case "fail":
                return kvorum.fail("MINE", "words", {"a": {1}, "b": 1})
            case "nothing":
                return None
            case "unknown":
                return kvorum.next("nowhere")
            case "not plain":
                return kvorum.done(object())
            case "too large":
                ctx.state["much"] = "x" * 2_000_000
                return kvorum.done()
            case "no table":
                ctx.txn.table("default", "nowhere").put("k", "v")
                return kvorum.done()
            case "read no table":
                return kvorum.done(ctx.txn.table("default", "nowhere").get("k"))
            case "condition":
                ctx.txn.table("default", "k").put("k", "v", if_version=77)
                return kvorum.done()
            case "empty key":
                ctx.txn.table("default", "k").put("", "v")
                return kvorum.done()
            case "exit":
                raise SystemExit(3)
            case "generator exit":
                raise GeneratorExit
            case "keyboard":
                raise KeyboardInterrupt
            case "none of ours":
                raise _NoneOfOurs("words")
            case "child":
                return kvorum.children([("harmful.quick", object())], then="begin")
            case "no words":
                return kvorum.next(_NoWords())  # type: ignore[arg-type]
            case _:
                return kvorum.children([("nobody", None)], then="begin")


@kvorum.procedure("every.async_error")
class AsyncErrors:
    @kvorum.step(first=True)
    async def begin(self, ctx: Any) -> Any:
        return Errors().begin(ctx)


@kvorum.procedure("every.large")
class Large:
    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:
        table = ctx.txn.table("default", "k")
        for i in range(24):
            table.put(f"large{i}", bytes(1 << 20))
        return kvorum.next("read")

    @kvorum.step
    async def read(self, ctx: Any) -> Any:
        rows = await ctx.txn.table("default", "k").multi_get([f"large{i}" for i in range(24)])
        return kvorum.done(sum(len(row.value) for row in rows))


@kvorum.procedure("harmful.beating")
class Beating:
    """Says how far it is, in a process; hangs once after its third part, then goes on."""

    @kvorum.step(first=True, heartbeat_ms=500, retry=kvorum.retry(attempts=2, first_ms=10))
    def work(self, ctx: Any) -> Any:
        begun = ctx.last_heartbeat or 0
        for part in range(begun, 6):
            ctx.emit("part", part)
            ctx.heartbeat(part + 1)
            if part == 2 and not begun:
                time.sleep(3_600)
            time.sleep(0.1)
        return kvorum.done([begun, ctx.last_heartbeat])


def parts(ctx: Any) -> list[Any]:
    """Hangs once after its third part, then goes on."""
    begun = ctx.last_heartbeat or 0
    for part in range(begun, 6):
        ctx.heartbeat(part + 1)
        if part == 2 and not begun:
            time.sleep(3_600)
        time.sleep(0.1)
    return [begun, ctx.last_heartbeat]


async def blocks(ctx: Any) -> None:
    """Holds the loop up: nobody can cancel it."""
    parts(ctx)


@kvorum.workflow("harmful.calling")
async def calling(flow: kvorum.Flow, how: str) -> Any:
    """Calls one that is ended with its process."""
    fn = parts if how == "plain" else blocks
    twice = kvorum.retry(attempts=2, first_ms=10)
    return await flow.step(fn, heartbeat_ms=2_000, retry=twice)


@kvorum.workflow("harmful.calling_plain")
def calling_plain(flow: kvorum.Flow) -> list[Any]:
    twice = kvorum.retry(attempts=2, first_ms=10)
    return flow.step(parts, heartbeat_ms=2_000, retry=twice).get()
