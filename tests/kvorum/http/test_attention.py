"""What the console's first page puts first (kvorum/api/attention.py)."""

from __future__ import annotations

from typing import Any

import pytest

from kvorum.api.attention import CERTIFICATE_DAYS, LATE_MS_MAX, Facts, findings

NOW_MS = 1_800_000_000_000
DAY_S = 86_400
KINDS = {"parked": 0, "stuck": 0, "retrying": 0, "rolling_back": 0, "waiting": 5}


def node(id: int, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "address": f"10.0.0.{id}:7600",
        "state": "live",
        "health": "alive",
        "heard_ms": 200,
        "version": "1.0",
        "disk_free": 1 << 40,
        "witness": False,
        **more,
    }


def partition(id: int, **more: Any) -> dict[str, Any]:
    return {"id": id, "leader": 1, "replicas": [1, 2, 3], "lag": {"2": 0, "3": 1}, **more}


def facts(**more: Any) -> Facts:
    well: dict[str, Any] = {
        "now_ms": NOW_MS,
        "master": 1,
        "nodes": [node(1), node(2), node(3)],
        "partitions": [partition(1), partition(2)],
        "procedures": {"kinds": KINDS, "first": []},
        "locks": {"locks": [], "waits": [], "missing": []},
        "schedules": [schedule()],
    }
    return Facts(**{**well, **more})


def schedule(**more: Any) -> dict[str, Any]:
    hour_ms = 3_600_000
    return {
        "name": "nightly",
        "procedure": "kvorum.backup",
        "last_ms": NOW_MS - hour_ms,
        "next_ms": NOW_MS + hour_ms,
        "last_id": "12",
        **more,
    }


def pause(**more: Any) -> dict[str, Any]:
    said = {"kind": "type", "name": "a.b", "note": "the bank is closed", "by": "ann"}
    return {**said, "at_ms": NOW_MS - 60_000, **more}


def sample(at_ms: int = NOW_MS - 1_000, *, late_ms: int = 0, sync_p99: float = 1.0) -> list[Any]:
    return [at_ms, 0, 0, 0, 1.0, sync_p99, late_ms, 0, 0.1, []]


def test_a_cluster_that_is_well_needs_nothing() -> None:
    """Who is warned every day of what is fine does not look any more."""
    hours = [{"node": 1, "samples": [sample()], "expires_seconds": NOW_MS / 1000 + 90 * DAY_S}]
    assert findings(facts(hours=hours)) == []


CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("no master", {"master": None}, "bad", "no master"),
    (
        "down",
        {"nodes": [node(1), node(2), node(3, state="down", health="dead")]},
        "bad",
        "Node 3 is down",
    ),
    ("suspect", {"nodes": [node(1, health="suspect", heard_ms=4_000)]}, "warn", "silent"),
    (
        "joining",
        {"nodes": [node(1), node(2), node(3), node(4, state="joining")]},
        "note",
        "joining",
    ),
    ("disk", {"nodes": [node(1, disk_free=1 << 30), node(2), node(3)]}, "warn", "little disk"),
    ("full", {"nodes": [node(1, disk_free=1 << 27), node(2), node(3)]}, "bad", "little disk"),
    ("versions", {"nodes": [node(1), node(2, version="1.1"), node(3)]}, "note", "several versions"),
    ("leaderless", {"partitions": [partition(7, leader=None)]}, "bad", "1 partition without"),
    ("lag", {"partitions": [partition(7, lag={"2": 9_000})]}, "warn", "far behind"),
    ("stuck", {"procedures": {"kinds": {**KINDS, "stuck": 2}, "first": []}}, "bad", "2 procedures"),
    (
        "parked",
        {"procedures": {"kinds": {**KINDS, "parked": 1}, "first": []}},
        "bad",
        "1 procedure",
    ),
    ("retry", {"procedures": {"kinds": {**KINDS, "retrying": 3}, "first": []}}, "warn", "retrying"),
    ("old lock", {"locks": {"locks": [{"age_ms": 3_600_000}]}}, "warn", "1 key locked"),
    (
        *("old wait", {"locks": {"waits": [{"waited_ms": 120_000, "kind": "intent"}]}}),
        *("warn", "1 request waiting for locks"),
    ),
    ("silent", {"locks": {"missing": [3]}}, "note", "gave no answer"),
    ("paused", {"pauses": [pause()]}, "note", "1 thing paused"),
    ("forgotten", {"pauses": [pause(at_ms=NOW_MS - 5 * 86_400_000)]}, "warn", "1 thing paused"),
    ("no backup", {"schedules": []}, "note", "No backup"),
    ("failed backup", {"backups": {"nightly": "FAILED"}}, "bad", "failed"),
    (
        *("late backup", {"schedules": [schedule(last_ms=0, next_ms=NOW_MS - 3_600_000)]}),
        *("warn", "is late"),
    ),
    (
        "late loop",
        {"hours": [{"node": 2, "samples": [sample(late_ms=LATE_MS_MAX)]}]},
        "warn",
        "held up",
    ),
    ("slow disk", {"hours": [{"node": 2, "samples": [sample(sync_p99=400)]}]}, "warn", "slow disk"),
    (
        "certificate",
        {"hours": [{"node": 2, "samples": [], "expires_seconds": NOW_MS / 1000 + 3 * DAY_S}]},
        *("bad", "certificate of node 2 ends in 3 days"),
    ),
    (
        "authority",
        {"hours": [{"node": 2, "samples": [], "ca_expires_seconds": NOW_MS / 1000 + 20 * DAY_S}]},
        *("warn", "authority"),
    ),
]


