"""kv.partition with an oracle behind a network: timestamps come some time after they were asked."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kv.base import methods
from kv.base.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    KvorumError,
    NotLeader,
    Unavailable,
)
from kv.base.limits import QUEUE_BYTES_MAX, VALUE_BYTES_MAX
from kv.base.methods import COMMITTED, OP_PUT
from kv.partition.ports import Taken
from kv.partition.timestamps import OfOracle
from raft.errors import Transferring
from tests.kv.partition.node import Node, Oracle

K, L = b"tab.k", b"tab.l"


class Remote(OfOracle):
    """An oracle elsewhere: `asked` holds the requests under way. `take` lets the oldest one reach
    the oracle, `tell` its answer come back.
    """

    def __init__(self) -> None:
        self.oracle: Oracle | None = None
        self.asked: list[tuple[int, Taken]] = []
        self.taken: list[tuple[int, Taken]] = []
        self.heard: int | None = None  # of others of this process; None: all that was taken

    @property
    def known(self) -> int:
        assert self.oracle is not None
        return self.oracle.last if self.heard is None else self.heard

    def request(self, n: int, done: Taken) -> None:
        self.asked.append((n, done))

    def take(self) -> int:
        assert self.oracle is not None
        n, done = self.asked.pop(0)
        first = self.oracle(n)
        self.taken.append((first, done))
        return first

    def tell(self) -> None:
        first, done = self.taken.pop(0)
        done(first, None)

    def answer(self) -> int:
        first = self.take()
        self.tell()
        return first

    def fail(self, error: KvorumError) -> None:
        _, done = self.asked.pop(0)
        done(0, error)


def far_node() -> tuple[Node, Remote]:
    remote = Remote()
    node = Node(timestamps=remote)
    remote.oracle = node.oracle
    return node, remote


def send_put(node: Node, key: bytes = K, value: bytes = b"v", *, budget_s: float = 10.0) -> int:
    return node.send(methods.PUT, key, key, value, None, 0, budget_s=budget_s)


def read(node: Node, key: bytes = K, at: int = 0) -> int:
    return node.send(methods.GET, key, key, at, None)


def drain(node: Node) -> None:
    """Let what is queued be evaluated; no time passes, so no sync ends."""
    node.timers.run(0.0)


def put(node: Node, remote: Remote, key: bytes = K, value: bytes = b"v") -> int:
    rid = send_put(node, key, value)
    drain(node)
    remote.answer()
    version: int = node.reply(rid)[0]
    return version


def test_e7_one_request_for_the_commands_of_a_drain() -> None:
    """Every command would cost a round trip to the oracle; none would be written at its number."""
    node, remote = far_node()
    rids = [send_put(node, K, b"%d" % i) for i in range(3)]
    newest = read(node)
    drain(node)
    assert [n for n, _ in remote.asked] == [3]
    assert node.reply(newest) == [None, 0], "a read of the newest waits for nothing"
    assert node.machine().view.open.empty
    first = remote.answer()
    assert [node.reply(rid) for rid in rids] == [[first], [first + 1], [first + 2]]
    assert node.get(K) == (b"2", first + 2)
    assert node.machine().counters.entries == 1
    assert node.machine().waiting == 0


def test_e7_late_commands_get_younger_timestamps() -> None:
    """A command with a timestamp from before it arrived could lie below a snapshot that its caller
    has seen.
    """
    node, remote = far_node()
    early = send_put(node)
    drain(node)
    first = remote.take()
    seen = node.oracle(1)
    late = send_put(node, L)
    drain(node)
    assert not remote.asked, "one request is out at a time"
    remote.tell()
    assert len(remote.asked) == 1
    second = remote.answer()
    assert first < seen < second
    assert (node.reply(early), node.reply(late)) == ([first], [second])


def test_d3_what_is_forgotten_is_not_known_by_an_older_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An entry was lost while timestamps were on their way: a transaction between these and the
    loss passed for one without a record, and was committed although it had been rolled back.
    """
    node, remote = far_node()
    put(node, remote)
    early = send_put(node)
    drain(node)
    first = remote.take()
    aborted = node.oracle(1)
    assert first < aborted
    node.reply(node.send(methods.ROLLBACK, L, L, aborted))
    replica = node.manager.replica(1)
    assert replica is not None
    with monkeypatch.context() as patch:

        def refuse(command: bytes, token: object) -> int:
            raise Transferring(1, 2)

        patch.setattr(replica.group, "propose", refuse)
        assert isinstance(node.error(node.send(methods.ROLLBACK, L, L, node.oracle(1))), Busy)
    remote.tell()
    node.reply(early)
    rid = node.send(methods.WRITE, L, [[OP_PUT, L, b"v", None, 0]], aborted, 0)
    drain(node)
    remote.answer()
    assert node.error(rid).code == "TXN_ABORTED"


