"""Procedures of the past on every surface; a step once more, by the SDK and the command (U5)."""

from __future__ import annotations

import re
from typing import Final

import httpx
import pytest

import kvorum
from tests.kit.commands import run, told
from tests.kvorum.surfaces.conftest import PROCEDURES, Served, error_of
from tests.kvorum.surfaces.sample_procedures import Transfer

_NOT_THEN: Final = "was not there|is not possible any more"


def moved(db: kvorum.Database, table: kvorum.Table) -> tuple[int, int]:
    """A transfer that has ended, and the version of its first step."""
    args = {"table": table.name, "from": "ada", "to": "bob", "amount": 3}
    id = db.submit(Transfer, args)
    assert db.wait(id) == {"moved": 3}
    row = table.get("ada")
    assert row is not None
    return id, row.version


def test_u5_a_procedure_is_shown_as_it_was_on_every_surface(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """A surface told of now, or took another form of the moment than the others."""
    id, first = moved(db, table)
    then = db.procedure(id, at=first)
    assert (then.state, then.step) == ("RUNNABLE", "deposit")
    assert [one["step"] for one in then.steps or ()] == ["withdraw"]
    assert db.procedure(id, at="-0s").state == "SUCCESS"
    # Of a node that is there for long, what is older than its retention was collected.
    with pytest.raises((kvorum.NotFound, kvorum.SnapshotTooOld), match=_NOT_THEN):
        db.procedure(id, at="-1h")
    with pytest.raises((kvorum.NotFound, kvorum.SnapshotTooOld)):
        db.procedure(id, at="1999-12-31 12:00")
    with pytest.raises(kvorum.InvalidArgument, match="at must be a timestamp"):
        db.procedure(id, at="yesterday")


def test_u5_a_step_is_replayed_over_native_connections(served: Served, table: kvorum.Table) -> None:
    """HTTP says why not."""
    for name, db in served.by_name.items():
        id, _ = moved(db, table)
        if name == "http":
            with pytest.raises(kvorum.InvalidArgument, match="cannot be asked for over HTTP"):
                db.replay_procedure(id, Transfer)
            continue
        for step in ("deposit", "withdraw"):
            replay = db.replay_procedure(id, Transfer, step=step)
            assert replay.same, replay.to_plain()
            assert [key for _, key in replay.writes] == [b"bob" if step == "deposit" else b"ada"]


def test_u5_http_takes_the_moment_of_a_procedure(http: httpx.Client) -> None:
    """What is no moment is refused, with what one is."""
    id = http.post("/v1/procedures/sample.wait").json()["id"]
    shown = http.get(f"/v1/procedures/{id}", params={"at": "-0s"}).json()
    assert (shown["id"], shown["name"]) == (id, "sample.wait")
    assert int(shown["at"]) > 0
    refused = http.get(f"/v1/procedures/{id}", params={"at": "soon"})
    assert "how long ago (-10s)" in error_of(refused, 400, "INVALID_ARGUMENT")["message"]
    answer = http.get(f"/v1/procedures/{id}", params={"at": "-1h"})
    assert answer.json()["error"]["code"] in ("PROCEDURE_NOT_FOUND", "SNAPSHOT_TOO_OLD")


def test_u5_the_commands(served: Served) -> None:
    """A procedure as it was, a replay that finds nothing, and one of code that is not there."""
    db, address = served.by_name["sdk"], served.address
    db.create_table("default", "then")
    id, first = moved(db, db.table("default", "then"))
    shown = told("proc", "show", str(id), "--at", str(first), connect=address)
    assert (shown["state"], shown["step"]) == ("RUNNABLE", "deposit")
    refused = run("proc", "show", str(id), "--at", "-1h", connect=address, code=1)
    assert re.search(_NOT_THEN, refused.err.decode())
    replay = run("proc", "replay", str(id), PROCEDURES, "--step", "deposit", connect=address)
    assert "the same as then" in replay.out.decode()
    answer = told("proc", "replay", str(id), PROCEDURES, connect=address)
    assert (answer["same"], answer["writes"]) == (True, 1)
    wrong = run("proc", "replay", str(id), "json", connect=address, code=1)
    assert "json declares no procedure sample.transfer" in wrong.err.decode()
