"""Queues of writes for one key: controlled timestamps, one partition, virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kv.base import methods
from kv.base.errors import (
    Busy,
    KeyLocked,
    NotLeader,
    TxnAborted,
    Unavailable,
    WriteConflict,
    from_wire,
)
from kv.base.intents import NOBODY, Author
from kv.base.limits import LOCK_WAIT_MARGIN_MS, WAITERS_PER_KEY_MAX
from kv.base.methods import ABORTED, BLIND, OP_DELETE, OP_PUT
from kv.base.waits import Wait
from tests.kv.partition.node import Node
from tests.kv.partition.test_timestamps_later import far_node

K, L, M = b"tab.k", b"tab.l", b"tab.m"
TTL_MS = 5_000


def put_op(key: bytes, value: bytes = b"v", cond: int | None = None) -> list[Any]:
    return [OP_PUT, key, value, cond, 0]


class Queue:
    """A node and what was sent to it."""

    def __init__(self, node: Node | None = None) -> None:
        self.node = node or Node()

    def begin(self) -> int:
        return self.node.oracle(1)

    def put(self, key: bytes = K, value: bytes = b"v", budget_s: float = 10.0) -> int:
        return self.node.send(methods.PUT, key, key, value, None, 0, budget_s=budget_s)

    def delete(self, key: bytes = K) -> int:
        return self.node.send(methods.DELETE, key, key, None)

    def write(self, txn: int, *keys: bytes, flags: int = 0, **options: Any) -> int:
        ops = [put_op(key) for key in keys]
        return self.node.send(methods.WRITE, keys[0], ops, txn, flags, options or None)

    def prewrite(
        self, txn: int, *keys: bytes, flags: int = BLIND, anchor: bytes = b"", **options: Any
    ) -> int:
        ops = [put_op(key, b"%d" % txn) for key in keys]
        args = (txn, anchor or keys[0], TTL_MS, ops, flags, options or None)
        return self.node.send(methods.PREWRITE, keys[0], *args)

    def rows(self, txn: int, *keys: bytes) -> int:
        values = [b"r"] * len(keys)
        return self.node.send(
            methods.PREWRITE_ROWS, keys[0], txn, b"tab.a", TTL_MS, list(keys), values
        )

    def hold(self, *keys: bytes) -> int:
        """A transaction with intents on these keys."""
        txn = self.begin()
        self.node.reply(self.prewrite(txn, *keys))
        return txn

    def resolve(self, txn: int, *keys: bytes, commit: bool = True) -> int:
        """The commit timestamp, 0 = rolled back."""
        commit_ts = self.begin() if commit else 0
        self.node.call(methods.RESOLVE, keys[0], txn, commit_ts, list(keys))
        return commit_ts

    def run(self, seconds: float = 0.05) -> None:
        self.node.timers.run(seconds)

    def answered(self, *rids: int) -> list[bool]:
        return [rid in self.node.conn.rows for rid in rids]

    @property
    def waits(self) -> list[Wait]:
        return list(self.node.machine().waits.waits())

    def idle(self) -> bool:
        """Nobody waits and nothing of it is left."""
        waits = self.node.machine().waits
        return (
            not len(waits)
            and not waits.by_key
            and not waits._by_txn
            and not waits._expiries
            and waits._bytes == 0
            and waits._timer is None
        )


def test_d8_later_writer_waits_and_then_runs() -> None:
    """Two writers on one key: a refusal instead of a wait would make every client ask again and
    again."""
    q = Queue()
    holder = q.hold(K)
    put = q.put()
    q.run(0.5)
    assert q.answered(put) == [False]
    assert [(w.holder, w.resource, w.kind) for w in q.waits] == [(holder, K, "intent")]
    commit_ts = q.resolve(holder, K)
    (version,) = q.node.reply(put)
    assert version > commit_ts, "it was evaluated with a new timestamp"
    assert q.node.get(K) == (b"v", version)
    assert q.idle()


def test_d8_waiting_transaction_gets_a_typed_conflict() -> None:
    """The one it waited for committed above its snapshot: it must be told to run again, not write
    over it."""
    q = Queue()
    late, later = q.begin(), q.begin()
    holder = q.hold(K)
    one_entry, two_phase = q.write(late, K), q.prewrite(later, K, L, flags=0)
    q.run()
    assert q.answered(one_entry, two_phase) == [False, False]
    q.resolve(holder, K)
    assert isinstance(q.node.error(one_entry), WriteConflict)
    assert isinstance(q.node.error(two_phase), WriteConflict)
    assert q.idle()


def test_d8_waiting_transaction_runs_if_the_holder_was_rolled_back() -> None:
    """Nothing was written meanwhile: a conflict would be a lie."""
    q = Queue()
    late = q.begin()
    holder = q.hold(K)
    waiting = q.write(late, K)
    q.run()
    q.resolve(holder, K, commit=False)
    assert q.node.reply(waiting)[0] > holder
    assert q.idle()


def test_d8_first_come_first_served() -> None:
    """Any other order starves somebody under load."""
    q = Queue()
    holder = q.hold(K)
    txns = [q.begin() for _ in range(8)]
    waiting = [q.prewrite(txn, K) for txn in txns]
    q.resolve(holder, K)
    for at, (txn, rid) in enumerate(zip(txns, waiting, strict=True)):
        q.run()
        assert q.answered(*waiting) == [i <= at for i in range(8)]
        q.node.reply(rid)
        q.resolve(txn, K)
    assert q.idle()


def test_d8_newcomers_join_the_queue() -> None:
    """A key that is free for a moment is not there for whoever comes by just then."""
    q = Queue()
    holder = q.hold(K)
    first, second = q.begin(), q.begin()
    waiting = q.prewrite(first, K)
    q.run()
    commit_ts = q.begin()
    q.node.send(methods.RESOLVE, K, holder, commit_ts, [K])
    q.node.timers.run(0.0)  # evaluated, not applied: the key is free
    overtaker = q.prewrite(second, K)
    put = q.put()
    q.run()
    assert q.answered(waiting, overtaker, put) == [True, False, False]
    q.resolve(first, K)
    q.run()
    assert q.answered(overtaker, put) == [True, False]
    q.resolve(second, K)
    assert q.node.reply(put)
    assert q.idle()


def test_d8_key_that_is_free_for_a_moment_belongs_to_the_queue() -> None:
    """Between the release and the turn of the first, in one step, somebody new comes by."""
    q = Queue()
    holder = q.hold(K)
    first = q.begin()
    waiting = q.prewrite(first, K)
    q.run()
    q.node.send(methods.RESOLVE, K, holder, q.begin(), [K])
    newcomer = q.put()  # in the same drain
    q.run()
    assert q.answered(waiting, newcomer) == [True, False]
    q.resolve(first, K)
    assert q.node.reply(newcomer)
    assert q.idle()


def test_d8_single_writes_in_a_row_are_woken_together() -> None:
    """They leave nothing behind, so waking them one per sync would cost a sync each."""
    q = Queue()
    holder = q.hold(K)
    puts = [q.put(value=b"%d" % i) for i in range(50)]
    blocker = q.begin()
    behind = q.prewrite(blocker, K)
    last = q.put(value=b"last")
    q.run()
    entries = q.node.machine().counters.entries
    q.resolve(holder, K)
    versions = [q.node.reply(rid)[0] for rid in puts]
    assert versions == sorted(versions)
    q.node.reply(behind)
    assert q.node.machine().counters.entries - entries <= 4
    assert q.answered(last) == [False]
    q.resolve(blocker, K)
    (version,) = q.node.reply(last)
    assert q.node.get(K) == (b"last", version)
    assert q.idle()


def test_d8_priorities_come_first_then_arrival() -> None:
    """Who said it is urgent would wait behind what may take its time."""
    q = Queue()
    holder = q.hold(K)
    kinds = [-1, 0, 1, -1, 0, 1]
    txns = [q.begin() for _ in kinds]
    rids = [q.prewrite(t, K, priority=p) for t, p in zip(txns, kinds, strict=True)]
    q.run()
    assert [w.priority for w in q.waits] == kinds
    held, order = holder, []
    for _ in kinds:
        q.resolve(held, K)
        q.run()
        (done,) = [i for i, rid in enumerate(rids) if i not in order and q.answered(rid)[0]]
        order.append(done)
        held = txns[done]
    assert order == [2, 5, 1, 4, 0, 3]
    q.resolve(held, K)
    assert q.idle()


def test_d8_request_of_several_keys_goes_from_queue_to_queue() -> None:
    """It waits at one key at a time and keeps its place by its arrival."""
    q = Queue()
    a, b = q.hold(K), q.hold(L)
    both, young = q.begin(), q.begin()
    old = q.prewrite(both, K, L)
    new = q.prewrite(young, L)
    q.run()
    q.resolve(a, K)
    q.run()
    assert {w.waiter: w.resource for w in q.waits} == {both: L, young: L}
    q.resolve(b, L)
    q.run()
    assert q.answered(old, new) == [True, False], "the older one is ahead at the second key, too"
    q.resolve(both, K, L)
    q.node.reply(new)
    q.resolve(young, L)
    assert q.idle()


def test_d8_leaving_a_key_lets_the_next_one_run() -> None:
    """The head found another key taken: those behind it must not wait for that."""
    q = Queue()
    a, b = q.hold(K), q.hold(L)
    both = q.begin()
    old = q.prewrite(both, K, L)
    put = q.put(K)
    q.run()
    q.resolve(a, K)
    assert q.node.reply(put)
    assert q.answered(old) == [False]
    q.resolve(b, L)
    q.node.reply(old)
    q.resolve(both, K, L)
    assert q.idle()


def test_d8_own_intents_do_not_queue() -> None:
    """A transaction that comes back to a key that it holds would wait for those who wait for it."""
    q = Queue()
    mine = q.hold(K)
    others = [q.put(K), q.prewrite(q.begin(), K)]
    q.run()
    again = q.prewrite(mine, K, L)
    q.node.reply(again)
    q.resolve(mine, K, L)
    assert all(q.node.reply(rid) for rid in others)


def test_d8_prewrite_sent_again_while_it_waits() -> None:
    """After a lost connection: the second copy must not wait for the first one's intents."""
    q = Queue()
    holder = q.hold(K)
    txn = q.begin()
    first = q.prewrite(txn, K)
    between = q.put(K)
    second = q.prewrite(txn, K)
    q.run()
    q.resolve(holder, K)
    q.node.reply(first)
    q.node.reply(second)
    assert q.answered(between) == [False]
    q.resolve(txn, K)
    assert q.node.reply(between)
    assert q.idle()


