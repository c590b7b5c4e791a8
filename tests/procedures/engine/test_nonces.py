"""What a nonce stands for: one procedure with these arguments, while it is kept. Virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec
import pytest
from typing_extensions import TypedDict

from kv.base.errors import KvorumError
from kvorum.testing.simulation import loop as simloop
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome
from procedures.engine.registry import Registry, declaration, procedure, step
from procedures.engine.submission import Submission
from tests.procedures.lab import Lab, refusal
from tests.procedures.pools.pool_lab import Office
from tests.procedures.zoo import TYPES, Zoo


def in_lab(test: Any, types: list[type] = TYPES) -> None:
    """`test(lab)`."""

    async def main(loop: simloop.SimLoop) -> None:
        await test(Lab(loop, types))

    simloop.run(main, 0)


def submission(name: str, args: Any = None, nonce: str = "") -> Submission:
    return Submission(name, args, "tester", nonce)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"a": 1, "b": [{"x": 1, "y": 2}]}, {"b": [{"y": 2, "x": 1}], "a": 1}, True),
        ((1, 2), [1, 2], True),
        (float("nan"), float("nan"), True),
        (None, None, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": "1"}, {"a": b"1"}, False),
        (None, {}, False),
    ],
)
def test_j4_a_nonce_is_for_these_arguments(
    first: Any, second: Any, same: bool, ended: bool
) -> None:
    """Who pays 3 with the nonce of a payment of 30 would be told that it is paid."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("any", first, "n"))
            if ended:
                assert (await executor.wait(id, 1_000)).ended
            asked = submission("any", second, "n")
            if same:
                assert await executor.submit(asked) == id
                return
            told = await refusal(executor.submit(asked))
            assert told.code == "NONCE_REUSED"
            assert told.details["procedure"] == str(id)
            assert "other arguments" in told.message
            assert await executor.submit(replace(asked, first_counts=True)) == id
            assert await executor.submit(submission("any", first, "n")) == id
            await executor.wait(id, 1_000)
            await executor.acknowledge(id)
            assert await executor.submit(asked) != id

    @procedure("any")
    class Any_(Zoo):
        @step(first=True)
        async def begin(self, ctx: StepContext) -> Outcome:
            return p.done()

    in_lab(test, [Any_])


