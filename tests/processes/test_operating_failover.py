"""What operators of procedures do, on real processes whose master is killed in the middle of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvorum
from kv.base.errors import DeadlineExceeded, NotLeader, Unavailable, UnknownOutcome
from tests.kit.clusters import cluster
from tests.kit.waiting import poll

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CUSTOMERS = ("ada", "bob", "cyd")
COUNT = 240
MODULES = ("--procedure-modules", "tests.kvorum.cluster.cluster_procedures")
WAIT_MS = 120_000


def test_u26_bulk_pauses_and_search_go_on_at_the_next_master(tmp_path: Path) -> None:
    """A bulk action ended with its master, or acted twice on somebody; what was paused began; or a
    search at the new master did not find what the old one had stored.
    """
    with cluster(tmp_path / "c", 3, *MODULES) as nodes, kvorum.connect(nodes.url) as db:
        db.create_table("default", "k")
        ids = [
            db.submit("cluster.paid", attributes={"customer": CUSTOMERS[n % 3]})
            for n in range(COUNT)
        ]
        poll(lambda: counted(db, state="WAITING") == COUNT)
        db.pause("type", "cluster.held", "not yet")
        held = [db.submit("cluster.held") for _ in range(3)]
        bulk = db.bulk("signal", "paid", options={"name": "paid"}, type="cluster.paid")["id"]
        poll(lambda: paid(db))
        master = nodes.leader()
        assert not db.procedure(bulk).finished, "the kill would come too late to show anything"
        nodes.kill(master)
        told = db.wait(bulk, timeout_ms=WAIT_MS)
        assert told["changed"] + told["unchanged"] == COUNT
        assert told["refused"] == 0
        nodes.start(master)
        for customer in CUSTOMERS:
            found = db.search(type="cluster.paid", where=f"customer={customer}", limit=COUNT)
            assert len(found["items"]) == COUNT // 3
        assert [db.wait(id, timeout_ms=WAIT_MS) for id in ids] == [1] * COUNT, "each was paid once"
        assert counted(db, state="SUCCESS") == COUNT
        nodes.kill(nodes.leader())
        assert [(one["kind"], one["note"]) for one in again(db.pauses)] == [("type", "not yet")]
        assert not any(db.procedure(id).finished for id in held)
        db.resume("type", "cluster.held")
        assert all(db.wait(id, timeout_ms=WAIT_MS) for id in held)


def counted(db: Any, **wanted: Any) -> int:
    return int(again(lambda: db.count_procedures(type="cluster.paid", **wanted))["count"])


def paid(db: Any) -> bool:
    """Somebody has heard of it."""
    return any(True for _ in db.table("default", "k").rows(prefix="paid"))


def again(ask: Any) -> Any:
    """Its answer, once there is a master."""

    def answer() -> Any:
        try:
            return [ask()]
        except (NotLeader, Unavailable, UnknownOutcome, DeadlineExceeded):
            return None

    return poll(answer)[0]