@pytest.mark.parametrize("options", [{"wait_ms": 0}, {"wait_ms": 0, "priority": 1}])
def test_d8_nowait_is_told_at_once(options: dict[str, int]) -> None:
    """Who must not wait gets the blocker's name now."""
    q = Queue()
    holder = q.hold(K)
    for rid in (q.write(q.begin(), K, **options), q.prewrite(q.begin(), K, **options)):
        q.run(0.01)
        error = q.node.error(rid)
        assert isinstance(error, KeyLocked)
        assert error.details["txn"] == holder
        assert error.details["waited_ms"] == 0
    assert q.idle()


def test_d8_lock_timeout_names_the_blocker() -> None:
    """Without key, transaction, age and a way out, nobody can do anything about it."""
    q = Queue()
    holder = q.hold(K)
    began = q.node.clock.monotonic()
    rid = q.prewrite(q.begin(), K, wait_ms=300)
    error = q.node.error(rid)
    assert 0.3 <= q.node.clock.monotonic() - began < 0.35
    assert isinstance(error, KeyLocked)
    d = error.details
    assert (d["key"], d["txn"], d["anchor"], d["ttl_ms"]) == (K, holder, K, TTL_MS)
    assert d["waited_ms"] >= 300
    assert d["age_ms"] >= 300
    assert str(holder) in error.message
    assert "lock_wait_ms" in error.message
    assert q.idle()


