"""`connect(timeout_ms=…)` where nodes answer and what is waited for does not end: a schema change,
or a procedure, is cut short as a whole, and what is told says how to look.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kvorum
from kvorum.sdk.defining import AsyncDefining
from kvorum.sdk.operation_deadlines import bounded
from tests.kvorum.surfaces.conftest import Served

TIMEOUT_MS = 700
LONGEST_S = 4.0  # on a busy machine
ASKS = {"namespaces", "namespace", "tables"}  # they wait for no procedure
CHANGES: dict[str, Callable[[kvorum.Database], Any]] = {
    "create_namespace": lambda db: db.create_namespace("cut_new"),
    "modify_namespace": lambda db: db.modify_namespace("cut", replicas=1),
    "disable_namespace": lambda db: db.disable_namespace("cut"),
    "enable_namespace": lambda db: db.enable_namespace("cut"),
    "drop_namespace": lambda db: db.drop_namespace("cut"),
    "create_table": lambda db: db.create_table("cut", "new"),
    "modify_table": lambda db: db.modify_table("cut", "t", replicas=1),
    "disable_table": lambda db: db.disable_table("cut", "t"),
    "enable_table": lambda db: db.enable_table("cut", "t"),
    "drop_table": lambda db: db.drop_table("cut", "t"),
}


@pytest.fixture(scope="module", params=["sdk", "http"])
def hurried(served: Served, request: pytest.FixtureRequest) -> Iterator[kvorum.Database]:
    base = served.base
    url = f"kvorum://127.0.0.1:{base}" if request.param == "sdk" else f"http://127.0.0.1:{base + 2}"
    patient = served.by_name["embedded"]
    patient.create_namespace("cut", exists_ok=True)
    patient.create_table("cut", "t", exists_ok=True)
    with kvorum.connect(url, timeout_ms=TIMEOUT_MS) as db:
        yield db


class Silent:
    """Answers nothing."""

    def __getattr__(self, name: str) -> Any:
        async def wait(*args: Any) -> None:
            await asyncio.Event().wait()

        return wait


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("schedule.list", kvorum.DeadlineExceeded),
        ("explain", kvorum.DeadlineExceeded),
        ("schedule.remove", kvorum.UnknownOutcome),
        ("signal", kvorum.UnknownOutcome),
    ],
)
async def test_a_question_is_not_in_doubt(what: str, told: type[kvorum.KvorumError]) -> None:
    """Who listed schedules was told that it may have been executed; or a signal was called lost."""
    with pytest.raises(told):
        await bounded(Silent(), 1).control(what, {})  # type: ignore[arg-type]


def test_every_schema_change_is_looked_at() -> None:
    """A new one would not be bounded, and nobody would notice."""
    named = {name for name, _ in inspect.getmembers(AsyncDefining, inspect.isfunction)}
    assert {name for name in named if not name.startswith("_")} - ASKS == set(CHANGES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_schema_change_is_bounded_as_a_whole(
    name: str, hurried: kvorum.Database, served: Served
) -> None:
    """It waited for a lock for as long as somebody had it, or was called a failure, though it goes
    on.
    """
    patient = served.by_name["embedded"]
    with patient.lock("namespace/cut", ttl_ms=20_000), patient.lock("namespace/cut_new"):
        others = {p.id for p in patient.procedures()}  # also of other tests that use this node
        began = time.monotonic()
        with pytest.raises(kvorum.UnknownOutcome) as told:
            CHANGES[name](hurried)
        assert time.monotonic() - began < LONGEST_S
        [one] = [p for p in patient.procedures() if p.id not in others and not p.finished]
        patient.abort_procedure(one.id, "the test is over")
        if told.value.details.get("procedure"):  # else its submission was not answered in time
            assert "kvorum://" in repr(hurried)
            assert told.value.details["procedure"] == str(one.id)
            assert f"kvorum proc show {one.id}" in told.value.message
        else:
            assert "look before you repeat it" in told.value.message
    with pytest.raises(kvorum.KvorumError):
        patient.wait(one.id, timeout_ms=20_000)


def test_a_wait_is_bounded_by_the_connection(hurried: kvorum.Database, served: Served) -> None:
    """It waited for ever, or was called the procedure's failure; a time of its own counts more."""
    patient = served.by_name["embedded"]
    with patient.lock("table/cut/t"):
        id = patient.submit("DropTable", {"namespace": "cut", "name": "t"})
        for given, most_s in ((None, LONGEST_S), (100, LONGEST_S)):
            began = time.monotonic()
            with pytest.raises(kvorum.DeadlineExceeded, match="it goes on"):
                hurried.wait(id, timeout_ms=given)
            assert time.monotonic() - began < most_s
        patient.abort_procedure(id, "the test is over")
    with pytest.raises(kvorum.KvorumError, match="the test is over"):
        hurried.wait(id, timeout_ms=20_000)
