"""`connect(timeout_ms=…)` at a node that is stopped: every method of the SDK ends in time."""

from __future__ import annotations

import inspect
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kvorum
from kvorum.api.handles import Handle
from kvorum.sdk.sync import Database, Snapshot, SnapshotTable, Table, Transaction, TransactionTable
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess
from tests.kvorum.surfaces.pool_procedures import talker

TIMEOUT_MS = 1_000
LONGEST_S = 5.0  # a few requests one after the other, on a busy machine
CLASSES: tuple[type, ...] = (
    Database,
    Table,
    Transaction,
    TransactionTable,
    Snapshot,
    SnapshotTable,
)
ASKS_NOBODY = {
    "Database.close",
    "Database.table",
    "Database.session_token",
    "Database.events",
    "Database.watch",
    "Snapshot.table",
    "Transaction.table",
    "Transaction.trace",
    "TransactionTable.put",
    "TransactionTable.delete",
    "Database.resume_session",
    "Transaction.abort",
    "Transaction.heartbeat",
}
IN_DOUBT = {"Table.put", "Table.delete", "Transaction.commit", "Database.batch", "Database.run"}
"""What had been sent when the time was over: nobody knows what became of it."""
GIVEN: dict[str, Any] = {
    "key": b"k",
    "value": b"v",
    "ns": "default",
    "name": "t",
    "keys": [b"k"],
    "procedure": 1,
    "reason": "test",
    "token": "1.1",
    "ops": [kvorum.Put("default", "t", b"k", b"v")],
    "txn": 1,
    "id": 1,
    "partition": 1,
    "left": 1,
    "right": 2,
    "resource": "r",
    "values": {"partition.auto": 1},
    "cron": "* * * * *",
    "nonce": "n",
    "workflow": talker,
    "code": talker,
    "args": None,
    "handle": Handle(1, talker),
    "signal": "s",
    "what": "user.list",
    "kind": "type",
    "note": "n",
    "start": 1,
    "end": 2,
    "site": "there",
    "to": 2,
    "fn": lambda t: t.table("default", "t").put(b"r", b"v"),
}
READS = {
    "Database.access",
    "Database.audit",
    "Database.cluster",
    "Database.locks",
    "Database.multi_get",
    "Database.namespaces",
    "Database.nodes",
    "Database.partitions",
    "Database.procedures",
    "Database.query",
    "Database.queue",
    "Database.replay_procedure",
    "Database.queues",
    "Database.result",
    "Database.count_procedures",
    "Database.pauses",
    "Database.retention",
    "Database.search",
    "Database.schedule_times",
    "Database.schedules",
    "Database.site_conflicts",
    "Database.sites",
    "Database.snapshots",
    "Database.status",
    "Database.tables",
    "Database.timestamp",
    "Database.versions",
    "Database.wait",
    "Database.workers",
    "Snapshot.multi_get",
    "SnapshotTable.get",
    "SnapshotTable.rows",
    "SnapshotTable.scan",
    "Table.get",
    "Table.multi_get",
    "Table.rows",
    "Table.scan",
    "TransactionTable.get",
    "TransactionTable.lock",
    "TransactionTable.scan",
}
NOT_OVER_HTTP = {"Database.acknowledge", "Database.live_records", "Database.replay_procedure"}
KEYS = [("default", "t", b"k")]


def methods() -> Iterator[tuple[type, str]]:
    for kind in CLASSES:
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                yield kind, name


def arguments(kind: type, name: str) -> dict[str, Any]:
    """What the method must be given, by the names of its parameters."""
    wanted = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
    given = {
        p.name: GIVEN[p.name]
        for p in wanted
        if p.default is inspect.Parameter.empty and p.kind is not p.VAR_KEYWORD
    }
    if "keys" in given and kind in (Database, Snapshot):
        given["keys"] = KEYS
    if name == "set_schedule":
        given["procedure"] = "kvorum.probe"
    if name in ("wait", "result"):
        given["timeout_ms"] = TIMEOUT_MS
    return given


