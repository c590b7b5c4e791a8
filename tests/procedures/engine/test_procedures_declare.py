"""Declarations are checked when their module is imported; plain data is plain; plain methods run in
threads.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base import limits
from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.errors import InvalidArgument, KvorumError, TooLarge
from kv.base.ids import TableId
from procedures.engine import plain_data
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.executor import Executor
from procedures.engine.memory_store import MemoryStore
from procedures.engine.procedure import Outcome
from procedures.engine.registry import (
    Registry,
    declaration,
    declared_in,
    procedure,
    step,
    undo,
)
from procedures.engine.submission import Submission
from procedures.engine.typed_values import shape

T = TypeVar("T")


def fine(self: Any, ctx: Any) -> Outcome:
    return p.done()


class Lenient(Enum):
    """Has no values, so others may inherit its method."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return next(iter(cls))


class Color(Lenient):
    RED = "red"


class Plain(Enum):
    RED = "red"


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Checked(Generic[T]):
    content: T

    def __post_init__(self) -> None:
        pass


class Tree(msgspec.Struct, Generic[T]):
    content: T
    below: list[Tree[T]] = []


@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        (Box[int], False),
        (Tree[int], False),
        (dict[str, Plain], False),
        (Checked[int], True),
        (list[Checked[int]], True),
        (tuple[Box[int], Box[Checked[int]]], True),
        (Tree[Checked[int]], True),
        (Color, True),
        (Box[Color], True),
    ],
)
def test_j1_arguments_that_call_code_of_their_author_are_known(kind: Any, runs: bool) -> None:
    """A method that is inherited, or that of a generic class, ran on the node's loop."""
    assert shape(kind, "arguments").runs_code is runs


def _class(**methods: Any) -> type:
    return type("Broken", (), methods)


@pytest.mark.parametrize(
    ("cls", "name", "why"),
    [
        (_class(), "a", "exactly one step"),
        (_class(x=step(fine)), "a", "exactly one step"),
        (
            _class(x=step(first=True)(lambda s, c: 0), y=step(first=True)(lambda s, c: 0)),
            "a",
            "one",
        ),
        (_class(x=step(first=True, undo="z")(lambda s, c: 0)), "a", "no @undo method"),
        (_class(x=step(first=True)(lambda s, c: 0), z=undo(lambda s, c: 0)), "a", "no step names"),
        (_class(x=step(first=True)(lambda s: 0)), "a", "must take"),
        (_class(x=step(first=True, undo_partial=True)(lambda s, c: 0)), "a", "no undo"),
        (_class(x=step(first=True)(undo(lambda s, c: 0))), "a", "step and an undo"),
        (_class(x=step(first=True)(lambda s, c: 0)), "no spaces", "the name"),
        (_class(x=step(first=True)(lambda s, c: 0)), "", "the name"),
        (_class(x=step(first=True)(lambda s, c: 0)), "x" * 65, "the name"),
    ],
)
def test_bad_declarations_fail_at_import(cls: type, name: str, why: str) -> None:
    """A procedure that cannot run was found out only when it ran."""
    with pytest.raises(InvalidArgument, match=why) as caught:
        procedure(name)(cls)
    assert caught.value.code == "PROCEDURE_DECLARATION"


@pytest.mark.parametrize(
    "bad", [{"timeout_ms": -1}, {"retention_ms": 1 << 60}, {"version": 0}, {"timeout_ms": True}]
)
def test_bad_declaration_values(bad: dict[str, Any]) -> None:
    """A negative time or version was accepted."""
    with pytest.raises(InvalidArgument):
        procedure("bad.values", **bad)(_class(x=step(first=True)(lambda s, c: 0)))


def test_names_are_taken_once() -> None:
    """Two classes under one name: which of them would finish a half-done procedure?"""

    @procedure("declare.once")
    class One:
        @step(first=True)
        def go(self, ctx: StepContext) -> Outcome:
            return p.done()

    with pytest.raises(InvalidArgument, match=r"already taken by .*One"):

        @procedure("declare.once")
        class Two:
            @step(first=True)
            def go(self, ctx: StepContext) -> Outcome:
                return p.done()

    assert One.procedure_name == "declare.once"  # type: ignore[attr-defined]
    assert One in declared_in([__name__])
    assert p.procedure_name(One) == "declare.once"
    with pytest.raises(InvalidArgument, match="decorate"):
        p.procedure_name(int)
    with pytest.raises(InvalidArgument, match="decorate"):
        declaration(int)


