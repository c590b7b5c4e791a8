"""CHANGES and AWAIT_CHANGES at one partition, with controlled timestamps: what is told is complete,
and stays so. Each line of the argument in kv/feed/changes.py has a scene here.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kv.base import methods
from kv.base.errors import InvalidArgument, NotLeader, SnapshotTooOld
from kv.base.keys import MAX64, u64
from kv.base.limits import FEED_INTENTS_LOOKED_MAX, FEED_ROWS_MAX
from kv.base.methods import COMMITTED, OP_DELETE, OP_PUT
from kv.feed.recent import RECENT_IDLE_S, Budget, Recent
from kv.partition.entry import Entry
from kv.partition.machine import PartitionMachine
from tests.kv.partition.node import Node
from tests.kv.partition.test_timestamps_later import drain, far_node, send_put

A, B, C, K = b"tab.a", b"tab.b", b"tab.c", b"tab.k"
LOW, HIGH = b"tab.", b"tab/"
MANY = FEED_ROWS_MAX


def put_op(key: bytes, value: bytes = b"v") -> list[Any]:
    return [OP_PUT, key, value, None, 0]


def ask(
    node: Node,
    read_ts: int,
    above: int,
    *,
    start: bytes = LOW,
    end: bytes = HIGH,
    limit: int = MANY,
    closed: bool = False,
    bytes_max: int = 1 << 20,
    cursor: bytes | None = None,
) -> int:
    args = (start, end, read_ts, limit, above, closed, bytes_max, cursor)
    return node.send(methods.CHANGES, start, *args)


def changes(node: Node, read_ts: int, above: int, **more: Any) -> tuple[list[Any], int]:
    """(rows by version and key, resolved) of one answer that has all."""
    rows, frontier, cursor, _, resolved, _ = node.reply(ask(node, read_ts, above, **more))
    assert cursor is None
    assert frontier == resolved
    return sorted(rows, key=lambda row: (row[2], row[0])), resolved


def prewrite(node: Node, start: int, *ops: list[Any], anchor: bytes, **options: Any) -> list[Any]:
    more = (options,) if options else ()
    return node.call(methods.PREWRITE, ops[0][1], start, anchor, 5000, list(ops), 0, *more)


def flip(node: Node, anchor: bytes, start: int) -> int:
    commit_ts = node.oracle(1)
    found = node.call(methods.COMMIT, anchor, anchor, start, commit_ts)
    assert found[:2] == [COMMITTED, commit_ts]
    return commit_ts


def resolve(node: Node, start: int, commit_ts: int, *keys: bytes) -> None:
    assert node.call(methods.RESOLVE, keys[0], start, commit_ts, list(keys))[1] == 0


# ------------------------------------------------------------------------------ what is complete


def test_f14_versions_in_flight_are_waited_for() -> None:
    """A frontier above a commit whose sync is under way would skip it for ever."""
    node = Node()
    rid = send_put(node, K)
    node.settle(lambda: node.machine().view.flying is not None)
    read_ts = node.oracle(1)
    asked = ask(node, read_ts, 0)
    drain(node)
    assert asked not in node.conn.rows
    (version,) = node.reply(rid)
    assert version < read_ts
    rows, frontier, cursor, _, resolved, _ = node.reply(asked)
    assert (rows, cursor) == ([(K, b"v", version, 0)], None)
    assert frontier == resolved == read_ts


def test_f14_timestamps_on_their_way_are_waited_for() -> None:
    """A commit whose timestamp was taken, but did not arrive yet, lies below a later frontier."""
    node, remote = far_node()
    rid = send_put(node, K)
    drain(node)
    first = remote.take()
    read_ts = node.oracle(1)
    asked = ask(node, read_ts, 0)
    node.timers.run(0.1)
    assert asked not in node.conn.rows
    remote.tell()
    assert node.reply(rid) == [first]
    remote.answer()  # the request makes sure that its time is over
    rows, _, _, _, resolved, _ = node.reply(asked)
    assert ([row[2] for row in rows], resolved) == ([first], read_ts)


def test_f14_a_future_frontier_is_refused() -> None:
    """A frontier that the oracle did not reach yet would get commits below it."""
    node = Node()
    version = node.put(K, b"v")
    with pytest.raises(InvalidArgument, match="future"):
        node.reply(ask(node, version + (60_000 << 18), 0))


def test_f14_applied_intents_hold_the_frontier_back() -> None:
    """An intent may have been committed at any timestamp above its start, long ago."""
    node = Node()
    before = node.put(B, b"v")
    start = node.oracle(1)
    prewrite(node, start, put_op(A), anchor=A)
    after = node.put(B, b"w")
    commit_ts = flip(node, A, start)
    later = node.put(C, b"v")
    rows, resolved = changes(node, node.oracle(1), 0)
    assert ([row[2] for row in rows], resolved) == ([before], start)
    resolve(node, start, commit_ts, A)
    read_ts = node.oracle(1)
    rows, resolved = changes(node, read_ts, resolved)
    assert ([row[2] for row in rows], resolved) == ([after, commit_ts, later], read_ts)


def test_f14_an_intent_that_is_rolled_back_frees_the_frontier() -> None:
    """What an aborted transaction held back must go on without a new write."""
    node = Node()
    start = node.oracle(1)
    prewrite(node, start, put_op(A), anchor=A)
    assert changes(node, node.oracle(1), 0)[1] == start
    node.call(methods.ROLLBACK, A, A, start)
    resolve(node, start, 0, A)
    read_ts = node.oracle(1)
    assert changes(node, read_ts, start) == ([], read_ts)


def test_f14_an_intent_after_a_frontier_commits_above_it() -> None:
    """Old transactions may prewrite late: a frontier never goes back, and stays true."""
    node = Node()
    start = node.oracle(1)
    frontier = node.oracle(1)
    assert changes(node, frontier, 0) == ([], frontier)
    (bound,) = prewrite(node, start, put_op(A), anchor=A)
    assert bound > frontier
    assert changes(node, node.oracle(1), frontier) == ([], frontier)
    commit_ts = flip(node, A, start)
    resolve(node, start, commit_ts, A)
    read_ts = node.oracle(1)
    rows, resolved = changes(node, read_ts, frontier)
    assert ([row[2] for row in rows], resolved) == ([commit_ts], read_ts)


def test_f14_intents_in_flight_commit_above_the_frontier() -> None:
    """They are not waited for: whoever commits them asks for a timestamp after they are there."""
    node = Node()
    start = node.oracle(1)
    rid = node.send(methods.PREWRITE, A, start, A, 5000, [put_op(A)], 0)
    node.settle(lambda: node.machine().view.flying is not None)
    read_ts = node.oracle(1)
    assert node.reply(ask(node, read_ts, 0))[4] == read_ts
    assert node.reply(rid)[0] > read_ts


def test_f14_the_bound_of_a_parallel_commit_holds_the_frontier_back() -> None:
    """Such a transaction commits at the bound that its intents carry: below it all is told."""
    node = Node()
    start = node.oracle(1)
    other = node.put(B, b"v")
    bound, *_ = prewrite(node, start, put_op(A), anchor=A, fence=True, stage=[[A]])
    rows, resolved = changes(node, node.oracle(1), start)
    assert ([row[2] for row in rows], resolved) == ([other], bound - 1)


def test_f14_a_parallel_commit_in_flight_is_waited_for() -> None:
    """It may be committed at its bound the moment it is durable, below a frontier taken since."""
    node = Node()
    start = node.oracle(1)
    options = {"fence": True, "stage": [[A]]}
    rid = node.send(methods.PREWRITE, A, start, A, 5000, [put_op(A)], 0, options)
    node.settle(lambda: node.machine().view.flying is not None)
    asked = ask(node, node.oracle(1), start)
    drain(node)
    assert asked not in node.conn.rows
    bound, *_ = node.reply(rid)
    assert node.reply(asked)[4] == bound - 1


def test_f14_checks_write_nothing_and_hold_nothing() -> None:
    """A condition on a row is an intent without a version."""
    node = Node()
    version = node.put(A, b"v")
    start = node.oracle(1)
    prewrite(node, start, [methods.OP_CHECK, A, None, version, 0], put_op(K), anchor=K)
    assert changes(node, node.oracle(1), version, end=B)[1] == start, "K is an intent"
    node.call(methods.ROLLBACK, K, K, start)
    resolve(node, start, 0, K)
    read_ts = node.oracle(1)
    assert changes(node, read_ts, version)[1] == read_ts


def test_f14_with_very_many_intents_the_answer_is_an_older_one() -> None:
    """A transaction of a million rows must not be gone through at every look."""
    node = Node()
    start = node.oracle(1)
    for at in range(0, FEED_INTENTS_LOOKED_MAX + 500, 500):
        ops = [put_op(b"tab.k%06d" % i) for i in range(at, at + 500)]
        prewrite(node, start, *ops, anchor=ops[0][1])
    assert changes(node, node.oracle(1), 0)[1] == start
    older = start - 1
    prewrite(node, older, put_op(A), anchor=A)
    assert changes(node, node.oracle(1), 0)[1] == start, "that one commits later anyway"
    node.timers.run(1.0)
    assert changes(node, node.oracle(1), 0)[1] == older


# ------------------------------------------------------------------------------ the two ways


def recorded(node: Node, seed: int, steps: int) -> list[tuple[bytes, bytes | None, int]]:
    """Random single and batched writes, and what they should be told as."""
    chance = random.Random(seed)
    alive: set[bytes] = set()
    history: list[tuple[bytes, bytes | None, int]] = []
    for step in range(steps):
        keys = chance.sample([b"tab.%c" % c for c in b"abcdefgh"], chance.choice([1, 1, 1, 3]))
        ops, told = [], []
        for key in keys:
            if chance.random() < 0.3:
                ops.append([OP_DELETE, key, None, None, 0])
                if key in alive:
                    told.append((key, None))
            else:
                value = b"%d" % step * chance.choice([1, 300])
                ops.append([OP_PUT, key, value, None, 0])
                told.append((key, value))
        (version,) = node.call(methods.WRITE, keys[0], ops, 0, methods.BLIND)
        for key, value in told:
            (alive.discard if value is None else alive.add)(key)
            history.append((key, value, version))
    return sorted(history, key=lambda row: (row[2], row[0]))


def walked(node: Node, read_ts: int, above: int, **limits: int) -> list[tuple[Any, ...]]:
    """All changes by the walk, in steps."""
    found: list[tuple[Any, ...]] = []
    cursor, closed = None, False
    while True:
        asked = ask(node, read_ts, above, closed=closed, cursor=cursor, **limits)
        rows, read_ts, cursor, *_ = node.reply(asked)
        found += [tuple(row[:3]) for row in rows]
        if cursor is None:
            return sorted(found, key=lambda row: (row[2], row[0]))
        closed = True


def followed(node: Node, read_ts: int, above: int, **limits: int) -> list[tuple[Any, ...]]:
    """All changes by the recent entries, answer by answer."""
    found: list[tuple[Any, ...]] = []
    while above < read_ts:
        rows, above, cursor, _, _, large = node.reply(ask(node, read_ts, above, **limits))
        assert cursor is None, "it walked"
        found += [tuple(row[:3]) for row in rows]
        if large:
            found += paged(node, large, above, **limits)
            above = large
    return found


def paged(node: Node, upto: int, above: int, **limits: int) -> list[tuple[Any, ...]]:
    """All changes of what is known to be complete, by key in steps."""
    found: list[tuple[Any, ...]] = []
    cursor = None
    while True:
        asked = ask(node, upto, above, closed=True, cursor=cursor, **limits)
        rows, _, cursor, *_ = node.reply(asked)
        found += [tuple(row[:3]) for row in rows]
        if cursor is None:
            assert [row[0] for row in found] == sorted(row[0] for row in found)
            return sorted(found, key=lambda row: (row[2], row[0]))


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_f14_both_ways_tell_every_version_once(seed: int) -> None:
    """Deletes, keys written many times, small steps: the two ways must not differ by a row."""
    node = Node()
    floor = node.oracle(1)
    changes(node, floor, 0)  # somebody watches from here on
    history = recorded(node, seed, 60)
    read_ts = node.oracle(1)
    recent = node.machine().recent
    versions = [version for _, _, version in history]
    for above in [floor, *versions[::7], *(version - 1 for version in versions[3::7])]:
        wanted = [row for row in history if row[2] > above]
        assert followed(node, read_ts, above) == wanted
        assert followed(node, read_ts, above, limit=5) == wanted
        assert followed(node, read_ts, above, limit=2) == wanted, "three keys at once are large"
        assert paged(node, read_ts, above, limit=3) == wanted
        assert paged(node, read_ts, above, bytes_max=100) == wanted
        recent.floor, kept = MAX64, recent.floor
        assert walked(node, read_ts, above) == wanted
        assert walked(node, read_ts, above, limit=2) == wanted
        assert walked(node, read_ts, above, bytes_max=100) == wanted
        half = (above + read_ts) // 2
        assert walked(node, half, above) == [row for row in wanted if row[2] <= half]
        recent.floor = kept


def test_f14_a_range_is_cut_at_its_bounds() -> None:
    """Another table's rows in a watch would be wrong, and a leak."""
    node = Node()
    begin = node.oracle(1)
    changes(node, begin, 0)
    for key in (b"taab", A, B, C, b"tab/"):
        node.put(key, b"v")
    read_ts = node.oracle(1)
    for floor in (0, MAX64):
        node.machine().recent.floor = floor or begin
        rows, _ = changes(node, read_ts, begin, start=A, end=C)
        assert [row[0] for row in rows] == [A, B]


