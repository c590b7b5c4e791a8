"""Commits of many plain rows: buffered at once, sent as keys and values (WRITE_ROWS)."""

from __future__ import annotations

from functools import partial
from tempfile import TemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import ConditionFailed, InvalidArgument, KvorumError, TooLarge
from kv.base.limits import VALUE_BYTES_MAX
from kv.base.methods import WRITE, WRITE_ROWS
from kv.base.ops import check, delete, put
from tests.txn import short
from tests.txn.short import Seen
from tests.txn.world import RealWorld, failure, k
from txn.buffered.write_buffer import WriteBuffer
from txn.client import TxnClient
from txn.results import TxnStatus
from txn.shared.message_sizes import FEW_OPS, as_rows

KEYS = [k(f"b{i:04d}") for i in range(3 * FEW_OPS)]
VALUES = [b"%d" % i for i in range(len(KEYS))]
in_world = partial(short.in_world, (k("a"),), WRITE_ROWS)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("absent", [False, True])
def test_b6_many_rows_are_one_message(absent: bool, backwards: bool) -> None:
    """Each row of a long INSERT would be an op of its own, looked at a dozen times."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        t = await client.begin()
        step = -1 if backwards else 1
        t.put_rows(KEYS[::step], VALUES[::step], absent=absent)
        version = await t.commit()
        assert seen.started.count(WRITE_ROWS) == 1
        assert not {WRITE, WRITE_ROWS} & set(seen.called)
        found, _ = await client.multi_get(KEYS)
        assert found == [(value, version) for value in VALUES]
        assert await client.status(t.id) == TxnStatus("committed", version)

    in_world(test)


@pytest.mark.parametrize("spoil", ["answer", "request", "nothing"])
def test_b6_a_lost_message_of_rows_is_settled_by_the_record(spoil: str) -> None:
    """Rows whose answer was lost would be reported as failed, or written at two versions."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        t = await client.begin()
        t.put_rows(KEYS, VALUES, absent=True)
        seen.spoil = (0, spoil)
        version = await t.commit()
        found, _ = await client.multi_get(KEYS)
        assert found == [(value, version) for value in VALUES]
        assert await client.status(t.id) == TxnStatus("committed", version)

    in_world(test)


def test_b7_rows_that_are_not_new_are_named() -> None:
    """A duplicate among many rows would be written over, or another key be told."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        await client.write_one(put(KEYS[100], b"there"))
        t = await client.begin()
        t.put_rows(KEYS, VALUES, absent=True)
        refused = await failure(t.commit())
        assert isinstance(refused, ConditionFailed)
        assert refused.details["key"] == KEYS[100]
        found, _ = await client.multi_get(KEYS[:101])
        assert [row and row[0] for row in found] == [None] * 100 + [b"there"]

    in_world(test)


def test_b7_rows_in_any_order_are_named_by_their_place() -> None:
    """They are sorted on the way: another operation than the refused one would be told."""

    async def test(world: RealWorld, client: TxnClient, seen: Seen) -> None:
        await client.write_one(put(KEYS[100], b"there"))
        t = await client.begin()
        t.put_rows(KEYS[::-1], VALUES[::-1], absent=True)
        refused = await failure(t.commit())
        assert isinstance(refused, ConditionFailed)
        place = KEYS[::-1].index(KEYS[100])
        assert (refused.details["key"], refused.details["op"]) == (KEYS[100], place)
        assert str(refused).startswith(f"operation {place}: key ")

    in_world(test)


def test_b6_what_is_no_plain_put_is_no_row() -> None:
    """A delete, a check, a version or a time to live would be forgotten on the way."""
    puts = [put(key, value) for key, value in zip(KEYS, VALUES, strict=True)]
    assert as_rows(puts) == (KEYS, VALUES, False)
    assert as_rows([put(op.key, op.value or b"", 0) for op in puts]) == (KEYS, VALUES, True)
    for odd in (
        delete(KEYS[9]),
        check(KEYS[9], 0),
        put(KEYS[9], b"", 0),
        put(KEYS[9], b"", 7),
        put(KEYS[9], b"", ttl_ms=1),
        put(KEYS[8], b""),
    ):
        assert as_rows([*puts[:9], odd, *puts[10:]]) is None
    large = b"x" * VALUE_BYTES_MAX
    assert as_rows([put(key, large) for key in KEYS]) is None


OPS = st.lists(
    st.tuples(st.sampled_from(KEYS[:6]), st.sampled_from("pdc"), st.sampled_from([None, 0, 7])),
    max_size=4,
)
ROWS = st.lists(st.tuples(st.sampled_from([*KEYS[:6], b""]), st.binary(max_size=3)), max_size=5)


CONDS = st.one_of(
    st.sampled_from([None, 0]), st.lists(st.sampled_from([None, 0, 7]), min_size=5, max_size=5)
)


@given(OPS, ROWS, CONDS, st.booleans(), st.booleans(), st.booleans(), st.integers(2, 12))
def test_b6_rows_are_buffered_as_puts_and_deletes_are(
    before: list[tuple[bytes, str, int | None]],
    rows: list[tuple[bytes, bytes]],
    conds: int | list[int | None] | None,
    gone: bool,
    marked: bool,
    spilled: bool,
    most: int,
) -> None:
    """Rows would lose a condition, pass a limit, or survive a savepoint that takes them back."""
    opened = TemporaryFile if spilled else None
    one, other = (
        WriteBuffer(open_file=opened, keys_max=most, spill_bytes=600 if spilled else 1 << 20)
        for _ in range(2)
    )
    for buffer in (one, other):
        for key, kind, cond in before:
            try:
                if kind == "c":
                    buffer.add(check(key, cond or 0))
                else:
                    buffer.add(put(key, b"old", cond) if kind == "p" else delete(key, cond))
            except KvorumError:
                continue
    was = list(other.stream())
    marks = [buffer.mark() for buffer in (one, other)] if marked else []
    each = conds[: len(rows)] if isinstance(conds, list) else [conds] * len(rows)
    wanted = found = ""
    try:
        for (key, value), cond in zip(rows, each, strict=True):
            one.add(delete(key, cond) if gone else put(key, value, cond))
    except (ConditionFailed, InvalidArgument, TooLarge) as error:
        wanted = str(error)
    try:
        given_conds = each if isinstance(conds, list) else conds
        values = None if gone else [v for _, v in rows]
        other.add_rows([key for key, _ in rows], values, given_conds)
    except (ConditionFailed, InvalidArgument, TooLarge) as error:
        found = str(error)
    assert found == wanted
    assert list(other.stream()) == list(one.stream())
    assert (len(other), other.size_bytes) == (len(one), one.size_bytes)
    if marked:
        other.undo_to(marks[1])
        assert list(other.stream()) == was
    for buffer in (one, other):
        buffer.close()