def test_d8_waits_end_before_the_deadline() -> None:
    """The answer must arrive while somebody still waits for it."""
    q = Queue()
    q.hold(K)
    began = q.node.clock.monotonic()
    short, long = q.put(budget_s=0.1), q.put(budget_s=10.0)
    assert isinstance(q.node.error(short), KeyLocked)
    assert 0.085 <= q.node.clock.monotonic() - began <= 0.095
    assert isinstance(q.node.error(long), KeyLocked)
    left_s = 10.0 - (q.node.clock.monotonic() - began)
    assert left_s == pytest.approx(LOCK_WAIT_MARGIN_MS / 1000, abs=0.01)
    assert q.idle()


def test_d8_rollback_ends_the_waits_of_its_transaction() -> None:
    """An aborted transaction whose prewrite gets its turn would leave an intent behind."""
    q = Queue()
    holder = q.hold(K)
    txn, other = q.begin(), q.begin()
    mine, others = q.prewrite(txn, K, anchor=M), q.prewrite(other, K)
    q.run()
    q.resolve(txn, L, commit=False)
    error = q.node.error(mine)
    assert isinstance(error, TxnAborted)
    assert error.details["txn"] == txn
    assert q.answered(others) == [False]
    q.resolve(holder, K)
    q.node.reply(others)
    q.node.call(methods.RESOLVE, K, other, 0, [K])
    assert q.idle()
    anchored = q.prewrite(third := q.begin(), K)
    q.node.reply(anchored)
    behind = q.prewrite(fourth := q.begin(), K)
    q.run()
    assert q.node.call(methods.ROLLBACK, K, K, fourth)[0] == ABORTED
    assert isinstance(q.node.error(behind), TxnAborted)
    q.resolve(third, K)
    assert q.idle()