def test_f14_what_was_collected_is_refused() -> None:
    """Changes from before the safepoint are not all there: silence about that is data loss."""
    node = Node()
    first = node.put(A, b"1")
    second = node.put(A, b"2")
    node.delete(B)
    safepoint = node.oracle(1)
    assert node.collect(A, safepoint) is None
    for above in (0, first, second):
        with pytest.raises(SnapshotTooOld, match="scan") as refused:
            node.reply(ask(node, node.oracle(1), above))
        assert refused.value.details == {"at": above, "safepoint": safepoint}
    third = node.put(A, b"3")
    rows, _ = changes(node, node.oracle(1), safepoint)
    assert [row[2] for row in rows] == [third]


def test_f14_tombstones_stay_while_they_may_be_asked_for() -> None:
    """A delete that the collector took away before it was told leaves a copy with a dead record."""
    node = Node()
    node.put(A, b"1")
    safepoint = node.oracle(1)
    deleted = node.delete(A)
    assert node.collect(A, safepoint) is None
    node.machine().recent.end()
    rows, _ = changes(node, node.oracle(1), safepoint)
    assert [(row[0], row[1], row[2]) for row in rows] == [(A, None, deleted)]


def test_f13_what_is_kept_for_watchers_is_bounded() -> None:
    """Writers that outrun every watcher must not fill the memory; nothing is lost by it."""
    node = Node()
    machine = node.machine()
    machine.recent._budget = budget = Budget(20_000)
    quiet = Recent(node.timers, budget, lambda *_: None)  # of a partition that was busy before
    quiet.begin(1)
    quiet.applied(filler := Entry(1))
    filler.rows, filler.size = [(K, bytes(100), None, None)], 15_000
    quiet.applied(filler)
    assert budget.used == quiet.held == 15_000
    begin = node.oracle(1)
    changes(node, begin, 0)
    versions = [node.put(K, bytes(2_000)) for _ in range(40)]
    assert 0 < budget.used <= 20_000
    assert quiet.held == 0, "it holds the most and gives way"
    assert machine.recent.floor > begin
    read_ts = node.oracle(1)
    assert [row[2] for row in walked(node, read_ts, begin)] == versions
    last = versions[-3]
    assert [row[2] for row in followed(node, read_ts, last)] == versions[-2:]


