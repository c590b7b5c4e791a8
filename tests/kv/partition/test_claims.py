"""Timestamps that a client claims: none is believed that the oracle has not given out. Made from
the table of verbs, so that a new argument that takes one without a bound fails here.
"""

from __future__ import annotations

from typing import Any

import pytest

from kv.base import methods
from kv.base.errors import InvalidArgument, KvorumError, TooLarge, Unavailable
from kv.base.methods import BLIND, COMMITTED, OP_PUT, PARTITION_VERBS, PENDING, READS
from kv.base.verbs import Verb
from kv.partition.claims import CLAIMING
from tests.kv.partition.node import Node
from tests.kv.partition.test_timestamps_later import drain, far_node, put, send_put

K, L = b"tab.k", b"tab.l"
FAR = 1 << 62
_PUT = [[OP_PUT, K, b"v", None, 0]]
WELL_FORMED: dict[str, Any] = {
    "anchor": K,
    "key": K,
    "keys": [K],
    "values": [b"v"],
    "value": b"v",
    "ops": _PUT,
    "cond": None,
    "flags": BLIND,
    "unique": False,
    "fence": False,
    "options": None,
    "met": None,
    "user": "",
}
NO_TIMES = {"cond"}
"""What takes any number and is compared with a version that is there, and nothing else."""
WRITES = [verb for verb in PARTITION_VERBS if verb.number not in READS]


def takes_far(verb: Verb, field: str) -> bool:
    """Whether the check of an argument by itself lets a number of the far future pass."""
    row = [1, verb.number, 0, 1, 1, *(WELL_FORMED.get(one, 1) for one in verb.fields)]
    row[verb.at(field)] = FAR
    try:
        verb.check(row)
    except (InvalidArgument, TooLarge):
        return False
    return field not in WELL_FORMED or field in NO_TIMES


NUMBERS = [(one, field) for one in WRITES for field in one.fields if takes_far(one, field)]


def test_what_takes_any_number_is_a_claim() -> None:
    """A new argument would be a timestamp that nobody compares with anything."""
    for verb, field in NUMBERS:
        if verb.number != methods.FINISH:
            assert (verb.at(field) in verb.claims) == (field not in NO_TIMES), (verb.name, field)
    claiming = {verb.number for verb in WRITES if verb.claims} | {methods.FINISH}
    assert claiming == CLAIMING | (claiming & methods.NEEDS_TIMESTAMP)
    assert len([one for one in NUMBERS if one[1] not in NO_TIMES]) == 17


@pytest.mark.parametrize(
    ("verb", "field"),
    [pytest.param(*one, id=f"{one[0].name}-{one[1]}") for one in NUMBERS if one[1] not in NO_TIMES],
)
@pytest.mark.parametrize("intent", [False, True])
def test_no_timestamp_of_the_future_is_believed(verb: Verb, field: str, intent: bool) -> None:
    """Who may write one row ended its partition for all others: none writes below a version, a
    record or a bound of the year 2500.
    """
    node = Node()
    start = node.oracle(1)
    if intent:
        node.call(methods.PREWRITE, K, start, K, 3_000, _PUT, BLIND)
    said: dict[str, Any] = {**dict.fromkeys(verb.fields, 1), **WELL_FORMED}
    said |= {"start_ts": start, "commit_ts": node.oracle(1), "at": start, "push_above": start}
    said |= {"ends": [[start, K, FAR, [K]]], "anchor": L if verb.name == "PREWRITE_ROWS" else K}
    if field != "ends":
        said[field] = FAR
    with pytest.raises(InvalidArgument, match="lies in the future"):
        node.call(verb.number, K, *(said[one] for one in verb.fields))
    assert node.call(methods.CHECK, K, K, start, 0, 3_000)[:3] == [PENDING, 0, 0]
    assert {lock.start_ts for lock in node.locks().values()} == ({start} if intent else set())
    version = node.put(L, b"others")
    assert version < FAR
    assert node.get(L, at=node.oracle(1)) == (b"others", version)


def test_what_a_transaction_was_given_is_believed_without_asking() -> None:
    """Each of its messages would cost a question to the oracle."""
    node, remote = far_node()
    start = node.oracle(1)
    rid = node.send(methods.PREWRITE, K, start, K, 3_000, _PUT, BLIND)
    drain(node)
    bound = remote.answer()
    node.reply(rid)
    commit_ts = node.oracle(1)
    assert bound < commit_ts
    assert node.call(methods.COMMIT, K, K, start, commit_ts)[:2] == [COMMITTED, commit_ts]
    assert node.call(methods.FINISH, K, [[start, None, commit_ts, [K]]]) == [[[COMMITTED, 0]]]
    assert not remote.asked


def test_what_was_not_heard_of_here_is_asked_for_once() -> None:
    """A node that has not heard of the oracle for a while would refuse whoever has, or believe
    everybody.
    """
    node, remote = far_node()
    put(node, remote, L)
    remote.heard = 0
    start = node.oracle(1)
    rid = node.send(methods.PREWRITE, K, start, K, 3_000, _PUT, BLIND)
    drain(node)
    remote.answer()
    node.reply(rid)
    commit_ts = node.oracle(1)
    good = node.send(methods.COMMIT, K, K, start, commit_ts)
    bad = node.send(methods.RESOLVE, K, start, FAR, [K])
    drain(node)
    assert [n for n, _ in remote.asked] == [1], "one question for all"
    assert not {good, bad} & node.conn.rows.keys()
    write, later = send_put(node, L, b"w"), node.send(methods.CHECK, K, K, start, 0, 3_000)
    drain(node)
    remote.answer()
    assert node.reply(good)[:2] == [COMMITTED, commit_ts]
    assert isinstance(node.error(bad), InvalidArgument)
    drain(node)
    remote.answer()
    assert node.reply(write)[0] > commit_ts
    assert node.reply(later)[:2] == [COMMITTED, commit_ts]


def test_without_the_oracle_no_claim_is_called_wrong() -> None:
    """A commit would be told that its timestamp is of the future, and its transaction given up."""
    node, remote = far_node()
    remote.heard = 0
    start = node.oracle(2)
    for method, *args in (
        (methods.COMMIT, K, start, start + 1),
        (methods.RESOLVE, start, start + 1, [K]),
        (methods.HEARTBEAT, K, start),
        (methods.FINISH, [[start, None, start + 1, [K]]]),
    ):
        rid = node.send(method, K, *args)
        drain(node)
        remote.fail(Unavailable("cut off"))
        refused: KvorumError = node.error(rid)
        assert isinstance(refused, Unavailable), method


def test_an_oracle_that_is_behind_calls_no_claim_wrong() -> None:
    """A commit at a timestamp that was handed out was refused for good, as one of the future, when
    the oracle answered less than what it had given out before.
    """
    node, remote = far_node()
    start = node.oracle(1)
    rid = node.send(methods.PREWRITE, K, start, K, 3_000, _PUT, BLIND)
    drain(node)
    remote.answer()
    node.reply(rid)
    commit_ts = node.oracle(1)
    put(node, remote, L)
    remote.heard = 0
    rid = node.send(methods.COMMIT, K, K, start, commit_ts)
    drain(node)
    _, done = remote.asked.pop()
    done(start, None)
    refused: KvorumError = node.error(rid)
    assert isinstance(refused, Unavailable)
    remote.heard = None
    assert node.call(methods.COMMIT, K, K, start, commit_ts)[:2] == [COMMITTED, commit_ts]
