"""What a nonce stands for: one procedure with these arguments, while it is kept. Virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest
from typing_extensions import TypedDict

from kv.base.errors import KvorumError
from procedures.engine import procedure as p
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome
from procedures.engine.registry import Registry, declaration, procedure, step
from procedures.engine.submission import Submission
from tests.procedures.lab import Lab, refusal
from tests.procedures.zoo import TYPES, Zoo
from tests.support import simloop


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
