"""What people are told when something is wrong with a procedure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kvorum
from kvorum.cli.main import app
from tests.kit.machine import free_port_base
from tests.kvorum.surfaces.conftest import SURFACES, Served

MODULE = "tests.kvorum.surfaces.message_procedures"
TOLD_CHARS = 400
"""Of a message about something far longer."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = free_port_base()
    data: Path = tmp_path_factory.mktemp("messages") / "data"
    with (
        kvorum.open(data, port=base, procedure_modules=[MODULE]) as embedded,
        kvorum.connect(f"kvorum://127.0.0.1:{base}") as sdk,
        kvorum.connect(f"http://127.0.0.1:{base + 2}") as http,
    ):
        yield Served(base, {"embedded": embedded, "sdk": sdk, "http": http})


@pytest.fixture(params=SURFACES)
def db(own: Served, request: pytest.FixtureRequest) -> kvorum.Database:
    return own.by_name[request.param]


def refused(work: Any, code: str) -> str:
    with pytest.raises(kvorum.KvorumError) as told:
        work()
    assert told.value.code == code
    return str(told.value)


def test_j3_an_unknown_procedure_is_told_with_what_may_be_meant(db: kvorum.Database) -> None:
    """A misspelt name was answered by a list of built-ins that nobody had asked for."""
    told = refused(lambda: db.submit("message.cort"), "PROCEDURE_UNKNOWN")
    assert "'message.cort'" in told
    assert "'message.cart'" in told
    assert "DropTable" not in told


@pytest.mark.parametrize(
    ("args", "place"),
    [
        ({"owner": "ada", "line": []}, "no field line"),
        ({"owner": "ada", "lines": [{"item": "a"}, {"item": "b", "cuont": 2}]}, "lines[1].cuont"),
        ({"owner": "ada", "notes": {"x": {"item": "a", "y": 1}}}, "notes['x'].y"),
        ({"owner": "ada", "gift": {"item": "a", "to": "b"}}, "gift.to"),
    ],
)
def test_j3_a_field_that_the_type_does_not_have_is_refused(
    db: kvorum.Database, args: Any, place: str
) -> None:
    """A misspelt argument was passed over, and the procedure ran without it."""
    assert place in refused(lambda: db.submit("message.cart", args), "BAD_ARGUMENTS")


def test_j3_what_a_type_leaves_open_is_open(db: kvorum.Database) -> None:
    """Unions, maps and `Any` were taken for something that has fields."""
    args = {"owner": "ada", "gift": None, "free": {"any": {"thing": 1}}, "notes": {}}
    assert db.wait(db.submit("message.cart", args)) == "ada"


def test_j3_a_huge_name_is_not_echoed(db: kvorum.Database) -> None:
    """A message as long as what was sent."""
    huge = "q" * 20_000
    for work in (
        lambda: db.submit("message.child", queue=huge),
        lambda: db.submit("message.child", pool=huge),
        lambda: db.submit("message.child", nonce=huge),
        lambda: db.set_limit(huge),
        lambda: db.set_limit("q", kind=huge),
        lambda: db.set_schedule("s", "* * * * *", "message.child", queue=huge),
        lambda: db.set_schedule(huge, "* * * * *", "message.child"),
        lambda: db.signal(1, huge),
        lambda: db.steal_lock(huge, "because"),
    ):
        with pytest.raises(kvorum.KvorumError) as told:
            work()
        assert len(str(told.value)) < TOLD_CHARS
        assert len(json.dumps(told.value.details, default=str)) < TOLD_CHARS


def test_j5_the_number_of_a_write_is_its_place_in_the_step(
    db: kvorum.Database, request: pytest.FixtureRequest
) -> None:
    """The rows that the engine writes in front of them were counted, too."""
    name = f"t_{request.node.callspec.params['db']}"
    db.create_table("default", name)
    with pytest.raises(kvorum.ConditionFailed) as told:
        db.wait(db.submit("message.writes", name))
    assert "operation 2: key b'c'" in str(told.value)
    assert told.value.details["op"] == 2


def test_m8_children_of_an_aborted_procedure_say_why(db: kvorum.Database) -> None:
    """They said that their parent had failed, and nobody knew of what."""
    parent = db.submit("message.parent")
    child = waiting_child(db, parent)
    db.abort_procedure(parent, "the shop is closed")
    info = db.procedure(child, wait_ms=5_000)
    assert info.error is not None
    assert info.error["code"] == "PARENT_FAILED"
    assert "the shop is closed" in info.error["message"]


def waiting_child(db: kvorum.Database, parent: int) -> int:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        for info in db.procedures(name="message.child"):
            if info.extra.get("parent") == str(parent) and info.state == "WAITING":
                return info.id
        time.sleep(0.01)
    raise AssertionError("there is no child")


def test_j2_a_list_says_what_is_retrying(own: Served) -> None:
    """Somebody who looks at the list saw nothing wrong with what cannot go on."""
    db = own.by_name["sdk"]
    id_ = db.submit("message.busy")
    end = time.monotonic() + 10
    while "retrying" not in db.procedure(id_).extra:
        assert time.monotonic() < end
        time.sleep(0.01)
    url = f"kvorum://127.0.0.1:{own.base}"
    told = CliRunner().invoke(app, ["proc", "list", "--name", "message.busy", "--connect", url])
    assert told.exit_code == 0
    assert "retrying: BUSY: the bank is closed" in told.output
    db.abort_procedure(id_, "seen")


@pytest.mark.parametrize("how", ["waits", "later", "returns"])
def test_j12_a_step_that_cancels_its_own_task_fails(own: Served, how: str) -> None:
    """It was taken for the end of the engine, and ran again for ever, or took the worker along."""
    db = own.by_name["embedded"]
    with pytest.raises(kvorum.KvorumError, match="cancelled its own task") as told:
        db.wait(db.submit("message.cancels", how), timeout_ms=10_000)
    assert told.value.code == "STEP_ERROR"
    assert db.wait(db.submit("message.cart", {"owner": "next"}), timeout_ms=10_000) == "next"


@pytest.mark.slow
def test_j12_what_a_step_has_cancelled_is_its_own_business(own: Served) -> None:
    """Its timeouts, and tasks that it ended, were taken for its own end."""
    db = own.by_name["embedded"]
    assert db.wait(db.submit("message.timeouts"), timeout_ms=10_000) == ["timeout"] * 3 + [True]
