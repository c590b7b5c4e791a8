"""What takes bytes of strangers: `make attack` at a small scale."""

from __future__ import annotations

import inspect

from hypothesis import given, settings
from hypothesis import strategies as st

from sqlproxy.wire import codec
from tests.attack.decoders import _READS, Target, targets, tried
from tests.attack.mutations import Mutator
from tests.attack.statements import Statements
from tests.kit.each import each

TARGETS = targets()
_OF_REPLIES = {"read_startup", "read_text"}  # asked within others


@each("target", TARGETS, ids=lambda target: target.name)
def test_good_and_mutated_bytes_are_taken_or_refused(target: Target) -> None:
    """Bytes of a stranger raised what nobody expects, or held the loop."""
    mutator = Mutator(7)
    inputs = [*target.samples, *(mutator.make(target.samples) for _ in range(100))]
    assert [str(one) for data in inputs if (one := tried(target, data))] == []


@given(data=st.binary(max_size=200), number=st.integers(0, len(TARGETS) - 1))
@settings(max_examples=1_000, deadline=None)
def test_any_bytes_are_taken_or_refused(data: bytes, number: int) -> None:
    """The same of bytes that were never good."""
    assert tried(TARGETS[number], data) is None


def test_every_reader_of_the_sql_wire_is_attacked() -> None:
    """A message that is added later would never be tried."""
    readers = {name for name, _ in inspect.getmembers(codec, inspect.isfunction) if "read_" in name}
    assert readers - _OF_REPLIES == {one.__name__ for one in _READS.values()}


def test_an_attack_can_be_repeated() -> None:
    """What was found once could never be looked at again."""

    def inputs(seed: int) -> list[bytes]:
        mutator = Mutator(seed)
        return [mutator.make([b"sample", b"another"]) for _ in range(50)]

    functions = [("lpad", "lpad", ["text", "int4"]), ("abs", "int4abs", ["int4"])]
    assert inputs(1) == inputs(1) != inputs(2)
    assert Statements(1, functions).make() == Statements(1, functions[::-1]).make()