def test_e7_no_read_above_a_timestamp_on_its_way() -> None:
    """A snapshot read between a write's timestamp and its evaluation would miss it, and a repeated
    read would find it.
    """
    node, remote = far_node()
    old = put(node, remote)
    rid = send_put(node, K, b"new")
    drain(node)
    first = remote.take()
    read_ts = node.oracle(1)
    reader = read(node, at=read_ts)
    scan = node.send(methods.SCAN, K, b"tab.", b"tab.z", read_ts, 9, False, None)
    below = read(node, at=old)
    node.timers.run(0.1)
    assert reader not in node.conn.rows
    assert scan not in node.conn.rows
    assert node.reply(below) == [b"v", old], "what is over may be read meanwhile"
    remote.tell()
    assert node.reply(rid) == [first]
    node.timers.run(0.1)
    assert reader not in node.conn.rows, "whether its time is over, only the oracle knows"
    remote.answer()
    assert node.reply(reader) == [b"new", first]
    assert node.reply(scan) == [[(K, b"new", first)], None]


def test_e7_reads_below_an_answer_need_no_other() -> None:
    """Each snapshot read would cost a request of its own."""
    node, remote = far_node()
    version = put(node, remote)
    read_ts = node.oracle(1)
    readers = [read(node, at=read_ts) for _ in range(5)]
    send_put(node, L)
    drain(node)
    assert [n for n, _ in remote.asked] == [1], "the write's request serves them, too"
    remote.answer()
    assert [node.reply(r) for r in readers] == [[b"v", version]] * 5
    assert node.reply(read(node, at=read_ts)) == [b"v", version]
    assert not remote.asked
    assert node.machine().counters.reads == 6


def test_e7_versions_rise_in_the_order_of_evaluation() -> None:
    """A transaction resolved while a request is out is younger than the timestamps on their way:
    they would be written above it, below it.
    """
    node, remote = far_node()
    start = node.oracle(1)
    prewrite = node.send(methods.PREWRITE, K, start, K, 5000, [[OP_PUT, K, b"t", None, 0]], 0)
    drain(node)
    remote.answer()
    node.reply(prewrite)
    rid = send_put(node, L)
    drain(node)
    first = remote.take()
    commit_ts = node.oracle(1)
    commit = node.send(methods.COMMIT, K, K, start, commit_ts)
    assert node.reply(commit)[:2] == [COMMITTED, commit_ts], "what writes no version goes on"
    resolve = node.send(methods.RESOLVE, K, start, commit_ts, [K])
    node.timers.run(0.1)
    assert resolve not in node.conn.rows
    remote.tell()
    assert node.reply(rid) == [first]
    assert node.reply(resolve) == [1, 0]
    assert first < commit_ts
    assert node.get(K) == (b"t", commit_ts)


def test_e7_the_request_runs_beside_the_sync() -> None:
    """Writes would wait for the disk and then for the oracle, one after the other."""
    node, remote = far_node()
    a = send_put(node)
    drain(node)
    remote.answer()
    assert node.machine().view.flying is not None
    b = send_put(node, L)
    drain(node)
    second = remote.answer()
    assert not node.machine().view.open.empty, "evaluated while the first entry is synced"
    assert a not in node.conn.rows
    assert node.reply(b) == [second]
    assert node.machine().counters.entries == 2


def test_e7_without_timestamps_nothing_is_done() -> None:
    """A command whose timestamp could not be had would be half done, or reported as failed for
    good.
    """
    node, remote = far_node()
    version = put(node, remote)
    rids = [send_put(node, K, b"lost"), send_put(node, L)]
    reader = read(node, at=node.oracle(1))
    drain(node)
    late = send_put(node, K, b"next")
    drain(node)
    remote.fail(Unavailable("the oracle moves", code="NO_ORACLE"))
    for rid in (*rids, reader):
        error = node.error(rid)
        assert isinstance(error, Unavailable)
        assert error.code == "NO_ORACLE"
    assert node.get(K) == (b"v", version)
    newer = remote.answer()
    assert node.reply(late) == [newer], "whoever came later is asked for on its own"