def test_a_constructor_with_arguments_wants_a_factory() -> None:
    """A procedure was registered whose instances cannot be made."""

    @procedure("declare.factory")
    class Made:
        def __init__(self, service: str) -> None:
            self.service = service

        @step(first=True)
        def go(self, ctx: StepContext) -> Outcome:
            return p.done(self.service)

    with pytest.raises(InvalidArgument, match=r"service.*factory"):
        Registry([Made])
    assert Registry().add(Made, make=lambda: Made("here")).name == "declare.factory"


def test_lock_rules() -> None:
    """A lock rule that breaks, or gives something else, was found out while the procedure ran."""
    for rule in (lambda a: a["x"], lambda a: ["bank"], lambda a: [p.shared("x")] * 1025):
        made = procedure(f"declare.locks{id(rule)}", locks=rule)(
            type(
                "Locks", (), {"x": step(first=True)(lambda s, c: 0), "__qualname__": f"L{id(rule)}"}
            )
        )
        with pytest.raises(InvalidArgument):
            declaration(made).locks_of({})


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_data_round_trips(value: Any) -> None:
    """Arguments, state or a result came back as something else."""
    assert plain_data.decode(plain_data.encode(value, "it", 1 << 20)) == value


@given(PLAIN, st.sampled_from([object(), {1}, 1j, 1 << 64, {1: 2}, [[{"a": range(3)}]]]))
def test_plain_data_only(value: Any, bad: Any) -> None:
    """Something that another program could not read was stored."""
    with pytest.raises(InvalidArgument):
        plain_data.encode({"deep": [value, {"x": bad}]}, "it", 1 << 20)