def test_d8_lost_leadership_sends_the_waiters_elsewhere() -> None:
    """They would wait at a node that will never learn of the release."""
    q = Queue()
    holder = q.hold(K)
    rids = [q.put(), q.prewrite(q.begin(), K), q.delete()]
    q.run()
    machine = q.node.machine()
    machine.role(leader=False)
    q.run(0.0)
    for rid in rids:
        assert isinstance(from_wire(q.node.conn.rows[rid][2:]), NotLeader)
    assert q.idle()
    machine.role(leader=True)
    again = q.put()
    q.run()
    assert q.answered(again) == [False]
    q.resolve(holder, K)
    assert q.node.reply(again)


def test_d8_lost_leadership_answers_woken_ones_once() -> None:
    """One whose turn had come is in two places; two answers to one request break its connection."""
    node, remote = far_node()
    q = Queue(node)
    txn = node.oracle(1)
    rid = q.prewrite(txn, K)
    node.timers.run(0.0)
    remote.answer()
    node.reply(rid)
    puts = [q.put() for _ in range(3)]
    node.timers.run(0.0)
    remote.answer()
    node.timers.run(0.0)
    assert len(q.waits) == 3
    node.call(methods.RESOLVE, K, txn, node.oracle(1), [K])
    assert not any(q.answered(*puts)), "they wait for timestamps now"
    node.machine().role(leader=False)
    node.timers.run(0.0)
    assert all(isinstance(node.error(rid), NotLeader) for rid in puts)
    assert q.idle()


def test_waits_of_a_transaction_end_with_what_its_user_ends() -> None:
    """Whoever may write the table had everybody's waiting writes refused, by their start_ts."""
    q = Queue()
    q.hold(K)
    txn = q.begin()
    conn = q.node.conn
    conn.author = Author("ann", others=False)
    waits = [q.prewrite(txn, K), q.write(txn, K)]
    q.run()
    conn.author = Author("bob", others=False)
    q.node.call(methods.RESOLVE, L, txn, 0, [L])
    assert q.node.call(methods.ROLLBACK, L, L, txn)[0] == ABORTED
    assert q.answered(*waits) == [False, False]
    conn.author = NOBODY
    q.node.call(methods.RESOLVE, L, txn, 0, [L], None, "bob")
    for _ in range(2):  # a node ends what bob had begun under that id, and asks again
        assert q.node.call(methods.ROLLBACK, L, L, txn)[0] == ABORTED
    assert q.answered(*waits) == [False, False]
    q.node.call(methods.RESOLVE, L, txn, 0, [L], None, "ann")
    assert all(isinstance(q.node.error(rid), TxnAborted) for rid in waits)