@pytest.mark.parametrize("again", [False, True], ids=["deposed", "elected again"])
def test_e7_leadership_lost_while_the_request_is_out(again: bool) -> None:
    """A command of an old reign would be evaluated, and answered twice, in a new one."""
    node, remote = far_node()
    version = put(node, remote)
    waiting = [send_put(node, K, b"x"), read(node, at=node.oracle(1))]
    drain(node)
    waiting.append(send_put(node, L))
    drain(node)
    waiting.append(read(node, at=node.oracle(1)))
    drain(node)
    replica = node.manager.replica(1)
    assert replica is not None
    replica.role(leader=False, term=2)
    for rid in waiting:
        assert isinstance(node.error(rid), NotLeader)
    if again:
        replica.role(leader=True, term=3)
    remote.answer()
    node.timers.run(0.1)
    assert node.machine().view.open.empty
    assert node.machine().waiting == 0
    replica.role(leader=True, term=3)
    assert node.get(K) == (b"v", version)
    assert put(node, remote, L) > version


def test_e7_the_lease_is_looked_at_when_the_answer_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was stopped meanwhile, and replaced, would write and read as if it led."""
    node, remote = far_node()
    version = put(node, remote)
    waiting = [send_put(node, K, b"x"), read(node, at=node.oracle(1))]
    drain(node)
    waiting.append(send_put(node, L))
    drain(node)
    replica = node.manager.replica(1)
    with monkeypatch.context() as m:
        m.setattr(replica, "serving", lambda: False)
        remote.answer()
        for rid in waiting:
            assert isinstance(node.error(rid), NotLeader)
    assert node.get(K) == (b"v", version)
    assert not remote.asked
    assert put(node, remote) > version


def test_e7_a_leader_without_a_lease_asks_before_it_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader whose lease ran out while nothing was to be done would send its callers away."""
    node, remote = far_node()
    version = put(node, remote)
    rid, reader = send_put(node, K, b"x"), read(node, at=node.oracle(1))
    drain(node)
    replica = node.manager.replica(1)
    asked: list[Callable[[], None]] = []
    with monkeypatch.context() as m:
        m.setattr(replica, "serving", lambda: False)
        m.setattr(replica, "confirm", asked.append)
        remote.answer()
        drain(node)
        assert len(asked) == 1
    asked[0]()
    drain(node)
    newer = remote.answer()
    assert node.reply(rid) == [newer]
    assert node.reply(reader) == [b"v", version]


def test_e7_time_that_runs_out_while_waiting() -> None:
    """A write would be executed for a caller that was told that it is too late."""
    node, remote = far_node()
    early = send_put(node, budget_s=0.05)
    drain(node)
    late = send_put(node, L, budget_s=0.05)
    patient = send_put(node, L, b"patient")
    drain(node)
    node.timers.run(0.1)
    remote.answer()
    assert isinstance(node.error(early), DeadlineExceeded)
    assert isinstance(node.error(late), DeadlineExceeded)
    remote.answer()
    node.reply(patient)
    assert node.get(K) == (None, 0)
    assert node.get(L)[0] == b"patient"


def test_e7_what_waits_for_the_oracle_is_bounded() -> None:
    """An oracle that is gone for a while would fill the node's memory with values."""
    node, remote = far_node()
    send_put(node)
    drain(node)
    value = b"v" * VALUE_BYTES_MAX
    fits = QUEUE_BYTES_MAX // (VALUE_BYTES_MAX + 1024)
    rids = [send_put(node, K, value) for _ in range(fits + 2)]
    drain(node)
    refused = node.error(rids[-1])
    assert isinstance(refused, Busy)
    assert refused.details["limit"] == QUEUE_BYTES_MAX
    assert rids[0] not in node.conn.rows
    assert node.machine().waiting >= fits
    remote.answer()
    remote.fail(Unavailable("gone", code="NO_ORACLE"))
    assert node.machine().waiting == 0


def test_e7_full_entries_hold_in_order() -> None:
    """Writes that wait for room would be overtaken by those that came after them, or forgotten."""
    node, remote = far_node()
    value = b"v" * VALUE_BYTES_MAX
    rids = [send_put(node, b"tab.%d" % i, value) for i in range(4)]
    drain(node)
    rids.append(send_put(node, b"tab.0", b"last"))
    for _ in range(20):
        node.timers.run(0.01)
        if remote.asked:
            remote.answer()
    versions = [node.reply(rid)[0] for rid in rids]
    assert versions == sorted(versions)
    assert node.get(b"tab.0")[0] == b"last"


