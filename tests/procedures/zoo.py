"""Procedures for tests: every kind of outcome, forward and back. CASES is the registry that the
crash tests enumerate: a procedure added here is covered without a new test.

Effects are counters in the store, read and written in the step's own transaction: a step that took
effect twice, or half, leaves another number. `trace` keeps the order of undos.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from kv.base.errors import Unavailable
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.flow import Flow
from procedures.engine.procedure import Outcome
from procedures.engine.registry import procedure, step, undo
from procedures.engine.retries import retry
from procedures.engine.step_exceptions import StepFailed
from procedures.engine.workflow import workflow


async def bump(ctx: StepContext, key: str, by: int = 1) -> None:
    """Add to a counter, in the step's transaction."""
    table = ctx.txn.table("test", "counters")
    row = await table.get(key)
    table.put(key, str(int(row.value if row else b"0") + by))


async def trace(ctx: StepContext, what: str) -> None:
    """Append to the trace, in the step's transaction."""
    table = ctx.txn.table("test", "trace")
    row = await table.get("trace")
    table.put("trace", (row.value + b" " if row else b"") + what.encode())


class Zoo:
    lab: Any  # set by the lab


def wants(ctx: StepContext, what: str) -> bool:
    return bool(ctx.args) and what in ctx.args.get("do", ())


@procedure("three", locks=lambda a: [p.shared("bank"), p.exclusive("account/1")])
class Three(Zoo):
    """Three steps; fails, raises or has a passing trouble where the arguments say."""

    @step(first=True, undo="un_one")
    async def one(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "one")
        return await self.maybe(ctx, p.next("two"))

    @step(undo="un_two")
    async def two(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "two")
        ctx.state["seen"] = "two"
        return await self.maybe(ctx, p.next("three"))

    @step
    async def three(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "three")
        self.lab.outside[ctx.token] = 1
        return await self.maybe(ctx, p.done({"seen": ctx.state["seen"]}))

    async def maybe(self, ctx: StepContext, outcome: Outcome) -> Outcome:
        await asyncio.sleep(0.001)
        if wants(ctx, f"fail {ctx.step}"):
            return p.fail("NO", f"{ctx.step} does not want to")
        if wants(ctx, f"raise {ctx.step}"):
            raise ValueError(f"{ctx.step} broke")
        if wants(ctx, f"retry {ctx.step}") and self.lab.count(f"retry {ctx.step}") < 3:
            raise Unavailable("not now")
        return outcome

    @undo
    async def un_one(self, ctx: StepContext) -> None:
        if wants(ctx, "bad undo") and self.lab.count("bad undo") < 3:
            raise RuntimeError("undo is broken, too")
        await bump(ctx, "one", -1)
        await trace(ctx, "one")

    @undo
    async def un_two(self, ctx: StepContext) -> None:
        await bump(ctx, "two", -1)
        await trace(ctx, "two")


@procedure("loop")
class Loop(Zoo):
    """The same step again and again: each time counts for undo."""

    @step(first=True, undo="back")
    async def turn(self, ctx: StepContext) -> Outcome:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        await bump(ctx, "turns")
        if n < ctx.args["turns"]:
            return p.next("turn")
        return p.next("end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.fail("NO", "end") if wants(ctx, "fail") else p.done(ctx.state["n"])

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "turns", -1)