def test_d8_woken_ones_are_ahead_of_those_who_wait_for_timestamps() -> None:
    """With the oracle elsewhere a newcomer may have asked for its timestamp before the release."""
    node, remote = far_node()
    q = Queue(node)
    holder = node.oracle(1)
    rid = q.prewrite(holder, K)
    node.timers.run(0.0)
    remote.answer()
    node.reply(rid)
    first = q.prewrite(node.oracle(1), K)
    node.timers.run(0.0)
    remote.answer()
    node.timers.run(0.0)
    node.send(methods.RESOLVE, K, holder, node.oracle(1), [K])
    node.timers.run(0.0)
    newcomer = q.put()
    node.timers.run(0.0)
    while remote.asked:
        remote.answer()
        node.timers.run(0.01)
    assert q.answered(first, newcomer) == [True, False]


def test_d8_queues_are_bounded() -> None:
    """A key that nobody releases must not collect requests for ever."""
    q = Queue()
    q.hold(K)
    rids = [q.put() for _ in range(WAITERS_PER_KEY_MAX + 1)]
    q.run()
    error = q.node.error(rids[-1])
    assert isinstance(error, Busy)
    assert error.details["limit"] == WAITERS_PER_KEY_MAX
    assert not any(q.answered(*rids[:-1]))
    assert q.put(L)


def test_d8_chunks_wait_and_are_waited_for() -> None:
    """A bulk transaction's rows are intents like others."""
    q = Queue()
    holder = q.hold(L)
    txn = q.begin()
    rows = q.rows(txn, K, L, M)
    q.run()
    assert [(w.waiter, w.resource, w.holding) for w in q.waits] == [(txn, L, True)]
    q.resolve(holder, L)
    q.node.reply(rows)
    puts = [q.put(key) for key in (K, M)]
    q.run()
    assert q.answered(*puts) == [False, False]
    q.resolve(txn, K)
    assert all(q.node.reply(rid) for rid in puts), "one of its keys released them all"
    assert q.idle()


def test_d8_checks_wait_too() -> None:
    """What a condition says about a key that is being written is not known yet."""
    q = Queue()
    holder = q.hold(K)
    op = [OP_DELETE, K, None, None, 0]
    rid = q.node.send(methods.WRITE, K, [op], 0, 0)
    q.run()
    assert q.answered(rid) == [False]
    q.resolve(holder, K)
    assert q.node.reply(rid)


def test_d8_victim_is_refused_only_in_the_wait_that_was_seen() -> None:
    """A deadlock that has resolved itself must not cost anybody's work."""
    q = Queue()
    holder = q.hold(K)
    txn = q.begin()
    rid = q.prewrite(txn, K)
    q.run()
    (wait,) = q.waits
    waits = q.node.manager.waits
    error = TxnAborted("victim", code="DEADLOCK")
    assert not waits.refuse((wait.node, wait.source, wait.id, holder + 1), error)
    assert not waits.refuse((wait.node, wait.source, wait.id + 1, holder), error)
    assert waits.refuse(wait.edge, error)
    assert not waits.refuse(wait.edge, error)
    assert q.node.error(rid).code == "DEADLOCK"
    assert q.idle()


def test_d8_seals_do_not_lose_waiters_of_a_lost_entry() -> None:
    """The intent that they waited for was never proposed: nobody will ever release it."""
    q = Queue()
    machine = q.node.machine()
    txn = q.begin()
    prewrite, put = q.prewrite(txn, K), q.put()
    replica = q.node.manager.replica(machine.descriptor.id)
    assert replica is not None
    real, refusing = replica.propose, [True]

    def propose(command: bytes, entry: Any) -> None:
        if refusing:
            refusing.clear()
            raise Busy("no room")
        real(command, entry)

    replica.propose = propose  # type: ignore[method-assign]
    assert isinstance(q.node.error(prewrite), Busy)
    assert q.node.reply(put)
    assert q.idle()


