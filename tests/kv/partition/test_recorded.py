"""What a leader knows about transaction records without looking (kv/partition/known_records.py)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.errors import TxnAborted
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.methods import COMMITTED, OP_PUT, PENDING, ROLLBACK, STAGING, WRITE
from kv.base.timestamps import MAX
from kv.mvcc.records import TxnRecord
from kv.partition import known_records
from kv.partition.known_records import Recorded
from tests.kv.partition.node import Node

K, L = (table_prefix(TableId(100)) + name for name in (b"k", b"l"))


def write(node: Node, start_ts: int, value: bytes = b"v") -> int:
    return node.send(WRITE, K, [[OP_PUT, K, value, None, 0]], start_ts, 0)


def test_d3_a_record_of_this_reign_is_found() -> None:
    """A transaction that somebody rolled back was committed, or one that was sent again was
    committed twice.
    """
    node = Node()
    node.put(L, b"x")
    aborted, repeated = node.oracle(1), node.oracle(1)
    node.reply(node.send(ROLLBACK, K, K, aborted))
    assert isinstance(node.error(write(node, aborted)), TxnAborted)
    first = node.reply(write(node, repeated))
    assert node.reply(write(node, repeated, b"other")) == first, "sent again, it finds its outcome"
    assert node.get(K) == (b"v", first[0])


def test_d3_a_record_of_an_earlier_reign_is_found() -> None:
    """A new leader did not look for what its predecessor had recorded."""
    node = Node()
    node.put(L, b"x")
    aborted, repeated = node.oracle(1), node.oracle(1)
    node.reply(node.send(ROLLBACK, K, K, aborted))
    first = node.reply(write(node, repeated))
    replica = node.manager.replica(1)
    assert replica is not None
    replica.role(leader=False, term=2)
    replica.role(leader=True, term=3)
    for _ in range(2):  # before and after the oracle was heard
        assert isinstance(node.error(write(node, aborted)), TxnAborted)
        assert node.reply(write(node, repeated, b"other")) == first
        node.put(L, b"y")


def test_d3_a_usual_transaction_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every small transaction paid for a look that finds nothing."""
    node = Node()
    node.put(L, b"x")
    state = node.manager.replica(1).state  # type: ignore[union-attr]
    looked: list[int] = []
    look = state.txn

    def counted(anchor: bytes, start_ts: int) -> object:
        looked.append(start_ts)
        return look(anchor, start_ts)

    monkeypatch.setattr(type(state), "txn", lambda _self, *at: counted(*at))
    assert node.reply(write(node, node.oracle(1)))
    assert looked == []


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("record"), st.integers(1, 60)),
            st.tuples(st.just("heard"), st.just(0)),
            st.tuples(st.just("lost"), st.just(0)),
        ),
        max_size=60,
    ),
    st.integers(1, 8),
)
def test_d3_nothing_recorded_is_forgotten(steps: list[tuple[str, int]], most: int) -> None:
    """A record was taken for one that is not there, or for what it said before, after the older
    half was forgotten or another leader had been here.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_records, "RECORDED_TXNS_MAX", most)
        patch.setattr(known_records, "OPEN_TXNS_MAX", most)
        known, records = Recorded(), set()
        said: dict[tuple[bytes, int], TxnRecord] = {}
        for now, (what, age) in enumerate(steps, 1):
            if what == "record":  # of a transaction that began up to 60 steps ago
                start_ts = max(1, now - age)
                records.add(start_ts)
                status = (PENDING, STAGING, COMMITTED)[age % 3]
                said[K, start_ts] = TxnRecord(status=status, heartbeat_ms=now)
                known.add({(K, start_ts): said[K, start_ts]})
            elif what == "heard":
                known.heard(now)
            else:
                known.forget()
                assert known.floor == MAX
            assert all(known.perhaps(start_ts) for start_ts in records)
            assert all(said[at] == record for at, record in known.open.items())
            assert len(known.open) <= most
            assert all(record.status != COMMITTED for record in known.open.values())
