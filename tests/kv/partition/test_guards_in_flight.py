"""Validation and guards against what was evaluated, but is not applied yet (kv.mvcc.validate)."""

from __future__ import annotations

from typing import Any

import pytest

from kv.base import methods
from kv.base.errors import (
    InvalidArgument,
    KeyLocked,
    Moved,
    TooLarge,
    TxnAborted,
    WriteConflict,
)
from kv.base.limits import ENTRY_TARGET_BYTES, PREWRITE_KEYS_MAX
from kv.base.methods import OP_DELETE, OP_PUT
from kv.mvcc import validate
from kv.partition import evaluated_state
from tests.kv.partition.node import Node, run
from tests.kv.partition.test_timestamps_later import drain, far_node

A, Z = b"tab.a", b"tab.z"
ALL = {"ranges": [[b"tab.k", b"tab.l"]]}
ONE = {"reads": [b"tab.k5"]}
NOWAIT = {"wait_ms": 0}


def put_op(key: bytes, value: bytes | None = b"v") -> list[Any]:
    return [OP_PUT, key, value, None, 0]


def send_put(node: Node, key: bytes) -> int:
    return node.send(methods.PUT, key, key, b"new", None, 0)


def send_write(node: Node, start: int, options: dict[str, Any], *, key: bytes = A) -> int:
    """A transaction of one entry that read what `options` say, and writes `key`."""
    return node.send(methods.WRITE, key, [put_op(key)], start, 0, NOWAIT | options)


def send_guard(node: Node, start: int, options: dict[str, Any], ttl: int = 5000) -> int:
    return node.send(methods.PREWRITE, b"tab.k", start, Z, ttl, [], 0, options)


def guarded(node: Node) -> list[tuple[bytes, int]]:
    found = node.machine().view.guards
    return sorted(found.by_at) if found is not None else []


@pytest.mark.parametrize("options", [ALL, ONE], ids=["range", "key"])
@pytest.mark.parametrize("kind", ["put", "delete", "intent"])
@pytest.mark.parametrize("flying", [False, True], ids=["open", "flying"])
def test_serializable_changes_in_flight_are_seen(
    options: dict[str, Any], kind: str, flying: bool
) -> None:
    """Two transactions in one batch would not know of each other: write skew in a millisecond."""
    node = Node()
    node.put(b"tab.k5" if kind == "delete" else b"tab.k1", b"old")
    start, other = node.oracle(1), node.oracle(1)
    if kind == "intent":
        op = put_op(b"tab.k5")
        change = node.send(methods.PREWRITE, b"tab.k5", other, b"tab.k5", 5000, [op], 0)
    elif kind == "put":
        change = send_put(node, b"tab.k5")
    else:
        change = node.send(methods.DELETE, b"tab.k5", b"tab.k5", None)
    if flying:
        node.settle(lambda: node.machine().view.flying is not None)
    rid = send_write(node, start, options)
    drain(node)
    assert rid not in node.conn.rows, "it saw what a crash may take back"
    error = node.error(rid)
    assert error.details["key"] == b"tab.k5"
    if kind == "intent":
        assert isinstance(error, KeyLocked)
        assert error.details["txn"] == other
    else:
        assert isinstance(error, WriteConflict)
        assert error.details["conflict_ts"] == node.reply(change)[0]
    assert node.get(A) == (None, 0)


def test_serializable_what_left_in_flight_is_gone() -> None:
    """An intent that was removed a moment ago would stop a transaction, or a row would count that
    was replaced in time.
    """
    node = Node()
    other = node.oracle(1)
    op = put_op(b"tab.k5")
    node.call(methods.PREWRITE, b"tab.k5", other, b"tab.k5", 5000, [op], 0)
    commit_ts = node.oracle(1)
    node.call(methods.COMMIT, b"tab.k5", b"tab.k5", other, commit_ts)
    start = node.oracle(1)
    node.send(methods.RESOLVE, b"tab.k5", other, commit_ts, [b"tab.k5"])
    rid = send_write(node, start, ALL)
    drain(node)
    assert node.machine().view.flying is not None
    assert node.reply(rid)[0] > start, "the version in flight is one that it read"