def test_j4_two_at_the_same_moment_with_other_arguments() -> None:
    """Both look for the nonce before either has it: the second one would get the first one's id."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            given = await asyncio.gather(
                *(executor.submit(submission("waiter", {"n": n % 2}, "n")) for n in range(6)),
                return_exceptions=True,
            )
            ids = [one for one in given if isinstance(one, int)]
            refused = [one for one in given if isinstance(one, KvorumError)]
            assert len(set(ids)) == 1
            assert len(ids) == len(refused) == 3
            assert {one.code for one in refused} == {"NONCE_REUSED"}

    in_lab(test)


def test_j4_arguments_of_an_older_declaration_are_the_same() -> None:
    """A field with a default was added: who repeats his submission is told that it is another."""

    async def test(lab: Lab) -> None:
        async with lab.executor() as executor:
            id = await executor.submit(submission("grows", {"item": "tea"}, "n"))
        lab.types = Registry()
        lab.types.put(replace(declaration(_new), make=lab._maker(_new)))
        async with lab.executor() as executor:
            assert await executor.submit(submission("grows", {"item": "tea"}, "n")) == id
            told = await refusal(
                executor.submit(submission("grows", {"item": "tea", "count": 2}, "n"))
            )
            assert told.code == "NONCE_REUSED"

    class Order(TypedDict):
        item: str

    @dataclass
    class Grown:
        item: str
        count: int = 1

    def declared(args: Any) -> type:
        @procedure("grows", args=args)
        class Grows(Zoo):
            @step(first=True)
            async def begin(self, ctx: StepContext) -> Outcome:
                return p.done()

        return Grows

    old, _new = declared(Order), declared(Grown)
    in_lab(test, [old])


@dataclass
class Line:
    item: str
    price: float = 1.5
    tags: frozenset[str] = frozenset()


@dataclass
class Typed:
    amount: float
    name: str = "none"
    lines: list[Line] = field(default_factory=list)
    when: datetime | None = None
    more: dict[str, int | None] = field(default_factory=dict)


class Tagged(msgspec.Struct, rename="camel", omit_defaults=True):
    item_name: str
    item_count: int = 1


class Partly(TypedDict, total=False):
    a: float
    b: int


SPELLINGS: list[tuple[Any, list[Any], list[Any]]] = [
    (
        Typed,
        [
            {"amount": 1},
            {"amount": 1.0},
            {"name": "none", "amount": 1},
            {"amount": 1, "lines": [], "when": None, "more": {}},
            Typed(1.0),
        ],
        [{"amount": 1.5}, {"amount": 1, "name": "x"}, {"amount": 1, "more": {"a": None}}],
    ),
    (
        Typed,
        [
            {"amount": 2, "lines": [{"item": "a", "tags": ["x", "y"]}]},
            {"amount": 2, "lines": ({"tags": ["y", "x"], "item": "a", "price": 1.5},)},
        ],
        [{"amount": 2, "lines": [{"item": "a", "tags": ["x"]}]}, {"amount": 2}],
    ),
    (
        Typed,
        [
            {"amount": 3, "when": "2026-01-02T03:04:05Z"},
            {"amount": 3, "when": "2026-01-02T03:04:05+00:00"},
        ],
        [{"amount": 3, "when": "2026-01-02T03:04:05"}],
    ),
    (Tagged, [{"itemName": "a"}, {"itemCount": 1, "itemName": "a"}], [{"itemName": "b"}]),
    (Partly, [{"a": 1}, {"a": 1.0}], [{"a": 1, "b": 0}, {}]),
    (dict[str, float], [{"x": 1, "y": 2}, {"y": 2.0, "x": 1}], [{"x": 1}]),
    (tuple[int, float], [(1, 2), [1, 2.0]], [[1, 3]]),
    (int | float | None, [None], [1, 1.0]),
    (int | float, [1], [1.0]),
]


@pytest.mark.parametrize("remote", [False, True], ids=["here", "workers"])
@pytest.mark.parametrize(("kind", "same", "other"), SPELLINGS, ids=lambda v: f"{v!s:.40}")
def test_j4_the_same_arguments_may_be_written_otherwise(
    kind: Any, same: list[Any], other: list[Any], remote: bool
) -> None:
    """Who repeats a submission with the defaults filled in, from another client that writes 1 for
    1.0, or in another order, would be told that it is another one.
    """

    @procedure("typed", args=kind)
    class Typed_(Zoo):
        @step(first=True)
        async def begin(self, ctx: StepContext) -> Outcome:
            return p.suspend(event="never", then="begin")

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Typed_])
        executor = await office.open(office.executor(Registry() if remote else office.lab.types))
        if remote:
            office.hire("w1")
            await office.entered("w1")
        for i, first in enumerate(same):
            nonce = f"n{i}"
            id = await executor.submit(submission("typed", first, nonce))
            for again in same:
                assert await executor.submit(submission("typed", again, nonce)) == id
            for another in other:
                told = await refusal(executor.submit(submission("typed", another, nonce)))
                assert told.code == "NONCE_REUSED", another
        if remote:
            await office.kill("w1")
            await asyncio.sleep(5)
            assert await executor.submit(submission("typed", same[0], "n0"))
            told = await refusal(executor.submit(submission("typed", other[0], "n0")))
            assert told.code == "UNAVAILABLE"  # nobody can tell: it may be the same
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)


def test_j4_without_a_type_arguments_are_compared_as_they_are() -> None:
    """No worker need be there to tell what has no type apart, though its locks depend on them."""

    @procedure("untyped", locks=lambda a: [p.exclusive(f"x/{a}")])
    class Untyped(Zoo):
        @step(first=True)
        async def begin(self, ctx: StepContext) -> Outcome:
            return p.suspend(event="never", then="begin")

    async def main(loop: simloop.SimLoop) -> None:
        office = Office(loop, [Untyped])
        executor = await office.open(office.executor())
        office.hire("w1")
        await office.entered("w1")
        assert await executor.submit(submission("untyped", 1, "n"))
        for there in (True, False):
            if not there:
                await office.kill("w1")
                await asyncio.sleep(5)
            told = await refusal(executor.submit(submission("untyped", 1.0, "n")))
            assert told.code == "NONCE_REUSED"
        await office.end()
        await office.close(executor)

    simloop.run(main, 0)
