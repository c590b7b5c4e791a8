"""Who waits for a definition is told what became of it, or that this is not known (docs/decisions/
1050): never that it failed because somebody could not be asked.
"""

from __future__ import annotations

from typing import Any

import pytest

from kv.base.adapters import LoopTimers
from kv.base.errors import (
    DeadlineExceeded,
    KvorumError,
    NotFound,
    Refused,
    Unavailable,
    UnknownOutcome,
)
from kv.base.ids import ProcedureId
from kvorum.testing.simulation.loop import SimLoop, run
from procedures.engine.registry import declaration
from sqlproxy.ddl.change.parts import AddParts
from sqlproxy.ddl.change.waiting import carried_out
from sqlproxy.values.errors import from_store

ENDED = {"id": "7", "name": "CreateIndex", "state": "SUCCESS", "step": "done", "result": {"n": 1}}
RUNNING = {**ENDED, "state": "WAITING", "progress": [0.5, "500 rows"], "result": None}


class Master:
    """Answers what it was given, in order; the last one for ever."""

    def __init__(self, *answers: Any, acknowledged: KvorumError | None = None) -> None:
        self.answers = list(answers)
        self.acknowledged = acknowledged
        self.nonces: list[str | None] = []

    async def submit(self, name: str, args: Any = None, *, nonce: str | None = None) -> ProcedureId:
        self.nonces.append(nonce)
        return ProcedureId(7)

    async def get(self, id: int, *, wait_ms: int = 0) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KvorumError):
            raise answer
        return answer

    async def acknowledge(self, id: int) -> None:
        if self.acknowledged is not None:
            raise self.acknowledged


def outcome(master: Master) -> Any:
    """What `carried_out` returns or raises, in virtual time."""

    async def main(loop: SimLoop) -> None:
        try:
            found.append(
                await carried_out(
                    master, LoopTimers(loop), "CreateIndex", {}, nonce="n", tell=lambda _text: None
                )
            )
        except KvorumError as error:
            found.append(error)

    found: list[Any] = []
    run(main, 1)
    return found[0]


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("its node is gone", code="NO_MASTER"),
        DeadlineExceeded("no answer"),
        UnknownOutcome("the reply was lost"),
    ],
)
def test_q1_a_master_that_is_away_for_a_while_is_asked_again(error: KvorumError) -> None:
    """CREATE INDEX was told 40001 or 57014 when a node died, and the index was there afterwards."""
    master = Master(error, error, RUNNING, error, ENDED)
    assert outcome(master) == {"n": 1}
    assert master.nonces == ["n"], "a lost answer to the submission would submit a second one"


def test_q1_a_success_that_cannot_be_acknowledged_is_a_success() -> None:
    """The definition was done, and its client was told an error of the clean-up behind it."""
    assert outcome(Master(ENDED, acknowledged=Unavailable("gone"))) == {"n": 1}


@pytest.mark.parametrize("error", [Unavailable("gone"), NotFound("forgotten")])
def test_q1_what_nobody_tells_is_not_known(error: KvorumError) -> None:
    """After long silence the truth is that it may have been done: 40003, and where to look."""
    found = outcome(Master(error))
    assert isinstance(found, UnknownOutcome)
    told = from_store(found)
    assert told.sqlstate == "40003"
    assert "procedure 7" in told.detail
    assert "SHOW JOBS" in told.detail


def test_q3_who_waits_for_several_parts_is_told_of_the_one_that_runs() -> None:
    """ADD COLUMN … NOT NULL of a large table would be silent for minutes."""
    parts = {**ENDED, "state": "WAITING", "children": [{"first": "8", "count": 1}] * 2}
    part = {**RUNNING, "name": "AddColumn", "progress": {"part": 0.5, "text": "500 rows"}}
    part["step"] = "fill"
    heard: list[str] = []

    async def main(loop: SimLoop) -> None:
        gone = NotFound("it has just ended")
        master = Master(parts, part, parts, gone, parts, part, ENDED)
        await carried_out(master, LoopTimers(loop), "AddParts", {}, nonce="n", tell=heard.append)

    run(main, 1)
    assert heard == ["add column: fill, 500 rows, about 50%"] * 2


def test_q1_what_ended_it_is_told() -> None:
    """A definition that was rolled back is a failure with the code of its step."""
    failed = {**ENDED, "state": "ROLLED_BACK", "error": {"code": "NO_ROOM", "message": "full"}}
    found = outcome(Master(RUNNING, failed))
    assert isinstance(found, Refused)
    assert (found.code, found.message) == ("NO_ROOM", "full")


def test_p4_one_alter_table_may_name_many_keys() -> None:
    """Each locks its name: more than 63 were refused."""
    names = [f"k{n}" for n in range(200)]
    parts = [["CreateIndex", {"index": {"name": name}}] for name in names]
    locks = declaration(AddParts).locks_of({"namespace": "d", "name": "t", "parts": parts})
    assert len(locks) == 201