def test_serializable_a_guard_in_flight_holds_writes_back() -> None:
    """Between the check and the disk's answer a write could slip in."""
    node = Node()
    start = node.oracle(1)
    guard = send_guard(node, start, ALL)
    write = send_put(node, b"tab.k7")
    beside = send_put(node, b"tab.m")
    bound, _, before_ts, left = node.reply(guard)
    assert (before_ts, left) == (0, 0)
    node.reply(beside)
    node.timers.run(1.0)
    assert write not in node.conn.rows
    assert guarded(node) == [(b"tab.k", start)]
    commit_ts = node.oracle(1)
    assert commit_ts >= bound
    resolve = node.send(methods.RESOLVE, b"tab.k", start, commit_ts, [b"tab.k"])
    version: int = node.reply(write)[0]
    assert version > commit_ts, "it waited, and was dated when its turn came"
    assert node.reply(resolve) == [1, 0]
    assert guarded(node) == []


def test_serializable_a_transaction_does_not_queue_behind_who_waits_for_it() -> None:
    """It would wait for somebody who waits for its own guard: both, until their time is over."""
    node = Node()
    start = node.oracle(1)
    node.reply(send_guard(node, start, ALL))
    write = send_put(node, b"tab.k7")
    drain(node)
    mine = (start, Z, 5000, [put_op(b"tab.k7")], 0)
    node.call(methods.PREWRITE, b"tab.k7", *mine)
    assert write not in node.conn.rows
    node.call(methods.RESOLVE, b"tab.k", start, 0, [b"tab.k", b"tab.k7"])
    assert node.reply(write)[0] > start


def test_serializable_a_released_guard_does_not_let_old_timestamps_through() -> None:
    """A write whose timestamp was asked for while the guard stood would be dated before the
    transaction whose read it changes: a reader between the two sees one without the other.
    """
    node, remote = far_node()
    start = node.oracle(1)
    guard = send_guard(node, start, ALL)
    drain(node)
    remote.answer()
    node.reply(guard)
    write = send_put(node, b"tab.k7")
    drain(node)
    early = remote.take()
    commit_ts = node.oracle(1)
    assert early < commit_ts
    resolve = node.send(methods.RESOLVE, b"tab.k", start, commit_ts, [b"tab.k"])
    drain(node)
    remote.tell()
    drain(node)
    assert write not in node.conn.rows
    node.reply(resolve)
    node.settle(lambda: bool(remote.asked))
    remote.answer()
    assert node.reply(write)[0] > commit_ts


def test_serializable_guards_survive_leadership_and_power() -> None:
    """A new leader would let in what the old one had promised to keep out."""
    node = Node()
    start = node.oracle(1)
    node.reply(send_guard(node, start, {"ranges": [[b"tab.k", b"tab.l"]], "reads": [b"tab.m"]}))
    machine = node.machine()
    machine.role(leader=False)
    machine.role(leader=True)
    assert guarded(node) == [(b"tab.k", start), (b"tab.m", start)]
    send_guard(node, node.oracle(1), {"reads": [b"tab.x"]})
    drain(node)  # not durable: the next one may find it, or not
    after = node.crash(3)
    after.timers.run(3.0)
    assert [at for at in guarded(after) if at[1] == start] == [(b"tab.k", start), (b"tab.m", start)]
    for key in (b"tab.k0", b"tab.m"):
        refused = after.error(after.send(methods.WRITE, key, [put_op(key)], 0, 0, NOWAIT))
        assert isinstance(refused, KeyLocked)
        assert refused.details["txn"] == start


def test_serializable_what_was_lost_with_its_entry_guards_nothing() -> None:
    """Keys would be closed for a transaction that was told that nothing happened."""
    node = Node()
    rid = send_guard(node, node.oracle(1), ALL)
    propose = node.manager.replicas()[0].propose

    def refuse(*_: object) -> None:
        raise TooLarge("no", details={})

    node.manager.replicas()[0].propose = refuse  # type: ignore[method-assign]
    drain(node)
    assert isinstance(node.error(rid), TooLarge)
    assert guarded(node) == []
    node.manager.replicas()[0].propose = propose  # type: ignore[method-assign]
    node.reply(send_put(node, b"tab.k1"))