def test_f14_a_late_resolution_is_not_cut_off() -> None:
    """Versions rise with the log, but for those of intents that were resolved late: an answer that
    is cut must not pass over one that lies in a later entry.
    """
    node = Node()
    recent = Recent(node.timers, Budget(), lambda *_: None)
    recent.begin(1)
    for number, versions in enumerate([(10, 11), (20, 21), (5,), (30,), (31, 32, 33)]):
        entry = Entry(number)
        entry.rows = [(b"%d" % v, u64(v) + bytes(5), None, None) for v in versions]
        entry.low_ts, entry.top_ts = min(versions), max(versions)
        recent.applied(entry)
    every = [5, 10, 11, 20, 21, 30, 31, 32, 33]
    for rows_max in range(1, 10):
        told, above = [], 1
        while above < 40:
            rows, frontier = recent.versions(b"", b"", above, 40, rows_max=rows_max)
            assert frontier > above
            told += sorted(row[2] for row in rows)
            above = frontier
        assert told == every, rows_max


def test_f13_nothing_is_kept_when_nobody_watches() -> None:
    """The entries of a partition that was watched once would stay in memory for ever."""
    node = Node()
    recent = node.machine().recent
    node.put(A, b"1")
    assert not recent.active
    changes(node, node.oracle(1), 0)
    node.put(A, b"2")
    assert recent.active
    assert recent._entries
    node.timers.run(2 * RECENT_IDLE_S)
    assert not recent.active
    assert not recent._entries
    assert recent._budget.used == 0