def patiently(work: Callable[[], Any]) -> Any:
    """On a machine that is busy with other tests what comes before may take longer, too."""
    for left in reversed(range(20)):
        try:
            return work()
        except kvorum.KvorumError:
            if not left:
                raise
    raise AssertionError


def prepared(db: Database, kind: type, name: str) -> Callable[[], Any]:
    """The call, with what must be open before."""

    def open_() -> Any:
        match kind.__name__:
            case "Database":
                return db
            case "Table":
                return db.table("default", "t")
            case "Transaction" | "TransactionTable":
                t = db.transaction(ttl_ms=60_000)
                t.table("default", "t").put(f"in {name}".encode(), b"v")
                return t if kind is Transaction else t.table("default", "t")
            case _:
                snapshot = db.snapshot()
                return snapshot if kind is Snapshot else snapshot.table("default", "t")

    of, given = patiently(open_), arguments(kind, name)

    def call() -> Any:
        found = getattr(of, name)(**given)
        return list(found) if inspect.isgenerator(found) or name == "rows" else found

    return call


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.monotonic()
    try:
        found = call()
    except kvorum.KvorumError as error:
        found = error
    took = time.monotonic() - begun
    return took, found[0] if isinstance(found, list) and found else found  # multi_write: of each


@pytest.fixture(scope="module", params=["kvorum", "http"])
def told(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, tuple[float, Any]]]:
    """How long each method took at a stopped node, and what it raised or returned."""
    with NodeProcess(tmp_path_factory.mktemp("stopped") / "data", free_port_base()) as node:
        node.start()
        with kvorum.connect(node.url) as patient:
            patient.create_table("default", "t")
        url = node.url if request.param == "kvorum" else f"http://127.0.0.1:{node.base + 2}"
        with patiently(lambda: kvorum.connect(url, timeout_ms=TIMEOUT_MS)) as db:
            patiently(lambda: db.table("default", "t").put(b"k", b"v"))
            calls = {
                f"{kind.__name__}.{name}": prepared(db, kind, name)
                for kind, name in methods()
                if f"{kind.__name__}.{name}" not in ASKS_NOBODY
            }
            os.kill(node.spawned, signal.SIGSTOP)
            try:
                with ThreadPoolExecutor(len(calls)) as pool:
                    made = {name: pool.submit(timed, call) for name, call in calls.items()}
                    found = {name: one.result() for name, one in made.items()}
            finally:
                os.kill(node.spawned, signal.SIGCONT)
            yield found


@pytest.mark.slow
def test_every_operation_ends_in_time(told: dict[str, tuple[float, Any]]) -> None:
    """An operation at a node that says nothing takes many times `timeout_ms`, or for ever."""
    assert {name for name in IN_DOUBT if name not in told} == set()
    late = {name: round(took, 1) for name, (took, _) in told.items() if took > LONGEST_S}
    assert not late


def test_what_may_have_been_done_is_not_called_failed(told: dict[str, tuple[float, Any]]) -> None:
    """A write that was sent is told as failed: who repeats it does it twice."""
    over_http = told["Database.acknowledge"][1] is None
    for name, (_, found) in told.items():
        if over_http and name in NOT_OVER_HTTP:
            continue
        assert isinstance(found, kvorum.KvorumError), f"{name} gave {found!r:.80}"
        assert found.disposition in ("retry", "unknown_outcome"), f"{name}: {found.code}"
        if name in IN_DOUBT:
            assert found.code in ("UNKNOWN_OUTCOME", "DEADLINE_EXCEEDED"), name
    assert told["Table.put"][1].code == "UNKNOWN_OUTCOME"
    assert told["Transaction.commit"][1].code == "UNKNOWN_OUTCOME"


def test_what_only_asks_is_not_in_doubt(told: dict[str, tuple[float, Any]]) -> None:
    """A read that got no answer is told as if it might have changed something."""
    assert READS - set(told) == set()
    doubted = {name for name in READS if told[name][1].disposition == "unknown_outcome"}
    assert doubted == set()


def test_a_wait_takes_no_longer_than_it_was_given(told: dict[str, tuple[float, Any]]) -> None:
    """The node's time to wait and the time to hear of it are added up."""
    assert "no node answered within" in told["Database.wait"][1].message
