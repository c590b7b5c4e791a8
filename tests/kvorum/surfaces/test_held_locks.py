"""Locks that users' code holds, and writes that end with them, through every surface (K9, U4)."""

from __future__ import annotations

import itertools
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest

import kvorum
from tests.kit.commands import command
from tests.kit.machine import ROOT
from tests.kit.waiting import poll
from tests.kvorum.surfaces.conftest import Served, error_of

_names = itertools.count(1)
TTL_MS = 500


@pytest.fixture
def resource() -> str:
    return f"job/{next(_names)}"


@pytest.mark.slow
def test_k9_one_at_a_time(db: kvorum.Database, resource: str) -> None:
    """Two clients held the same lock; or the second one never got it."""
    inside = Event()
    with ThreadPoolExecutor(1) as pool, db.lock(resource, ttl_ms=TTL_MS) as first:
        assert first.held
        first.check()

        def second() -> int:
            with db.lock(resource, ttl_ms=TTL_MS, owner="second") as lock:
                inside.set()
                return lock.token

        later = pool.submit(second)
        assert not inside.wait(2.5 * TTL_MS / 1000), "its heartbeats keep the first one alive"
        (wait,) = poll(
            lambda: [w for w in db.locks()["waits"] if w.get("resource") == f"lock {resource}"]
        )
        assert wait["holder"] == str(first.id)
        assert wait["kind"] == "procedure"
        first.release()
        assert later.result(10) > first.token
    assert not first.held
    with pytest.raises(kvorum.Refused, match="is lost"):
        first.check()


def test_k9_shared_ones_and_patience(db: kvorum.Database, resource: str) -> None:
    """Shared locks excluded each other, or somebody with little patience waited on."""
    with (
        db.lock(resource, exclusive=False) as a,
        db.lock(resource, exclusive=False) as b,
    ):
        assert a.token != b.token
        with pytest.raises(kvorum.Busy) as refused:
            db.lock(resource, wait_ms=200)
        assert refused.value.code == "LOCK_HELD"
    with db.lock(resource, wait_ms=5_000):
        pass


def test_k9_a_lock_keeps_procedures_out(db: kvorum.Database, table: kvorum.Table) -> None:
    """A table was dropped under somebody who had locked it: users and procedures must share."""
    with ThreadPoolExecutor(1) as pool:
        with db.lock(f"table/default/{table.name}") as lock:
            dropping = pool.submit(db.drop_table, "default", table.name)
            time.sleep(0.3)
            assert not dropping.done()
            assert table.name in [t.name for t in db.tables("default")]
            assert lock.held
        dropping.result(20)
    assert table.name not in [t.name for t in db.tables("default")]


def test_u4_writes_end_with_the_lock(
    served: Served, db: kvorum.Database, table: kvorum.Table, resource: str
) -> None:
    """Somebody who had lost his lock wrote behind the back of the next holder."""

    def batch(fence: tuple[str, int], value: str) -> int:
        put = kvorum.Put("default", table.name, "k", value, fence=fence)
        gone = kvorum.Delete("default", table.name, "z", fence=fence)
        return db.batch([put, gone])

    first = db.lock(resource, ttl_ms=60_000)
    version = batch(first.fence, "first")
    assert version > first.token
    other = served.by_name["embedded"]
    other.abort_procedure(first.id, "an operator ends it")
    with db.lock(resource) as second:
        batch(second.fence, "second")
        with pytest.raises(kvorum.Refused) as refused:
            batch(first.fence, "late")
        error = refused.value
        assert error.code == "FENCED_OFF"
        assert error.details["holder"] == str(second.id)
        assert error.details["holder_token"] == str(second.token)
        assert f"procedure {second.id} (exclusive) has it now" in error.message
    record = table.get("k")
    assert record is not None
    assert record.value == b"second"
    with pytest.raises(kvorum.Refused, match="nobody has it"):
        batch(second.fence, "late")
    first.release()


def test_u4_a_fence_is_checked(db: kvorum.Database, table: kvorum.Table) -> None:
    """A fence that is none was ignored."""
    good = kvorum.Put("default", table.name, "k", "v")
    for fence in ("lock", ("a",), ("a", "1"), (1, 1)):
        put = kvorum.Put("default", table.name, "k", "v", fence=fence)  # type: ignore[arg-type]
        with pytest.raises(kvorum.InvalidArgument, match=r"fence must be \(resource, token\)"):
            db.batch([good, put])
    with pytest.raises(kvorum.InvalidArgument, match="a fence needs a batch"):
        db.multi_write([kvorum.Put("default", table.name, "k", "v", fence=("a", 1))])
    assert table.get("k") is None


def test_k9_bad_arguments(db: kvorum.Database) -> None:
    """A senseless lock was asked for, and somebody else's was waited for instead."""
    for bad in ({"ttl_ms": 10}, {"ttl_ms": 1.5}, {"wait_ms": -1}, {"owner": 7}):
        with pytest.raises(kvorum.InvalidArgument):
            db.lock("job", **bad)  # type: ignore[arg-type]
    for name in ("", "table/x", "server/one"):
        with pytest.raises(kvorum.InvalidArgument):
            db.lock(name)


def test_k9_over_plain_http(http: httpx.Client, resource: str) -> None:
    """Somebody without the SDK could not hold a lock."""
    body = {"resource": resource, "exclusive": True, "ttl_ms": 5_000}
    ids = [http.post("/v1/procedures/kvorum.lock", json=body).json()["id"] for _ in range(2)]
    first, second = [f"/v1/locks/{id}" for id in ids]
    told = http.post(f"{first}/heartbeat", json={"wait_ms": 5_000}).json()
    assert told["state"] == "held"
    assert http.post(f"{second}/heartbeat", json={}).json()["state"] == "waiting"
    op = {"op": "put", "ns": "default", "table": "web", "key": "k", "value": "v"}
    fenced = op | {"fence": {"resource": resource, "token": told["token"]}}
    assert http.post("/v1/batch", json={"ops": [fenced]}).status_code == 200
    assert http.delete(first).status_code == 200
    assert http.post(f"{second}/heartbeat", json={"wait_ms": 5_000}).json()["state"] == "held"
    error_of(http.post("/v1/batch", json={"ops": [fenced]}), 409, "FENCED_OFF")
    assert http.delete(second).status_code == 200
    assert http.delete(second).status_code == 200, "released already"
    error_of(http.delete("/v1/locks/999999999"), 404, "PROCEDURE_NOT_FOUND")


def kvorum_lock(served: Served, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("lock", "--connect", served.address, *args),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_k9_a_command_under_a_lock(served: Served, resource: str) -> None:
    """`kvorum lock` ran its command beside another one, or hid how it ended."""
    done = kvorum_lock(
        served,
        resource,
        "--",
        "sh",
        "-c",
        "echo $KVORUM_LOCK; test $KVORUM_LOCK_TOKEN -gt 1 && exit 7",
    )
    assert (done.returncode, done.stdout) == (7, f"{resource}\n"), done.stderr
    with served.by_name["embedded"].lock(resource):
        late = kvorum_lock(served, "--wait-ms", "100", resource, "--", "echo", "inside")
    assert late.returncode == 1
    assert late.stdout == ""
    assert "was not free within 100 ms" in late.stderr