# ------------------------------------------------------------------------------ waiting for news


def wait(node: Node, mark: int, *, start: bytes = LOW, end: bytes = HIGH, ms: int = 5000) -> int:
    return node.send(methods.AWAIT_CHANGES, start, start, end, mark, ms, budget_s=30)


def mark_of(node: Node, above: int = 0) -> int:
    mark: int = node.reply(ask(node, node.oracle(1), above))[3]
    return mark


def answered(node: Node, rid: int) -> bool:
    node.timers.run(0.05)
    return rid in node.conn.rows


def test_f14_a_commit_wakes_those_who_wait_for_it() -> None:
    """Asking all the time would cost an idle watcher a processor; being told costs nothing."""
    node = Node()
    mark = mark_of(node)
    here, elsewhere = wait(node, mark, end=B), wait(node, mark, start=B)
    assert not answered(node, here)
    node.put(A, b"v")
    assert answered(node, here)
    assert not answered(node, elsewhere)
    node.put(B, b"v")
    assert answered(node, elsewhere)
    assert node.machine().waiting == 0


def test_f14_news_from_before_the_question_are_told_at_once() -> None:
    """A commit between the look and the wait would be told a heartbeat late."""
    node = Node()
    mark = mark_of(node)
    node.put(B, b"v")
    late = wait(node, mark)
    assert answered(node, late)
    now = node.conn.rows[late][2]
    assert now > mark
    assert not answered(node, wait(node, now))
    assert not answered(node, wait(node, mark, end=B)), "nothing happened there"
    assert answered(node, wait(node, mark - 1)), "a mark of another leader"