def test_what_is_wrong_with_plain_data_is_told_with_its_place() -> None:
    """Nobody could find it among much."""
    for value, said in (
        (1j, "^it must be plain data"),
        ({"a": [0, {"b": 1j}]}, r"^it\.a\[1\]\.b must be"),
        ([[1 << 70]], r"^it\[0\]\[0\]: an integer of 71 bits"),
        ({"k" * 1_000: {1: 2}}, r"^it\.k{197}: keys must be text, not 1$"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            plain_data.encode(value, "it", 1 << 20)


def test_a_long_key_costs_no_more_for_what_is_in_it() -> None:
    """The place of each map within was made of it: one body of 20 MB stopped a node for minutes."""
    began = time.process_time()
    with pytest.raises(TooLarge):
        plain_data.encode({"k" * 20_000_000: {str(n): {} for n in range(60_000)}}, "it", 1 << 20)
    assert time.process_time() - began < 10


def test_plain_limit_tells_limit_and_actual() -> None:
    """A refusal for size did not say how much is allowed and how much it was."""
    with pytest.raises(TooLarge) as caught:
        plain_data.encode("x" * 100, "arguments of a", 50)
    assert caught.value.details == {"what": "arguments of a", "limit": 50, "actual": 102}


# ------------------------------------------------------------------------------ plain methods
class Names:
    async def resolve(self, namespace: str, table: str) -> TableId:
        return TableId(100)

    writable = resolve


@procedure("declare.plain")
class Plain:
    """Every kind of access from a thread."""

    @step(first=True, undo="back")
    def one(self, ctx: StepContext) -> Outcome:
        assert threading.current_thread() is not threading.main_thread()
        table = ctx.txn.table("test", "rows")
        for i in range(5):
            table.put(f"k{i}", f"v{i}")
        assert table.get("k3").value == b"v3", "a step sees what it wrote"
        assert [i.key for i in table.scan(prefix="k", limit=3)] == [b"k0", b"k1", b"k2"]
        ctx.state["token"] = ctx.token
        return p.next("two")

    @step
    def two(self, ctx: StepContext) -> Outcome:
        table = ctx.txn.table("test", "rows")
        found = [row and row.value.decode() for row in table.multi_get(["k4", "nope"])]
        keys = [i.key.decode() for i in table.scan(start="k1", end="k4", reverse=True)]
        table.delete("k0")
        assert table.get("k0") is None
        if ctx.args == "fail":
            raise StopIteration("in a thread")
        return p.done([found, keys, ctx.state["token"] == ctx.token])

    @undo
    def back(self, ctx: StepContext) -> None:
        for item in ctx.txn.table("test", "rows").scan():
            ctx.txn.table("test", "rows").delete(item.key)


@procedure("declare.late")
class Late:
    """Keeps its transaction beyond its step."""

    kept: Any = None

    @step(first=True)
    def one(self, ctx: StepContext) -> Outcome:
        Late.kept = ctx.txn
        return p.next("two")

    @step
    def two(self, ctx: StepContext) -> Outcome:
        Late.kept.put(b"x", b"y")
        return p.done()


@procedure("declare.meet")
class Meet:
    together = threading.Barrier(4)

    @step(first=True)
    def meet(self, ctx: StepContext) -> Outcome:
        self.together.wait(timeout=20)
        return p.done()


@procedure("declare.exits")
class Exits:
    """A step that wants to end the whole program."""

    @step(first=True)
    def plain(self, ctx: StepContext) -> Outcome:
        if ctx.args != "async":
            raise SystemExit(3) if ctx.args == "exit" else KeyboardInterrupt
        return p.next("other")

    @step
    async def other(self, ctx: StepContext) -> Outcome:
        sys.exit(3)


async def _run(name: str, args: Any = None, *, count: int = 4) -> Any:
    loop = asyncio.get_running_loop()
    executor = Executor(
        MemoryStore(),
        Registry([Plain, Late, Meet, Exits]),
        Names(),
        SystemClock(),
        LoopTimers(loop),
        SystemRng(),
        threads=4,
    )
    async with executor:
        ids = [await executor.submit(Submission(name, args, "me")) for _ in range(count)]
        return [await executor.wait(id, 30_000) for id in ids]


async def test_plain_methods_run_in_threads() -> None:
    """A plain method blocked the loop, or its transaction did not do what the async one does."""
    for record in await _run("declare.plain"):
        assert record.state.name == "SUCCESS", record.error
        assert plain_data.decode(record.result) == [["v4", None], ["k3", "k2", "k1"], False]


async def test_plain_method_that_raises() -> None:
    """An exception that a future cannot carry left the procedure hanging."""
    for record in await _run("declare.plain", "fail"):
        assert record.state.name == "ROLLED_BACK"
        assert record.error.type == "RuntimeError"


@pytest.mark.parametrize("how", ["exit", "interrupt", "async"])
async def test_a_step_that_exits_fails(how: str) -> None:
    """sys.exit() in a step ended its worker, then the next one that was given the procedure, and
    so on: one procedure stopped a whole pool.
    """
    for record in await _run("declare.exits", how):
        assert (record.state.name, record.error.code) == ("FAILED", "STEP_ERROR")


async def test_transaction_ends_with_its_step() -> None:
    """A write after the end of its step went nowhere without a word."""
    (record,) = await _run("declare.late", count=1)
    assert record.error.code == "STEP_ENDED"


async def test_threads_run_side_by_side() -> None:
    """Plain steps ran one after the other."""
    for record in await _run("declare.meet"):
        assert record.state.name == "SUCCESS", record.error


def test_table_limits() -> None:
    """A key or value beyond the limits failed only at the commit, or not at all."""

    async def main() -> None:
        from procedures.engine.context import StepTxn

        table = StepTxn(MemoryStore(), Names()).table("test", "rows")
        too_large = [
            lambda: table.put("k" * (limits.KEY_BYTES_MAX + 1), b""),
            lambda: table.put("k", b"x" * (limits.VALUE_BYTES_MAX + 1)),
        ]
        for act in too_large:
            with pytest.raises(TooLarge):
                act()
        bad = [
            lambda: table.put("", b""),
            lambda: table.put(5, b""),  # type: ignore[arg-type]
            lambda: table.put("k", None),  # type: ignore[arg-type]
            lambda: table.put("k", b"", if_absent=True, if_version=4),
            lambda: table.delete(b""),
        ]
        for act in bad:
            with pytest.raises(InvalidArgument):
                act()
        with pytest.raises(KvorumError):
            await table.scan(limit=-1)
        await table.put("k", b"awaited")
        row = await table.get("k")
        assert row == (b"awaited", 0)

    asyncio.run(main())