def test_serializable_a_dropped_partition_leaves_no_guards() -> None:
    """A partition that is made there later would begin with guards of nobody."""
    node = Node(splits=(b"tab.m",))
    start = node.oracle(1)
    node.reply(send_guard(node, start, ALL))
    args = (start, Z, 5000, [], 0, {"ranges": [[b"tab.n", b""]]})
    node.call(methods.PREWRITE, b"tab.n", *args)
    assert len(node.engine.scan("guard", b"", b"")) == 2
    left = node.machine(b"tab.k").descriptor
    run(node.manager.drop(left.id))
    node.timers.run(1.0)
    assert [key for key, _ in node.engine.scan("guard", b"", b"")] == [
        key for key, _ in node.engine.scan("guard", b"tab.m", b"")
    ]
    run(node.manager.create(left))
    node.settle(lambda: all(r.serving() for r in node.manager.replicas()))
    node.put(b"tab.k1", b"free")


def test_serializable_much_validation_is_spread_over_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commits that look through long ranges would hold the loop for seconds."""
    monkeypatch.setattr(evaluated_state, "LOOK_BYTES", ENTRY_TARGET_BYTES // 50)
    node = Node()
    for i in range(30):
        node.put(b"tab.k%02d" % i, b"v")
    start = node.oracle(1)
    node.put(b"tab.k29", b"changed")
    before = node.machine().counters.drains
    good = [send_write(node, node.oracle(1), ALL, key=b"tab.a%d" % i) for i in range(6)]
    bad = [send_write(node, start, ALL) for _ in range(20)]
    puts = [send_put(node, b"tab.p%d" % i) for i in range(3)]
    for rid in good + puts:
        assert node.reply(rid)[0] > start
    for rid in bad:
        assert isinstance(node.error(rid), WriteConflict)
    assert node.machine().counters.drains - before >= 12
    assert node.machine().waiting == 0


# ------------------------------------------------------------------ bad input changes nothing

BAD: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "keys that do not rise": ({"reads": [b"tab.b", b"tab.a"]}, InvalidArgument),
    "a key twice": ({"reads": [b"tab.a", b"tab.a"]}, InvalidArgument),
    "no key": ({"reads": ["tab.a"]}, InvalidArgument),
    "a short key": ({"reads": [b"ta"]}, InvalidArgument),
    "nothing": ({"reads": []}, InvalidArgument),
    "no list": ({"reads": b"tab.a"}, InvalidArgument),
    "too many": ({"reads": [b"tab.%09d" % i for i in range(PREWRITE_KEYS_MAX + 1)]}, TooLarge),
    "half a range": ({"ranges": [[b"tab.a"]]}, InvalidArgument),
    "an empty range": ({"ranges": [[b"tab.b", b"tab.b"]]}, InvalidArgument),
    "a range backwards": ({"ranges": [[b"tab.b", b"tab.a"]]}, InvalidArgument),
    "ranges that overlap": (
        {"ranges": [[b"tab.a", b"tab.c"], [b"tab.b", b"tab.d"]]},
        InvalidArgument,
    ),
    "a range behind one without end": (
        {"ranges": [[b"tab.a", b""], [b"tab.b", b"tab.d"]]},
        InvalidArgument,
    ),
    "a key elsewhere": ({"reads": [b"tab.a", b"tab.p"]}, Moved),
    "a range that goes on elsewhere": ({"ranges": [[b"tab.a", b"tab.p"]]}, Moved),
    "a range without end": ({"ranges": [[b"tab.a", b""]]}, Moved),
}


@pytest.mark.parametrize("name", BAD)
def test_serializable_bad_options_are_refused(name: str) -> None:
    """A read that is not checked, or checked elsewhere, is a promise that nobody keeps."""
    options, expected = BAD[name]
    node = Node(splits=(b"tab.m",))
    start = node.oracle(1)
    op = put_op(A)
    for rid in (
        node.send(methods.WRITE, A, [op], start, 0, options),
        node.send(methods.PREWRITE, A, start, A, 5000, [op], 0, options),
        node.send(methods.PREWRITE, A, start, A, 5000, [], 0, options),
    ):
        assert isinstance(node.error(rid), expected), node.conn.rows[rid]
    assert node.engine.scan("guard", b"", b"") == []
    assert node.get(A) == (None, 0)


def test_serializable_reads_need_a_transaction() -> None:
    """A batch without an id has no moment that its reads could be of."""
    node = Node()
    rid = node.send(methods.WRITE, A, [[OP_DELETE, A, None, None, 0]], 0, 0, ONE)
    assert isinstance(node.error(rid), InvalidArgument)
    empty = node.send(methods.PREWRITE, A, node.oracle(1), A, 5000, [], 0)
    assert isinstance(node.error(empty), InvalidArgument)


# ------------------------------------------------------------------ parallel commits

STAGED = {"fence": True, "stage": [[A], [b"tab.k"], [b"tab.z"]]}


def test_d13_a_part_with_guards_is_exact_and_stays_so() -> None:
    """The answer is what recovery finds, whoever read meanwhile and however often it is sent."""
    node = Node()
    start = node.oracle(1)
    args = (start, A, 5000, [put_op(A)], 0, STAGED | ALL)
    first = node.send(methods.PREWRITE, A, *args)
    drain(node)
    reader = node.send(methods.GET, b"tab.m", b"tab.m", node.oracle(1), None)
    bound, exact, before_ts, left = node.reply(first)
    assert (exact, before_ts, left) == (True, 0, 0)
    node.reply(reader)
    assert node.call(methods.PREWRITE, A, *args)[0] == bound
    only = (start, A, 5000, [], 0, {"fence": True, "reads": [b"tab.z"]})
    rid = node.send(methods.PREWRITE, b"tab.z", *only)
    drain(node)
    node.send(methods.GET, b"tab.m", b"tab.m", node.oracle(1), None)
    higher, exact, _, _ = node.reply(rid)
    assert exact is True
    assert higher > bound
    assert node.call(methods.PREWRITE, b"tab.z", *only)[:2] == [higher, True]
    asked = node.call(methods.RECOVER, A, start, A, [A, b"tab.k", b"tab.z"], False)
    assert asked == [True, higher]


@pytest.mark.parametrize("why", ["expires", "long"])
def test_d13_reads_that_hold_only_for_now_are_not_exact(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody would find it committed at a timestamp at which what it read was gone."""
    node = Node()
    for i in range(5):
        node.put(b"tab.k%d" % i, b"v", ttl_ms=60_000 if why == "expires" else 0)
    if why == "long":
        monkeypatch.setattr(validate, "GUARD_ROWS", 3)
    start = node.oracle(1)
    args = (start, A, 5000, [put_op(A)], 0, STAGED | ALL)
    _, exact, before_ts, left = node.call(methods.PREWRITE, A, *args)
    assert not exact
    assert (before_ts > start, left) == (why == "expires", int(why == "long"))
    assert node.call(methods.RECOVER, A, start, A, [A, b"tab.k"], True) == [False, 0]


@pytest.mark.parametrize("end", [methods.COMMIT, methods.ROLLBACK])
def test_serializable_an_echo_after_the_end_guards_nothing(end: int) -> None:
    """A message that was sent twice would guard keys for a transaction that is over."""
    node = Node()
    start = node.oracle(1)
    args = (start, A, 5000, [put_op(A)], 0, ALL)
    node.call(methods.PREWRITE, A, *args)
    more = (node.oracle(1),) if end == methods.COMMIT else ()
    _, commit_ts, *_ = node.call(end, A, A, start, *more)
    node.call(methods.RESOLVE, A, start, commit_ts, [A, b"tab.k"])
    rid = node.send(methods.PREWRITE, A, *args)
    if end == methods.COMMIT:
        assert node.reply(rid) == [commit_ts, False, 0, 0]
    else:
        assert isinstance(node.error(rid), TxnAborted)
    assert guarded(node) == []