@procedure("leaf")
class Leaf(Zoo):
    """A child: counts, may fail."""

    @step(first=True, undo="off")
    async def on(self, ctx: StepContext) -> Outcome:
        await bump(ctx, f"leaf {ctx.args['key']}")
        self.lab.running.add(ctx.id)
        self.lab.calls["together"] = max(len(self.lab.running), self.lab.calls.get("together", 0))
        await asyncio.sleep(0.01)
        self.lab.running.discard(ctx.id)
        return p.next("end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        if wants(ctx, "fail"):
            return p.fail("LEAF", f"leaf {ctx.args['key']} fell")
        return p.done(ctx.args["key"])

    @undo
    async def off(self, ctx: StepContext) -> None:
        await bump(ctx, f"leaf {ctx.args['key']}", -1)
        await trace(ctx, ctx.args["key"])


@procedure("rounds")
class Rounds(Zoo):
    """Two rounds of three children."""

    @step(first=True, undo="un_begin")
    async def begin(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "begin")
        return p.children([(Leaf, {"key": f"a{i}"}) for i in range(3)], then="middle")

    @step(undo="un_middle")
    async def middle(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "middle")
        ctx.state["first"] = [child.result for child in ctx.children]
        bad = ["fail"] if wants(ctx, "fail child") else []
        calls = [("leaf", {"key": f"b{i}", "do": bad if i == 1 else []}) for i in range(3)]
        return p.children(calls, then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "end")
        if wants(ctx, "fail end"):
            return p.fail("NO", "at the end")
        return p.done(ctx.state["first"] + [child.result for child in ctx.children])

    @undo
    async def un_begin(self, ctx: StepContext) -> None:
        await bump(ctx, "begin", -1)
        await trace(ctx, "begin")

    @undo
    async def un_middle(self, ctx: StepContext) -> None:
        await bump(ctx, "middle", -1)
        await trace(ctx, "middle")


@procedure("tree")
class Tree(Zoo):
    """Three levels; the last leaf may fail."""

    @step(first=True)
    async def grow(self, ctx: StepContext) -> Outcome:
        depth, key = ctx.args["depth"], ctx.args["key"]
        calls: list[tuple[str | type, Any]] = []
        for i in "xy":
            args = {"key": key + i, "do": ctx.args["do"] if i == "y" else []}
            calls.append(("tree", dict(args, depth=depth - 1)) if depth > 1 else (Leaf, args))
        return p.children(calls, then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done([child.result for child in ctx.children])


@procedure("again")
class Again(Zoo):
    """A step in several committed parts: undone once, however many there were."""

    @step(first=True, undo="back")
    async def part(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "parts")
        if ctx.round < 4:
            ctx.state["parts"] = ctx.round
            return p.again(delay_ms=1_000 if ctx.round == 2 else 0)
        if wants(ctx, "fail part"):
            return p.fail("NO", "after three parts")
        ctx.state["parts"] = ctx.round
        return p.next("end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        if wants(ctx, "fail end"):
            return p.fail("NO", "after all parts")
        return p.done(ctx.state["parts"])

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "parts", -ctx.state["parts"])
        await trace(ctx, "back")


@procedure("waiter")
class Waiter(Zoo):
    """Suspends until a row is there; the event only says when to look."""

    @step(first=True)
    async def look(self, ctx: StepContext) -> Outcome:
        if await ctx.txn.table("test", "rows").get("ready") is None:
            if wants(ctx, "timeout") and ctx.wake == "timeout":
                return p.done("gave up")
            timeout_ms = 5_000 if wants(ctx, "timeout") else 0
            return p.suspend(event="ready", timeout_ms=timeout_ms, then="look")
        await bump(ctx, "seen")
        return p.done("saw it")


@procedure("signaller")
class Signaller(Zoo):
    """Starts two waiters and what they wait for, all as children."""

    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.children([(Waiter, None), (Waiter, None), ("ready", None)], then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done([child.result for child in ctx.children])


@procedure("ready")
class Ready(Zoo):
    @step(first=True)
    async def wait(self, ctx: StepContext) -> Outcome:
        return p.suspend(timeout_ms=1_000, then="put")

    @step
    async def put(self, ctx: StepContext) -> Outcome:
        ctx.txn.table("test", "rows").put("ready", b"1")
        ctx.signal("ready")
        return p.done("made it")


@procedure("forward")
class Forward(Zoo):
    """Past its point of no return failures are retried, its children's, too."""

    @step(first=True, undo="back")
    async def before(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "before")
        return p.next("point")

    @step(point_of_no_return=True)
    async def point(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "point")
        if wants(ctx, "fail point"):
            return p.fail("NO", "not yet past it")
        return p.children([(Stubborn, None)], then="after")

    @step
    async def after(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "after")
        n = self.lab.count("after")
        if n == 1:
            raise ValueError("once")
        if n == 2:
            return p.fail("NO", "twice")
        ctx.state["child"] = ctx.children[0].result
        return p.next("last")

    @step
    async def last(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "last")
        if self.lab.count("last") == 1:
            return p.fail("NO", "still no way back")
        return p.done(ctx.state["child"])

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "before", -1)


@procedure("over")
class Over(Zoo):
    """Fails over a child that is past its point of no return: that child stays as it is."""

    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        return p.children([(Forward, None), (Leaf, {"key": "over"})], then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.fail("NO", " ".join(child.state for child in ctx.children))


@procedure("stubborn")
class Stubborn(Zoo):
    @step(first=True)
    async def only(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "stubborn")
        if self.lab.count("stubborn") < 3:
            return p.fail("NO", "not before the third time")
        return p.done("at last")


@procedure("outside")
class Outside(Zoo):
    """Effects outside: by token, and undone also when half done."""

    @step(first=True, undo="cancel", undo_partial=True)
    async def order(self, ctx: StepContext) -> Outcome:
        ctx.state["token"] = ctx.token
        self.lab.outside[ctx.token] = 1
        if wants(ctx, "fail"):
            return p.fail("NO", "ordered, but not noted")
        return p.done(ctx.token)

    @undo
    async def cancel(self, ctx: StepContext) -> None:
        assert ctx.token.endswith("-undo")
        self.lab.outside[ctx.token.removesuffix("-undo")] = 0


@procedure("fat")
class Fat(Zoo):
    """Too large to be kept in memory between its steps."""

    @step(first=True)
    async def eat(self, ctx: StepContext) -> Outcome:
        ctx.state["fat"] = b"x" * 10_000
        await bump(ctx, "fat")
        return p.suspend(timeout_ms=100, event="never", then="end")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        return p.done([len(ctx.state["fat"]), len(ctx.args["blob"]), ctx.wake != ""])


@procedure("swift")
class Swift(Zoo):
    """Its first step may run with its submission; each word of `do` is another outcome of it."""

    @step(first=True, early=True, undo="back")
    async def begin(self, ctx: StepContext) -> Outcome:
        self.lab.count("swift began")
        await bump(ctx, "swift")
        if wants(ctx, "children"):
            return p.children([(Leaf, {"key": "s1"}), (Leaf, {"key": "s2"})], then="end")
        if wants(ctx, "suspend"):
            return p.suspend(timeout_ms=1_000, then="end")
        if wants(ctx, "token"):
            self.lab.outside[ctx.token] = 1
        if wants(ctx, "fail"):
            return p.fail("NO", "at once")
        if wants(ctx, "slow"):
            await asyncio.sleep(0.5)
        if wants(ctx, "more") or wants(ctx, "fail end"):
            return p.next("end")
        return p.done("swiftly")

    @step
    async def end(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "ended")
        if wants(ctx, "fail end"):
            return p.fail("NO", "at the end")
        return p.done([child.result for child in ctx.children] or "in the end")

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "swift", -1)
        await trace(ctx, "swift")


@procedure("patient", retry=retry(attempts=3, first_ms=1_000))
class Patient(Zoo):
    """Its second step fails twice, or always: how often is kept."""

    @step(first=True, undo="back")
    async def begin(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "patient")
        return p.suspend(timeout_ms=1_000, then="end")

    @step(undo="never", undo_partial=True)
    async def end(self, ctx: StepContext) -> Outcome:
        await bump(ctx, "patient")
        assert ctx.wake == "timeout", "a later attempt does not know why it runs"
        if ctx.attempt < 3 or wants(ctx, "fail"):
            raise ValueError(f"attempt {ctx.attempt}")
        return p.done("at the third attempt")

    @undo
    async def back(self, ctx: StepContext) -> None:
        await bump(ctx, "patient", -1)

    @undo
    async def never(self, ctx: StepContext) -> None:
        await trace(ctx, "end")


async def count_up(ctx: StepContext, key: str) -> str:
    await bump(ctx, key)
    return key


async def count_down(ctx: StepContext, key: str) -> None:
    await bump(ctx, key, -1)
    await trace(ctx, key)


async def breaks(ctx: StepContext, key: str) -> None:
    await bump(ctx, key)
    raise ValueError(f"{key} breaks")


@workflow("story", retry=retry(attempts=2, first_ms=500))
async def story(flow: Flow, args: Any) -> Any:
    """Every kind of call that needs nobody else; it may fail at its end, and go round."""
    do = (args or {}).get("do", [])
    one = await flow.step(count_up, "one", undo=count_down)
    two = flow.step(count_up, "two", undo=count_down)
    three = flow.step(count_up, "three", undo=count_down)
    await flow.gather(two, three)
    await flow.sleep(1_000)
    caught = ""
    try:
        await flow.step(breaks, "broken")
    except StepFailed as error:
        caught = error.type
    if "fail" in do:
        await flow.step(breaks, "broken")
    if "raise" in do:
        raise KeyError("between its steps")
    if "rounds" in do and flow.round < 3:
        return flow.again(args)
    return [one, caught, flow.round]


TYPES: list[Any] = [
    story,
    Patient,
    Swift,
    Three,
    Loop,
    Leaf,
    Rounds,
    Tree,
    Again,
    Waiter,
    Signaller,
    Ready,
    Forward,
    Over,
    Stubborn,
    Outside,
    Fat,
]


@dataclass(frozen=True)
class Case:
    """A procedure with arguments, and everything that must be true at its end."""

    name: str
    args: Any
    state: str
    result: Any = None
    error: str = ""
    numbers: dict[str, int] = field(default_factory=dict)
    undone: str | None = None  # the trace
    outside: list[int] | None = None

    def __str__(self) -> str:
        do = (self.args or {}).get("do", [])
        return "-".join([self.name, *do]).replace(" ", "_")


def _leaves(by: int) -> dict[str, int]:
    return {f"leaf {k}{i}": by for k in "ab" for i in range(3)}


_ONE_TWO = {"one": 0, "two": 0, "three": 0}
CASES = [
    Case(
        "three",
        None,
        "SUCCESS",
        {"seen": "two"},
        numbers={"one": 1, "two": 1, "three": 1},
        outside=[1],
    ),
    Case("three", {"do": ["fail one"]}, "FAILED", error="NO", numbers=_ONE_TWO),
    Case("three", {"do": ["fail two"]}, "ROLLED_BACK", error="NO", numbers=_ONE_TWO, undone="one"),
    Case(
        "three",
        {"do": ["fail three"]},
        "ROLLED_BACK",
        error="NO",
        numbers=_ONE_TWO,
        undone="two one",
    ),
    Case(
        "three",
        {"do": ["raise three", "bad undo"]},
        "ROLLED_BACK",
        error="STEP_ERROR",
        numbers=_ONE_TWO,
        undone="two one",
    ),
    Case(
        "three",
        {"do": ["retry one", "retry three"]},
        "SUCCESS",
        {"seen": "two"},
        numbers={"one": 1, "two": 1, "three": 1},
        outside=[1],
    ),
    Case("loop", {"turns": 5}, "SUCCESS", 5, numbers={"turns": 5}),
    Case("loop", {"turns": 5, "do": ["fail"]}, "ROLLED_BACK", error="NO", numbers={"turns": 0}),
    Case("loop", {"turns": 40, "do": ["long"]}, "SUCCESS", 40, numbers={"turns": 40}),
    Case(
        "rounds",
        None,
        "SUCCESS",
        ["a0", "a1", "a2", "b0", "b1", "b2"],
        numbers={"begin": 1, "middle": 1, "end": 1, **_leaves(1)},
    ),
    Case(
        "rounds",
        {"do": ["fail child"]},
        "ROLLED_BACK",
        error="LEAF",
        numbers={"begin": 0, "middle": 0, "end": 0, **_leaves(0)},
        undone="b1 b2 b0 middle a2 a1 a0 begin",
    ),
    Case(
        "rounds",
        {"do": ["fail end"]},
        "ROLLED_BACK",
        error="NO",
        numbers={"begin": 0, "middle": 0, "end": 0, **_leaves(0)},
        undone="b2 b1 b0 middle a2 a1 a0 begin",
    ),
    Case(
        "tree",
        {"depth": 2, "key": "", "do": []},
        "SUCCESS",
        [["xx", "xy"], ["yx", "yy"]],
        numbers={f"leaf {k}": 1 for k in ("xx", "xy", "yx", "yy")},
    ),
    Case(
        "tree",
        {"depth": 2, "key": "", "do": ["fail"]},
        "ROLLED_BACK",
        error="LEAF",
        numbers={f"leaf {k}": 0 for k in ("xx", "xy", "yx", "yy")},
        undone="yy yx xy xx",
    ),
    Case("again", None, "SUCCESS", 4, numbers={"parts": 4}),
    *(
        Case("again", {"do": [do]}, "ROLLED_BACK", error="NO", numbers={"parts": 0}, undone="back")
        for do in ("fail part", "fail end")
    ),
    Case("waiter", {"do": ["timeout"]}, "SUCCESS", "gave up", numbers={"seen": 0}),
    Case("signaller", None, "SUCCESS", ["saw it", "saw it", "made it"], numbers={"seen": 2}),
    Case(
        "forward",
        None,
        "SUCCESS",
        "at last",
        numbers={"before": 1, "point": 1, "after": 1, "stubborn": 1, "last": 1},
    ),
    Case(
        "forward",
        {"do": ["fail point"]},
        "ROLLED_BACK",
        error="NO",
        numbers={"before": 0, "point": 0, "after": 0, "stubborn": 0},
    ),
    Case(
        "over",
        None,
        "ROLLED_BACK",
        error="NO",
        numbers={"before": 1, "last": 1, "leaf over": 0},
        undone="over",
    ),
    Case("patient", None, "SUCCESS", "at the third attempt", numbers={"patient": 2}),
    Case(
        "patient",
        {"do": ["fail"]},
        "ROLLED_BACK",
        error="STEP_ERROR",
        numbers={"patient": 0},
        undone="end",
    ),
    Case(
        "story",
        None,
        "SUCCESS",
        ["one", "ValueError", 1],
        numbers={"one": 1, "two": 1, "three": 1, "broken": 0},
    ),
    *(
        Case(
            "story",
            {"do": [do]},
            "ROLLED_BACK",
            error="STEP_ERROR",
            numbers={"one": 0, "two": 0, "three": 0, "broken": 0},
            undone="three two one",
        )
        for do in ("fail", "raise")
    ),
    Case(
        "story",
        {"do": ["rounds"]},
        "SUCCESS",
        ["one", "ValueError", 3],
        numbers={"one": 3, "two": 3, "three": 3, "broken": 0},
    ),
    Case("swift", None, "SUCCESS", "swiftly", numbers={"swift": 1, "ended": 0}),
    *(
        Case("swift", {"do": [do]}, "SUCCESS", result, numbers={"swift": 1, "ended": ended})
        for do, result, ended in (
            ("children", ["s1", "s2"], 1),
            ("suspend", "in the end", 1),
            ("more", "in the end", 1),
            ("slow", "swiftly", 0),
        )
    ),
    Case("swift", {"do": ["token"]}, "SUCCESS", "swiftly", numbers={"swift": 1}, outside=[1]),
    Case("swift", {"do": ["fail"]}, "FAILED", error="NO", numbers={"swift": 0}),
    Case(
        "swift",
        {"do": ["fail end"]},
        "ROLLED_BACK",
        error="NO",
        numbers={"swift": 0, "ended": 0},
        undone="swift",
    ),
    Case("outside", None, "SUCCESS", outside=[1]),
    Case("outside", {"do": ["fail"]}, "ROLLED_BACK", error="NO", outside=[0]),
    Case("fat", {"blob": b"y" * 5_000}, "SUCCESS", [10_000, 5_000, True], numbers={"fat": 1}),
]