def test_f14_an_intent_that_goes_away_is_news() -> None:
    """It held the frontier back, whatever became of it."""
    node = Node()
    start = node.oracle(1)
    prewrite(node, start, put_op(A), anchor=A)
    waiting = wait(node, mark_of(node))
    assert not answered(node, waiting)
    node.call(methods.ROLLBACK, A, A, start)
    resolve(node, start, 0, A)
    assert answered(node, waiting)


def test_f14_a_wait_ends_in_time() -> None:
    """A watcher tells its reader every few seconds how far it has got."""
    node = Node()
    waiting = wait(node, mark := mark_of(node), ms=200)
    node.timers.run(0.15)
    assert waiting not in node.conn.rows
    assert node.reply(waiting) == [mark]
    assert not node.machine().recent._waiting


def lose(machine: PartitionMachine) -> None:
    machine.role(leader=False)


def test_f14_waits_end_with_the_leadership() -> None:
    """Who waits at a deposed leader would hear of nothing that the next one commits."""
    node = Node()
    waiting = wait(node, mark_of(node))
    assert not answered(node, waiting)
    lose(node.machine())
    assert isinstance(node.error(waiting), NotLeader)
    assert not node.machine().recent.active


@pytest.mark.parametrize(
    ("at", "wrong"),
    [(2, 0), (3, 0), (4, -1), (5, 1), (6, 0), (7, "x"), (1, b"taab"), (0, 7)],
)
def test_c15_a_request_that_is_none_is_refused(at: int, wrong: Any) -> None:
    """Field by field: what is not checked is a crash, or an answer to another question."""
    node = Node()
    args: list[Any] = [LOW, HIGH, node.oracle(1), 10, 0, False, 1000, None]
    args[at] = wrong
    with pytest.raises(InvalidArgument):
        node.reply(node.send(methods.CHANGES, LOW, *args))
