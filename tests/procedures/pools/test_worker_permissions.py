"""Which rows of procedures a worker may read and write: those of children it only reads."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kv.base import methods, system
from kv.base.errors import Forbidden
from kv.base.keys import table_prefix, u32, u64
from kv.base.methods import OP_CHECK, OP_DELETE, OP_PUT
from kv.base.verbs import VERBS
from procedures.engine import plain_data, records
from procedures.engine.kv_store import live_key, record_key
from procedures.engine.procedure import State
from procedures.engine.records import Record
from procedures.engine.store import NOT_HELD
from procedures.pools.crew import Crew
from procedures.pools.worker_permissions import pools_of, written

PARENT, RUNS, ENDED, STRANGER = 1, 2, 3, 9


class TwoChildren:
    """A worker has a procedure with two children, one of which has ended."""

    def pool_of(self, user: str, first: int, last: int, *, kin: bool = True) -> str | None:
        if first == last == PARENT:
            return "mine"
        return "mine" if kin and PARENT < first <= last <= ENDED else None

    def pool_of_new(self, user: str, id: int) -> str | None:
        return None

    def pool_telling(self, user: str, key: bytes) -> str | None:
        return None

    def lives(self, id: int) -> bool:
        return id != ENDED


def asked(number: int, **fields: Any) -> str:
    """The code of the refusal, or "done"."""
    verb = VERBS[number]
    row: list[Any] = [1, number, 0, 1, *[None] * 20]
    for name, value in fields.items():
        row[verb.at(name)] = value
    try:
        pools_of(cast(Crew, TwoChildren()), "hand", verb, row)
    except Forbidden as error:
        return error.code
    return "done"


def writes(*ops: list[Any]) -> str:
    return asked(methods.WRITE, ops=list(ops))


def record(id: int, state: State, parent: int = PARENT) -> bytes:
    args = (1, id, "some.type", 1, "ann", "", parent, b"12345678", (), plain_data.NONE, 1, 0, 1000)
    return records.encode(Record(*args, state, "run"))


@pytest.mark.parametrize("child", [RUNS, ENDED])
def test_children_are_read_and_not_written(child: int) -> None:
    """A worker of the parent's pool forged what a child had come to, which another pool runs."""
    key, steps = record_key(child), table_prefix(system.PROCEDURE_STEPS) + u64(child) + u32(0)
    due = table_prefix(system.RUNNABLE) + b"\x02" + u64(5) + u64(child)
    assert asked(methods.GET, key=key) == "done"
    assert writes([OP_PUT, record_key(PARENT), record(PARENT, State.SUCCESS), 7, 0]) == "done"
    assert writes([OP_CHECK, key, None, 7, 0]) == "done"
    for state in (State.SUCCESS, State.RUNNABLE, State.WAITING, State.FAILED, State.BYPASSED):
        for cond in (7, None):
            op = [OP_PUT, key, record(child, state), cond, 0]
            assert writes(op) == NOT_HELD, (state, cond)
            assert asked(methods.PREWRITE, ops=[op]) == NOT_HELD
    for row in (key, steps, due, live_key(child)):
        assert writes([OP_DELETE, row, None, None, 0]) == NOT_HELD
        assert asked(methods.DELETE, key=row) == NOT_HELD
    assert writes([OP_PUT, steps, b"", None, 0]) == NOT_HELD
    assert asked(methods.PUT, key=key, value=record(child, State.ROLLED_BACK)) == NOT_HELD


def test_a_child_that_has_ended_goes_back_with_its_parent() -> None:
    """Else no parent at a worker could be undone; one that runs is told by its master."""
    for state in (State.ROLLING_BACK, State.ROLLED_BACK):
        for child, code in ((ENDED, "done"), (RUNS, NOT_HELD)):
            assert writes([OP_PUT, record_key(child), record(child, state), 7, 0]) == code


@pytest.mark.parametrize("parent", [0, RUNS, STRANGER])
def test_it_goes_back_with_that_parent_alone(parent: int) -> None:
    """Under another parent's name it went back as whatever that one's owner may submit."""
    for state in (State.ROLLING_BACK, State.ROLLED_BACK):
        op = [OP_PUT, record_key(ENDED), record(ENDED, state, parent), 7, 0]
        assert writes(op) == NOT_HELD


def test_a_record_is_that_of_its_key() -> None:
    """Under the key of its own procedure a worker wrote the record of one that there was not, of
    any type and in anybody's name: a master, which reads it by the key, would have that run.
    """
    verb = VERBS[methods.WRITE]
    row: list[Any] = [1, methods.WRITE, 0, 1, *[None] * 20]
    for id in (PARENT, RUNS, STRANGER):
        ops = [[OP_PUT, record_key(PARENT), record(id, State.RUNNABLE, 0), 7, 0]]
        row[verb.at("ops")] = ops
        if id == PARENT:
            assert [one.id for one in written(verb, row)] == [PARENT]
            continue
        with pytest.raises(Forbidden) as refused:
            list(written(verb, row))
        assert refused.value.code == NOT_HELD
