"""What nodes tell of their replicas, and the master's picture of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kv.base.limits import BEAT_SECTION_BYTES_MAX, REPORT_ROWS_MAX
from kv.mvcc.records import cur_row
from kv.partition.collectors import Collected
from kv.partition.sizes import SizeMap
from kv.partition.statistics import Traffic
from kvorum.cluster.heartbeat import _encode
from kvorum.cluster.replica_report import ReplicaReport
from procedures.master.map.liveness import Health
from procedures.master.map.reports import Hot, Picture, Report, hint

PLAIN = Report(7, 1, True, 3, 10, 1_000, 0, 3, 1.0, 10.0, 0.0, 0.0, 1.0, 0.0, True, ())


class Here:
    """A node's replicas, as far as a report looks at them."""

    def __init__(self, count: int) -> None:
        self.now_s = 0.0
        self.hurried = 0
        self.replicas: dict[int, Any] = {}
        for id_ in range(1, count + 1):
            self.add(id_)
        self.report = ReplicaReport(
            lambda: list(self.replicas.values()),
            lambda: self.now_s,
            hurry=self._hurry,
            now_ms=lambda: round(1_000 * self.now_s),
        )

    def _hurry(self) -> None:
        self.hurried += 1

    def add(self, id_: int, *, leads: bool = True) -> None:
        replica = SimpleNamespace(
            descriptor=SimpleNamespace(id=id_, epoch=1),
            state=SimpleNamespace(
                top_ts=1,
                index=1,
                live_bytes=100,
                old_versions=0,
                sizes=SizeMap(),
                collected=Collected(),
            ),
            machine=SimpleNamespace(traffic=Traffic()),
            group=SimpleNamespace(term=1, status=lambda: SimpleNamespace(voters=(1, 2, 3))),
            leading=leads,
        )
        replica.leads = lambda: replica.leading
        self.replicas[id_] = replica

    def beat(self) -> Any:
        self.now_s += 1.0
        return self.report.collect()


def _told(payload: Any) -> list[int]:
    return [row[0] for row in payload["rows"]]


def test_a4_idle_partitions_are_told_of_once() -> None:
    """A thousand idle partitions with each beat would be a load of their own."""
    here = Here(100)
    assert _told(here.beat()) == list(range(1, 101))
    assert _told(here.beat()) == []
    here.replicas[5].state.index = 2
    here.replicas[5].state.live_bytes = 200
    here.replicas[6].machine.traffic.reads += 50
    here.replicas[7].leading = False
    assert _told(here.beat()) == [5, 6, 7]
    told = _told(here.beat())
    assert 5 not in told
    assert 7 not in told
    assert 6 in told, "its average still falls"
    for _ in range(150):
        told = _told(here.beat())
    assert told == []


def test_g4_what_has_expired_is_not_told_as_size() -> None:
    """A partition whose rows had expired was split, or kept from being merged, until the collector
    had come; or a master was never told of it, as nothing was written.
    """
    here = Here(2)
    state = here.replicas[1].state
    rows = [(b"k%03d" % i, _record(5_000 if i % 4 else 0), None, None) for i in range(400)]
    state.collected.note(state.collected.see(rows, lambda key: None))
    state.live_bytes = 40_000
    sizes = {}
    for second in range(1, 8):
        for row in here.beat()["rows"]:
            sizes[row[0]] = row[5]
        assert sizes[2] == 100, "nothing of it expires"
        wanted = 40_000 if second < 5 else 10_000
        assert abs(sizes[1] - wanted) <= 2_000, f"after {second} s: a quarter stays"


def _record(expire_ms: int) -> bytes:
    return cur_row(b"k", b"v", 1, None, expire_ms=expire_ms)[1] or b""


def test_a4_after_a_lost_beat_everything_is_told_again() -> None:
    """What was in the lost one would never arrive."""
    here = Here(10)
    here.beat()
    here.report.again()
    payload = here.beat()
    assert payload["full"]
    assert _told(payload) == list(range(1, 11))
    assert not here.beat()["full"]


def test_a4_many_replicas_go_in_several_beats_at_once() -> None:
    """One message of megabytes would hold up the loops of both."""
    here, picture = Here(2 * REPORT_ROWS_MAX + 5), Picture()
    sizes = []
    while True:
        payload = here.beat()
        assert len(_encode(payload)) < BEAT_SECTION_BYTES_MAX
        sizes.append(len(payload["rows"]))
        picture.handle(1, payload)
        if payload["told_all"]:
            break
        assert not picture.complete([1])
    assert sizes == [REPORT_ROWS_MAX, REPORT_ROWS_MAX, 5]
    assert here.hurried == 2, "the rest does not wait for the next second"
    assert picture.complete([1])
    assert len(picture.nodes[1].rows) == 2 * REPORT_ROWS_MAX + 5
    assert not picture.complete([1, 2])


