"""Surgery, explanation and audit on every surface: embedded, native and over HTTP; the command."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import kvorum
from tests.kit.commands import run, told
from tests.kvorum.surfaces.conftest import Served, error_of


def test_m8_bypass_retry_and_audit(db: kvorum.Database) -> None:
    """An action was not possible on one surface, or its audit told something else."""
    procedure = db.submit("sample.wait")
    with pytest.raises(kvorum.DeadlineExceeded):
        db.wait(procedure, timeout_ms=50)
    with pytest.raises(kvorum.InvalidArgument, match="reason"):
        db.bypass_procedure(procedure, "")
    with pytest.raises(kvorum.InvalidArgument, match="steps: begin, end"):
        db.retry_procedure(procedure, "why", step="no such")
    told = db.retry_procedure(procedure, "once more", step="begin", actor="ann")
    assert told["procedures"][0]["after"]["step"] == "begin"
    with pytest.raises(kvorum.DeadlineExceeded):
        db.wait(procedure, timeout_ms=50)
    dry = db.bypass_procedure(procedure, "it never ends", dry_run=True)
    assert (dry["dry_run"], dry["changed"]) == (True, True)
    assert not db.procedure(procedure).finished
    told = db.bypass_procedure(procedure, "it never ends", actor="bob")
    assert told["procedures"] == dry["procedures"]
    assert db.procedure(procedure).state == "BYPASSED"
    newest, oldest = db.audit(procedure)
    assert (oldest["what"], oldest["actor"], oldest["reason"]) == ("retry", "ann", "once more")
    assert (newest["what"], newest["actor"]) == ("bypass", "bob")
    assert newest["procedures"][0]["after"]["state"] == "BYPASSED"
    with pytest.raises(kvorum.Refused):
        db.retry_procedure(procedure, "too late")


def test_u2_explain_tells_what_it_waits_for(db: kvorum.Database) -> None:
    """What a procedure waits for was not told, or of one that has ended."""
    procedure = db.submit("sample.wait")
    with pytest.raises(kvorum.DeadlineExceeded):
        db.wait(procedure, timeout_ms=50)
    told = db.explain_procedure(procedure)
    assert "waits for the event never, for " in told["sentence"]
    (wait,) = told["waits"]
    assert (wait["kind"], wait["event"]) == ("event", "never")
    db.abort_procedure(procedure, "the test is over")
    db.procedure(procedure, wait_ms=10_000)
    assert "ended FAILED: aborted: the test is over" in db.explain_procedure(procedure)["sentence"]
    with pytest.raises(kvorum.NotFound):
        db.explain_procedure(1 << 50)


def test_m8_steal_a_lock(
    db: kvorum.Database, table: kvorum.Table, request: pytest.FixtureRequest
) -> None:
    """A lock of somebody who hangs could not be taken away, or its fence still let him write."""
    resource = f"stolen/{request.node.name}"
    with db.lock(resource) as first:
        fence = first.fence
        dry = db.steal_lock(resource, "it hangs", dry_run=True)
        assert dry["procedures"][0]["procedure"] == str(first.id)
        stolen = db.steal_lock(resource, "it hangs")["procedures"]
        assert [one["procedure"] for one in stolen] == [str(first.id)]
        put = kvorum.Put("default", table.name, "k", b"v", fence=fence)
        with pytest.raises(kvorum.Refused) as refused:
            db.batch([put])
        assert refused.value.code == "FENCED_OFF"
    with pytest.raises(kvorum.NotFound, match="nobody holds"):
        db.steal_lock("stolen/by-nobody", "why not")


def test_m8_http_bodies(http: httpx.Client) -> None:
    """A body without a reason was accepted, or a wrong field was not named."""
    id = http.post("/v1/procedures/sample.wait").json()["id"]
    for what in ("abort", "bypass", "retry"):
        answer = http.post(f"/v1/procedures/{id}/{what}", json={"dry_run": True})
        assert "reason" in error_of(answer, 400, "INVALID_ARGUMENT")["message"]
    answer = http.post(f"/v1/procedures/{id}/bypass", json={"reason": "r", "recursiv": True})
    assert "recursiv" in error_of(answer, 400, "INVALID_ARGUMENT")["message"]
    answer = http.post(f"/v1/procedures/{id}/bypass", json={"reason": "r"})
    assert answer.status_code == 202
    told: dict[str, Any] = answer.json()
    assert (told["id"], told["changed"]) == (id, True)
    (entry,) = http.get(f"/v1/audit?id={id}").json()["items"]
    assert entry["actor"] == "http"


def test_m8_cli(served: Served) -> None:
    """The commands of an operator: explain, a dry run, bypass, audit."""
    address = served.address
    procedure = told("proc", "submit", "sample.wait", connect=address)["id"]
    shown = run("proc", "explain", procedure, connect=address).out.decode()
    assert shown.startswith(f"procedure {procedure} (sample.wait) ")
    assert run("proc", "bypass", procedure, connect=address, code=1).err
    why = ("--reason", "it hangs")
    dry = run("proc", "bypass", procedure, *why, "--dry-run", connect=address).out.decode()
    assert dry.startswith("would change:\n")
    done = run("proc", "bypass", procedure, *why, connect=address).out.decode()
    assert "→ BYPASSED" in done
    assert "it hangs" in run("proc", "audit", procedure, connect=address).out.decode()
