"""The worker protocol over HTTP, spoken by the reference client on Node.js to a real node."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import kvorum
from kv.base import limits
from scripts import erase_types
from tests.kit.machine import free_port_base
from tests.kit.waiting import poll

NODE = shutil.which("node", path="/usr/bin") or shutil.which("node") or ""
CLIENT = erase_types.TARGET.parent
needs_node = pytest.mark.skipif(not NODE, reason="there is no Node.js on this machine")


def test_the_build_is_that_of_the_source() -> None:
    """Somebody changed worker.ts and not what is run."""
    made = erase_types.erased(erase_types.SOURCE.read_text()).split("\n")
    assert erase_types.TARGET.read_text().split("\n")[2:] == made[2:]
    assert len(made) < 120, "it is one page"


@pytest.mark.slow
@needs_node
def test_what_a_server_has_no_room_for_is_said_again() -> None:
    """A commit beyond its user's rate, 429, failed the step, and with it the procedure."""
    said: list[tuple[str, Any]] = []
    tasks = [{"task": "t", "kind": "step", "type": "a", "step": "go", "state": {}}]

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            what = self.path.rpartition("/")[2]
            said.append((what, body))
            crowded = what == "commit" and len([one for one, _ in said if one == "commit"]) < 3
            leased, tasks[:] = ({"tasks": tasks[:]}, []) if what == "lease" else ({}, tasks[:])
            busy = {"error": {"code": "BUSY", "message": "too many"}}
            data = json.dumps(busy if crowded else leased).encode()
            self.send_response(429 if crowded else 200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        url = f"http://127.0.0.1:{server.server_port}"
        script = (
            f'import {{ Worker, done }} from "{erase_types.TARGET.as_uri()}";'
            f'const worker = new Worker({{ url: "{url}", pool: "p", worker: "w" }}, [],'
            '{ "a.go": async () => { worker.stop(); return done(1); } }); await worker.run();'
        )
        done = [NODE, "--input-type=module", "--eval", script]
        subprocess.run(done, check=True, timeout=300)
        server.shutdown()
        serving.join()
    ends = [one for one in said if one[0] not in ("lease", "leave")]
    assert [what for what, _ in ends] == ["commit"] * 3
    assert ends[-1][1]["outcome"] == {"do": "done", "result": 1}


class Cluster:
    def __init__(self, db: kvorum.Database, base: int) -> None:
        self.db, self.url = db, f"http://127.0.0.1:{base + 2}"
        self.pools = f"{self.url}/v1/pools/typescript"

    @contextlib.contextmanager
    def worker(self, name: str) -> Iterator[subprocess.Popen[str]]:
        script = str(CLIENT / "example.mjs")
        with subprocess.Popen(
            [NODE, script, self.url, name], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                yield process
            finally:
                process.kill()

    def account(self, name: str) -> int:
        found = self.db.table("default", "accounts").get(name)
        return 0 if found is None else int(found.value)

    def told(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.pools}/{path}", json={"worker": "raw", **body}, timeout=30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    base = free_port_base()
    data: Path = tmp_path_factory.mktemp("ts") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "HTTP_LEASE_MS", 3_000)
        with kvorum.open(data, port=base) as db:
            db.create_table("default", "accounts", exists_ok=True)
            yield Cluster(db, base)


@needs_node
def test_j38_a_worker_in_another_language(cluster: Cluster) -> None:
    """A step written in TypeScript was committed otherwise than one in Python: in part, without its
    events, its signals, its undo.
    """
    db = cluster.db
    db.table("default", "accounts").put("ada", "100")
    with cluster.worker("one") as process:
        poll(lambda: bool(db.workers()) or None)
        id = db.submit("ts.transfer", {"from": "ada", "to": "bob", "amount": 30})
        assert next(db.events(id)).value == 30
        assert (cluster.account("ada"), cluster.account("bob")) == (70, 0)
        db.signal(id, "approval", True)
        assert db.wait(id, timeout_ms=20_000)["moved"] == 30
        assert (cluster.account("ada"), cluster.account("bob")) == (70, 30)
        other = db.submit("ts.transfer", {"from": "ada", "to": "bob", "amount": 50})
        db.signal(other, "approval", False)
        with pytest.raises(kvorum.Refused) as refused:
            db.wait(other, timeout_ms=20_000)
        assert refused.value.code == "NOT_APPROVED"
        assert (cluster.account("ada"), cluster.account("bob")) == (70, 30), "it gave it back"
        args = {"from": "ada", "to": "bob", "amount": 500, "approved": True}
        with pytest.raises(kvorum.Refused) as little:
            db.wait(db.submit("ts.transfer", args), timeout_ms=20_000)
        assert little.value.code == "TOO_LITTLE"
        args = {"to": 4, "ms": 10, "key": "parts", "breaks": 2}
        counted = db.wait(db.submit("ts.count", args), timeout_ms=20_000)
        assert counted == {"begun": 2, "worker": "one"}, "the next attempt reads the heartbeat"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    poll(lambda: not db.workers() or None)


@pytest.mark.slow
@needs_node
def test_j38_what_a_killed_worker_had_goes_to_another(cluster: Cluster) -> None:
    """A task died with its worker; or was carried out twice, by one that was only slow."""
    db = cluster.db
    args = {"to": 1, "ms": 4_000, "key": "killed"}
    with cluster.worker("first") as first:
        poll(lambda: bool(db.workers()) or None)
        id = db.submit("ts.count", args)
        poll(lambda: bool(db.procedure(id).extra.get("worker")) or None)
        first.kill()
        with cluster.worker("second"):
            assert db.wait(id, timeout_ms=60_000)["worker"] == "second"
    assert cluster.account("killed") == 1
    with cluster.worker("slow") as slow:
        poll(lambda: bool(db.workers()) or None)
        id = db.submit("ts.count", {**args, "key": "slow"})
        poll(lambda: bool(db.procedure(id).extra.get("worker")) or None)
        slow.send_signal(signal.SIGSTOP)
        with cluster.worker("quick"):
            assert db.wait(id, timeout_ms=60_000)["worker"] == "quick"
            slow.send_signal(signal.SIGCONT)  # it goes on, and commits what is not its any more
            last = db.submit("ts.count", {"to": 1, "ms": 10, "key": "last"})
            assert db.wait(last, timeout_ms=60_000)["begun"] == 0
    assert cluster.account("slow") == 1


CARELESS = """
import { Worker, done } from "%s";
const type = (name) => ({ name: `ts.careless.${name}`, steps: [{ name }] });
const types = ["nothing", "lost", "large"].map(type);
const steps = {
  "ts.careless.nothing.nothing": async () => {},
  "ts.careless.lost.lost": async (task) => {
    task.put("no", "where", "k", "v");
    return done();
  },
  "ts.careless.large.large": async (task) => {
    task.state.much = "x".repeat(2 ** 21);
    return done();
  },
};
const worker = new Worker({ url: process.argv[2], pool: "careless", worker: "c" }, types, steps);
await worker.run();
"""


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize("what", ["nothing", "lost", "large"])
def test_j38_what_the_server_refuses_fails_the_step(
    cluster: Cluster, tmp_path: Path, what: str
) -> None:
    """The client forgot the task and its worker lived on: it was never ended."""
    script = tmp_path / "careless.mjs"
    script.write_text(CARELESS % (CLIENT / "worker.mjs"))
    with subprocess.Popen([NODE, str(script), cluster.url]) as process:
        try:
            poll(lambda: bool(cluster.db.workers()) or None)
            with pytest.raises(kvorum.KvorumError) as failed:
                cluster.db.wait(cluster.db.submit(f"ts.careless.{what}", None), timeout_ms=20_000)
            assert failed.value.code != "DEADLINE_EXCEEDED"
        finally:
            process.kill()
    poll(lambda: not cluster.db.workers() or None)


def test_j38_an_undo_that_fails_is_answered_at_once(cluster: Cluster) -> None:
    """Nothing is stored of it, so its worker waited for half a minute, each time."""
    steps = [{"name": "go", "undo": "back"}, {"name": "bad"}]
    types = [{"name": "raw.undone", "undos": ["back"], "steps": steps}]
    cluster.told("lease", types=types, take=0)
    cluster.db.submit("raw.undone", None)

    def given() -> str:
        ask = {"take": 1, "wait_ms": 1_000}
        (task,) = poll(lambda: cluster.told("lease", **ask).json()["tasks"] or None)
        return f"tasks/{task['task']}"

    cluster.told(f"{given()}/commit", outcome={"do": "next", "step": "bad"})
    cluster.told(f"{given()}/fail", code="X", message="x")
    told = cluster.told(f"{given()}/fail", code="U", message="not now")
    assert told.json() == {
        "state": "RUNNABLE",
        "step": "back",
        "error": {"code": "U", "message": "not now"},
    }
    assert cluster.told(f"{given()}/commit").status_code == 200
    assert cluster.told("leave").json() == {}


@pytest.mark.slow
def test_j38_the_protocol_by_hand(cluster: Cluster) -> None:
    """What a task may not do was done, or a lost one was committed, or bad input changed it."""
    db = cluster.db
    types = [{"name": "raw.one", "steps": [{"name": "go"}, {"name": "end"}]}]
    unknown = cluster.told("lease", take=1)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (409, "WORKER_UNKNOWN")
    bad = [
        {"types": [{"name": "raw.one", "steps": []}]},
        {"types": [{"name": "raw.one"}]},
        {"types": [{"name": "kvorum.lock", "steps": [{"name": "go"}]}]},
        {"types": [{"name": "raw.one", "steps": [{"name": "go", "undo": "none"}]}]},
        {"types": types, "slots": 0},
        {"types": types, "wait_ms": 10**9},
    ]
    for body in bad:
        assert cluster.told("lease", **body).status_code == 400, body
    assert cluster.told("lease", types=types, take=0).json()["tasks"] == []
    id = db.submit("raw.one", {"n": 1})
    (task,) = cluster.told("lease", take=4, wait_ms=1_500).json()["tasks"]
    assert (task["type"], task["step"], task["args"]) == ("raw.one", "go", {"n": 1})
    path = f"tasks/{task['task']}"
    put = {"op": "put", "ns": "default", "table": "accounts", "key": "raw", "value": "1"}
    for wrong in (
        {},
        {"outcome": {"do": "fly"}},
        {"outcome": {"do": "next"}},
        {"outcome": {"do": "done"}, "state": [1]},
        {"outcome": {"do": "done"}, "writes": [{**put, "key": ""}]},
        {"outcome": {"do": "done"}, "emits": [{"name": ""}]},
    ):
        assert cluster.told(f"{path}/commit", **wrong).status_code == 400, wrong
    told = cluster.told(
        f"{path}/commit", outcome={"do": "next", "step": "end"}, state={"a": 1}, writes=[put]
    )
    assert told.json() == {"state": "RUNNABLE", "step": "end"}
    assert cluster.account("raw") == 1
    assert cluster.told(f"{path}/commit", outcome={"do": "done"}).json()["error"]["code"] == (
        "TASK_LOST"
    )
    (end,) = cluster.told("lease", take=1, wait_ms=1_500).json()["tasks"]
    assert end["state"] == {"a": 1}
    refused = cluster.told(
        f"tasks/{end['task']}/commit",
        outcome={"do": "done"},
        writes=[{**put, "value": "2", "if_absent": True}],
    )
    assert refused.json()["error"]["code"] == "CONDITION_FAILED"
    assert cluster.account("raw") == 1
    with pytest.raises(kvorum.KvorumError) as failed:
        db.wait(id, timeout_ms=20_000)
    assert failed.value.code == "CONDITION_FAILED"
    assert cluster.told("leave").json() == {}