def test_e7_a_read_in_the_future_is_refused_by_what_the_oracle_says() -> None:
    """A snapshot that is not over would change after it was read."""
    node, remote = far_node()
    reader = read(node, at=node.oracle(1) + (1 << 30))
    drain(node)
    remote.answer()
    assert isinstance(node.error(reader), InvalidArgument)
    rid = send_put(node)
    drain(node)
    remote.answer()
    node.reply(rid)


class Crowd:
    """Writers, readers and transactions on few keys; what they were answered is kept."""

    def __init__(self, seed: int) -> None:
        self.node, self.remote = far_node()
        self.rng = random.Random(seed)
        self.keys = [b"tab.%d" % i for i in range(4)]
        self.writes: dict[int, tuple[bytes, bytes]] = {}
        self.reads: dict[int, tuple[bytes, int]] = {}
        self.txns: dict[int, tuple[int, bytes, bytes]] = {}  # by the rid of the prewrite
        self.resolves: dict[int, tuple[bytes, int, bytes]] = {}  # key, commit_ts, value

    def _any(self) -> tuple[bytes, bytes]:
        return self.rng.choice(self.keys), b"%d" % self.rng.getrandbits(40)

    def write(self) -> None:
        key, value = self._any()
        self.writes[send_put(self.node, key, value)] = (key, value)

    def look(self) -> None:
        key, at = self.rng.choice(self.keys), self.node.oracle(1)
        self.reads[read(self.node, key, at)] = (key, at)

    def look_back(self) -> None:
        if self.reads:
            key, at = self.rng.choice(list(self.reads.values()))
            self.reads[read(self.node, key, at)] = (key, at)

    def prewrite(self) -> None:
        (key, value), start = self._any(), self.node.oracle(1)
        ops = [[OP_PUT, key, value, None, 0]]
        rid = self.node.send(methods.PREWRITE, key, start, key, 5000, ops, 0)
        self.txns[rid] = (start, key, value)

    def finish(self) -> None:
        """Commit a transaction whose intent is there, at once for all: flip and resolution."""
        for rid in list(self.txns):
            row = self.node.conn.rows.get(rid)
            if row is None:
                continue
            start, key, value = self.txns.pop(rid)
            if row[1] == 0:
                ts = self.node.oracle(1)
                self.node.send(methods.COMMIT, key, key, start, ts)
                resolve = self.node.send(methods.RESOLVE, key, start, ts, [key])
                self.resolves[resolve] = (key, ts, value)

    def reach(self) -> None:
        if self.remote.asked:
            self.remote.take()

    def tell(self) -> None:
        if self.remote.taken:
            self.remote.tell()

    def wait(self) -> None:
        self.node.timers.run(self.rng.choice([0.0, 0.0003, 0.002]))

    def play(self, steps: int) -> None:
        kinds = {
            self.write: 4,
            self.look: 4,
            self.look_back: 1,
            self.prewrite: 1,
            self.finish: 2,
            self.reach: 3,
            self.tell: 3,
            self.wait: 6,
        }
        for _ in range(steps):
            self.rng.choices(list(kinds), list(kinds.values()))[0]()
        for _ in range(50):
            self.wait()
            self.reach()
            self.tell()
            self.finish()

    def history(self) -> dict[bytes, list[tuple[int, bytes]]]:
        """Every version of every key that became one."""
        rows = self.node.conn.rows
        found: dict[bytes, list[tuple[int, bytes]]] = {key: [(0, b"")] for key in self.keys}
        for rid, (key, value) in self.writes.items():
            if rows[rid][1] == 0:
                found[key].append((rows[rid][2], value))
        for rid, (key, ts, value) in self.resolves.items():
            if rows[rid][1:] == [0, 1, 0]:
                found[key].append((ts, value))
        return found


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(40))
def test_d1_snapshots_hold_however_late_the_timestamps_are(seed: int) -> None:
    """A read at R must find the newest version at or below R, as it stands in the end, and keep
    doing so, however requests, answers, syncs and callers interleave.
    """
    crowd = Crowd(seed)
    crowd.play(400)
    history, served = crowd.history(), 0
    for rid, (key, at) in crowd.reads.items():
        row = crowd.node.conn.rows[rid]
        if row[1] == 0:  # else it met an intent
            served += 1
            version, value = max(v for v in history[key] if v[0] <= at)
            assert row[2:] == [value or None, version], (key, at)
    for key in crowd.keys:
        top = max(history[key])
        assert crowd.node.get(key) == (top[1], top[0])
    assert served > 30
    assert sum(map(len, history.values())) > 20
    assert crowd.resolves