def test_a4_hot_keys_of_the_largest_size_fit() -> None:
    """A section that is too large is left out: for ever."""
    here = Here(200)
    for replica in here.replicas.values():
        traffic = replica.machine.traffic
        for i in range(5):
            key = b"%d" % i * 4_096
            for _ in range(50):
                traffic.hot.add(key)
        traffic.reads += 100
    here.beat()
    told = set()
    for _ in range(20):
        for replica in here.replicas.values():
            replica.machine.traffic.reads += 100
        payload = here.beat()
        assert len(_encode(payload)) <= BEAT_SECTION_BYTES_MAX
        told |= set(_told(payload))
    assert told == set(here.replicas)


def test_a4_what_left_a_node_leaves_the_picture() -> None:
    """A dropped partition would be led for ever."""
    here, picture = Here(3), Picture()
    picture.handle(1, here.beat())
    del here.replicas[2]
    here.replicas[3].descriptor.epoch = 2
    here.replicas[3].state.index += 1
    picture.handle(1, here.beat())
    assert sorted(picture.leaders()) == [1, 3]
    assert picture.leaders()[3][1].epoch == 2


def test_a4_the_leader_of_the_higher_term_is_right() -> None:
    """A deposed leader that does not know it yet would hide the new one."""
    picture = Picture()
    for node, term in ((1, 3), (2, 4), (3, 2)):
        payload = {"full": True, "told_all": True, "node": [0.1, 1, 1], "gone": []}
        picture.handle(node, {**payload, "rows": [replace(PLAIN, term=term).to_wire()]})
    assert picture.leaders()[7][0] == 2
    assert picture.units() == {1: 0.0, 2: 1.0, 3: 0.0}
    picture.keep([1])
    assert picture.leaders()[7][0] == 1
    picture.begin()
    assert picture.leaders() == {}


def test_a4_a_full_report_replaces_what_was_known() -> None:
    """After a restart the node may have lost what it told before."""
    here, picture = Here(3), Picture()
    picture.handle(1, here.beat())
    again = Here(1)
    picture.handle(1, again.beat())
    assert sorted(picture.leaders()) == [1]
    assert picture.handle(1, None) is None
    with pytest.raises((KeyError, TypeError)):
        picture.handle(1, {"rows": 5})


def test_a4_a_report_survives_the_wire_and_later_fields() -> None:
    """During a rolling upgrade nodes of two versions tell one master."""
    report = replace(PLAIN, hot=(Hot(b"k", 0.5),), size=1 << 40)
    row = report.to_wire()
    assert Report.from_wire(row) == report
    assert Report.from_wire([*row, "later"]) == report
    told = Picture().to_wire({1: (Health.ALIVE, 5)})
    assert told["nodes"] == [[1, "alive", 5, False, 0.0, 0, 0, 0]]


def test_h7_appended_keys_and_single_hot_keys_are_named() -> None:
    """Neither is mended by a split, so people must be told."""
    assert hint(PLAIN) == ""
    busy = replace(PLAIN, writes=500.0, units=500.0)
    assert hint(busy) == ""
    assert "highest" in hint(replace(busy, appended=1.0))
    assert "one key has 60%" in hint(replace(busy, hot=(Hot(b"k", 0.6),)))
    assert hint(replace(PLAIN, appended=1.0)) == "", "at this rate it harms nobody"


def test_h7_rows_behind_all_others_are_counted_as_appended() -> None:
    """Cutting in the middle would leave a half-empty partition behind, again and again."""
    here = Here(1)
    sizes = here.replicas[1].state.sizes
    n = 0
    for round_ in range(8):
        rows = [(b"%08d" % (n + i), b"." * 1_000, None, None) for i in range(1_000)]
        n += 1_000
        sizes.note(sizes.choose(rows, 1_008_000, lambda _key: None))
        here.replicas[1].state.index += 1
        here.replicas[1].state.live_bytes += 1_008_000
        here.replicas[1].machine.traffic.writes += 1_000
        payload = here.beat()
        assert round_ < 1 or Report.from_wire(payload["rows"][0]).appended == (
            pytest.approx(1.0, abs=0.5)
        )
    assert Report.from_wire(payload["rows"][0]).appended >= 0.9
    for round_ in range(8):
        rows = [(b"%08d" % (i * 7 + round_), b"." * 1_000, None, None) for i in range(1_000)]
        sizes.note(sizes.choose(rows, 1_008_000, lambda _key: None))
        here.replicas[1].state.index += 1
        payload = here.beat()
    assert Report.from_wire(payload["rows"][0]).appended < 0.3