@pytest.mark.parametrize(
    ("what", "level", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_m10_what_needs_a_hand_is_found(what: dict[str, Any], level: str, words: str) -> None:
    """A dead node, or a backup that fails, would be seen by whoever happens to look at its list."""
    found = [one for one in findings(facts(**what)) if words in one["title"]]
    assert [one["level"] for one in found] == [level], findings(facts(**what))
    assert all(one["do"] and one["page"] and one["kind"] for one in found)


def test_a_dead_node_is_told_with_what_lacks_it() -> None:
    """The one that matters comes first, and its partitions are one line, not a hundred."""
    many = [partition(n) for n in range(1, 101)]
    nodes = [node(1), node(2), node(3, state="down", health="dead", heard_ms=600_000)]
    first, second = findings(facts(nodes=nodes, partitions=many))
    assert first["title"] == "Node 3 is down"
    assert "not heard for 10 min" in first["text"]
    assert "kvorum node decommission 3" in first["do"]
    assert second["title"] == "100 partitions with too few replicas"
    assert second["text"] == "Missing: 100 at node 3"


def test_the_worst_come_first() -> None:
    """On a bad day the list is long."""
    found = findings(
        facts(schedules=[], nodes=[node(1, state="down"), node(2, health="suspect"), node(3)])
    )
    assert [one["level"] for one in found] == sorted(
        (one["level"] for one in found), key=("bad", "warn", "note").index
    )


def test_what_was_long_ago_is_over() -> None:
    """A loop that was late half an hour ago needs nobody now; nor does a good certificate."""
    old = sample(NOW_MS - 1_800_000, late_ms=60_000, sync_p99=9_000)
    ends = NOW_MS / 1000 + (CERTIFICATE_DAYS + 1) * DAY_S
    assert findings(facts(hours=[{"node": 1, "samples": [old], "expires_seconds": ends}])) == []


def test_what_is_as_it_should_be_is_no_finding() -> None:
    """A procedure that waits for its children for an hour; locks that a dead node has not told."""
    waits = [{"waited_ms": 3_600_000, "kind": "procedure", "resource": "children"}]
    assert findings(facts(locks={"waits": waits})) == []
    nodes = [node(1), node(2), node(3, state="down")]
    found = findings(facts(nodes=nodes, locks={"missing": [3]}))
    assert {one["kind"] for one in found} == {"node", "replicas"}


def test_what_is_not_known_is_not_complained_of() -> None:
    """Who may not see locks and schedules is not told that there are none."""
    assert findings(Facts(now_ms=NOW_MS, master=1)) == []