def test_d8_time_that_passes_while_the_turn_comes_is_noticed() -> None:
    """It found the next key taken after its time was over: nobody would look at its clock again."""
    node, remote = far_node()
    q = Queue(node)
    holders = {}
    for key in (K, L):
        holders[key] = node.oracle(1)
        rid = q.prewrite(holders[key], key)
        node.timers.run(0.0)
        remote.answer()
        node.reply(rid)
    waiting = q.write(0, K, L, wait_ms=100)
    node.timers.run(0.0)
    remote.answer()
    node.timers.run(0.05)
    node.call(methods.RESOLVE, K, holders[K], node.oracle(1), [K])
    node.timers.run(0.2)
    assert q.answered(waiting) == [False], "its turn has come, it wants a timestamp"
    remote.answer()
    node.timers.run(0.0)
    assert isinstance(node.error(waiting), KeyLocked)
    assert q.idle()


def test_d8_writes_of_other_keys_pass_those_who_wait() -> None:
    """One slow transaction must not slow down its whole partition."""
    q = Queue()
    holder = q.hold(K)
    waiting = q.put(K)
    q.run()
    assert [q.node.put(L, b"%d" % i) for i in range(3)]
    assert q.node.delete(L)
    assert q.answered(waiting) == [False]
    q.resolve(holder, K)
    assert q.node.reply(waiting)


def test_d8_stopping_node_answers_those_who_wait() -> None:
    """A connection that just ends says nothing: the write would be in doubt."""
    q = Queue()
    holder = q.hold(K)
    rids = [q.put(), q.prewrite(q.begin(), K)]
    q.run()
    q.node.manager.dismiss_waiters(Unavailable("stops", code="STOPPING"))
    q.run()
    assert [q.node.error(rid).code for rid in rids] == ["STOPPING"] * 2
    assert q.idle()
    q.resolve(holder, K)


def test_d8_writers_wait_for_guards() -> None:
    """What a serializable transaction has read is held like what it writes."""
    q = Queue()
    reader = q.begin()
    options = {"reads": [K], "ranges": [[b"tab.p", b"tab.q"]]}
    q.node.reply(q.prewrite(reader, L, **options))
    other = q.begin()
    q.node.reply(q.prewrite(other, M, reads=[K]))
    put, inside = q.put(K), q.put(b"tab.p5")
    q.run()
    assert q.answered(put, inside) == [False, False]
    assert [(w.kind, w.holder, w.resource, w.held) for w in q.waits] == [
        ("guard", reader, K, K),
        ("guard", reader, b"tab.p5", b"tab.p"),
    ]
    q.node.call(methods.RESOLVE, K, reader, q.begin(), [L, K, b"tab.p"])
    assert q.node.reply(inside)
    q.run()
    assert [(w.kind, w.holder) for w in q.waits] == [("guard", other)], "two may have read it"
    q.node.call(methods.RESOLVE, K, other, 0, [M, K])
    assert q.node.reply(put)
    assert q.idle()


def test_d8_serializable_reads_wait_for_intents() -> None:
    """Whether a key that is being written has changed is not known yet."""
    q = Queue()
    txn = q.begin()
    holder = q.hold(K)
    rid = q.prewrite(txn, L, flags=0, reads=[K])
    q.run()
    assert [(w.kind, w.holder, w.resource) for w in q.waits] == [("intent", holder, K)]
    q.resolve(holder, K, commit=False)
    q.node.reply(rid)
    q.node.call(methods.RESOLVE, K, txn, 0, [L, K])
    assert q.idle()


def test_d8_those_who_came_and_went_are_forgotten() -> None:
    """One that waits long must not keep the memory of all who waited after it."""
    q = Queue()
    holder = q.hold(M)
    long = q.put(M, budget_s=3_500.0)
    for _ in range(300):
        other = q.hold(K)
        rid = q.put(K, budget_s=3_600.0)
        q.run(0.01)
        q.resolve(other, K, commit=False)
        q.node.reply(rid)
    waits = q.node.machine().waits
    assert (len(waits), waits.counters.parked) == (1, 301)
    assert len(waits._expiries) <= 66
    q.resolve(holder, M)
    q.node.reply(long)
    assert q.idle()


def test_d8_keys_that_are_free_together_keep_the_order_of_arrival() -> None:
    """The youngest of three who waited for one transaction would be the first to be evaluated."""
    q = Queue()
    reader = q.begin()
    q.node.reply(q.prewrite(reader, L, ranges=[[b"tab.p", b"tab.q"]]))
    rids = []
    for i in (1, 0, 2):
        rids.append(q.put(b"tab.p%d" % i))
        q.run(0.01)
    q.node.call(methods.RESOLVE, L, reader, 0, [L, b"tab.p"])
    versions = [q.node.reply(rid) for rid in rids]
    assert versions == sorted(versions), "in the order in which they came"
    assert q.idle()


@pytest.mark.parametrize(
    "options", [{"reads": [K]}, {"ranges": [[b"tab.j", L]]}], ids=["key", "range"]
)
def test_d8_guards_do_not_overtake_a_writer_that_waits(options: dict[str, Any]) -> None:
    """Guards let each other in: a stream of them would keep a writer out for ever."""
    q = Queue()
    first, second = q.begin(), q.begin()
    q.node.reply(q.prewrite(first, b"tab.a", **options))
    put = q.put(K)
    q.run()
    guard = q.prewrite(second, b"tab.b", **options)
    q.run()
    assert q.answered(put, guard) == [False, False]
    assert [(w.waiter, w.holder) for w in q.waits] == [(0, first), (second, first)], "for circles"
    again = q.prewrite(first, b"tab.c", anchor=b"tab.a", **options)
    q.node.reply(again)  # who holds the guard does not wait for those who wait for itself
    q.resolve(first, b"tab.a", b"tab.c", K, b"tab.j")
    assert q.node.reply(put)
    with pytest.raises(WriteConflict):
        q.node.reply(guard)  # the writer was first, and changed what it read
    q.node.call(methods.RESOLVE, K, second, 0, [b"tab.b", K, b"tab.j"])
    assert q.idle()


def test_d8_guards_of_other_keys_pass_those_who_wait() -> None:
    """A serializable transaction must not stand behind writers of what it never read."""
    q = Queue()
    holder = q.hold(K)
    put = q.put(K)
    q.run()
    reader = q.begin()
    q.node.reply(q.prewrite(reader, b"tab.a", reads=[L], ranges=[[b"tab.b", b"tab.c"], [L, b""]]))
    q.resolve(holder, K)
    assert q.node.reply(put)
    q.node.call(methods.RESOLVE, K, reader, 0, [b"tab.a", L, b"tab.b"])
    assert q.idle()


@pytest.mark.parametrize("finish", [False, True])
def test_d8_a_hot_key_changes_hands_in_one_entry(finish: bool) -> None:
    """The release in one entry and the next intent in another: two syncs for each writer of a hot
    key, one after the other. FINISH wakes whoever waits as RESOLVE does.
    """
    q = Queue()
    holder = q.hold(K)
    waiting = [q.begin() for _ in range(3)]
    rids = [q.prewrite(txn, K) for txn in waiting]
    q.run()
    for rid, txn in zip(rids, waiting, strict=True):
        entries = q.node.machine().counters.entries
        if finish:
            commit_ts = q.begin()
            told = q.node.call(methods.FINISH, K, [[holder, None, commit_ts, [K]]])
            assert told == [[[methods.COMMITTED, 0]]]
        else:
            commit_ts = q.resolve(holder, K)
        (bound, *_) = q.node.reply(rid)
        assert bound > commit_ts, "its timestamp was asked for behind the release"
        assert q.node.machine().counters.entries == entries + 1
        holder = txn
    q.resolve(holder, K)
    assert q.idle()
