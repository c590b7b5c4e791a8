"""The write buffer: what a transaction sees of itself, how several writes of a key become one."""

from __future__ import annotations

from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.errors import ConditionFailed, InvalidArgument, KvorumError, TooLarge
from kv.base.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from kv.base.ops import Op, check, delete, put
from txn.buffered import write_buffer
from txn.buffered.write_buffer import WriteBuffer, merged
from txn.results import ScanPage

KEY = b"tab1key"


def combined(*ops: Op) -> Op:
    buffer = WriteBuffer()
    for op in ops:
        buffer.add(op)
    (one,) = buffer.ops()
    return one


@pytest.mark.parametrize(
    ("ops", "sent"),
    [
        ([put(KEY, b"1"), put(KEY, b"2")], put(KEY, b"2")),
        ([put(KEY, b"1", cond=0), put(KEY, b"2")], put(KEY, b"2", cond=0)),
        ([put(KEY, b"1", cond=7), delete(KEY)], delete(KEY, cond=7)),
        ([delete(KEY), put(KEY, b"2")], put(KEY, b"2")),
        ([delete(KEY, cond=7), put(KEY, b"2", cond=0)], put(KEY, b"2", cond=7)),
        ([delete(KEY), put(KEY, b"2", cond=0)], put(KEY, b"2")),
        ([check(KEY, 7), put(KEY, b"2")], put(KEY, b"2", cond=7)),
        ([check(KEY, 7), put(KEY, b"2", cond=7)], put(KEY, b"2", cond=7)),
        ([check(KEY, 7), check(KEY, 7)], check(KEY, 7)),
        ([delete(KEY, cond=7), check(KEY, 0)], delete(KEY, cond=7)),
        ([put(KEY, b"1", ttl_ms=5), put(KEY, b"2")], put(KEY, b"2")),
        ([put(KEY, b"1"), delete(KEY, tombstone=True)], delete(KEY, tombstone=True)),
        ([put(KEY, b"1", cond=0), delete(KEY, tombstone=True)], delete(KEY, 0, tombstone=True)),
        ([delete(KEY, tombstone=True), put(KEY, b"2", cond=0)], put(KEY, b"2")),
    ],
)
def test_p10_writes_of_one_key_become_one(ops: list[Op], sent: Op) -> None:
    """A lost condition would let a commit through that the user forbade."""
    assert combined(*ops) == sent


@pytest.mark.parametrize(
    "ops",
    [
        [put(KEY, b"1"), put(KEY, b"2", cond=0)],
        [put(KEY, b"1"), delete(KEY, cond=7)],
        [put(KEY, b"1"), check(KEY, 7)],
        [delete(KEY), put(KEY, b"2", cond=7)],
        [check(KEY, 7), put(KEY, b"2", cond=8)],
        [check(KEY, 7), check(KEY, 0)],
    ],
)
def test_p10_contradiction_is_refused_at_once_and_changes_nothing(ops: list[Op]) -> None:
    """A condition that can not hold any more must not wait for the commit, nor spoil the buffer."""
    buffer = WriteBuffer()
    buffer.add(ops[0])
    with pytest.raises(ConditionFailed) as refused:
        buffer.add(ops[1])
    assert refused.value.details["key"] == KEY
    assert buffer.ops() == [ops[0]]


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (put(b"", b"v"), InvalidArgument),
        (put("text", b"v"), InvalidArgument),  # type: ignore[arg-type]
        (put(KEY, None), InvalidArgument),  # type: ignore[arg-type]
        (put(KEY, b"v", cond=-1), InvalidArgument),
        (put(KEY, b"v", ttl_ms=-1), InvalidArgument),
        (Op(9, KEY), InvalidArgument),
        (Op(3, KEY), InvalidArgument),
        (put(b"k" * (KEY_BYTES_MAX + 5), b"v"), TooLarge),
        (put(KEY, b"v" * (VALUE_BYTES_MAX + 1)), TooLarge),
    ],
)
def test_p10_bad_op_never_enters_the_buffer(op: Op, error: type[KvorumError]) -> None:
    """Found out at the commit, it would cost the user the whole transaction."""
    buffer = WriteBuffer()
    with pytest.raises(error):
        buffer.add(op)
    assert len(buffer) == 0


def test_p10_limits_say_limit_and_actual() -> None:
    """A transaction that grows without bound would take the client's memory."""
    buffer = WriteBuffer(keys_max=2, bytes_max=20)
    buffer.add(put(b"aaaa", b"12345"))
    buffer.add(put(b"bbbb", b"1"))
    with pytest.raises(TooLarge) as refused:
        buffer.add(put(b"cccc", b""))
    assert (refused.value.details["limit"], refused.value.details["actual"]) == (2, 3)
    with pytest.raises(TooLarge) as refused:
        buffer.add(put(b"bbbb", b"12345678"))
    assert (refused.value.details["limit"], refused.value.details["actual"]) == (20, 21)
    buffer.add(put(b"aaaa", b"1"))
    assert buffer.size_bytes == 10


def test_p10_writes_come_before_checks() -> None:
    """The first op is the anchor; a commit's record should lie where it writes."""
    buffer = WriteBuffer()
    for op in (check(b"aaaa", 1), put(b"zzzz", b"1"), delete(b"bbbb")):
        buffer.add(op)
    assert [op.key for op in buffer.ops()] == [b"zzzz", b"bbbb", b"aaaa"]


def test_p10_scan_sees_a_write_behind_its_check() -> None:
    """A key that was only checked before is written now: it belongs into the scan."""
    buffer = WriteBuffer()
    buffer.add(check(KEY, 7))
    assert list(buffer.written_between(b"", b"")) == []
    buffer.add(put(KEY, b"2"))
    assert [op.key for op in buffer.written_between(b"", b"")] == [KEY]


keys = st.binary(min_size=1, max_size=2).map(lambda b: b"tab1" + b)
rows = st.dictionaries(keys, st.binary(max_size=2), max_size=12)
writes = st.lists(st.tuples(keys, st.none() | st.binary(max_size=2)), max_size=12)


@given(rows, writes, keys, st.just(b"") | keys, st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_p10_pages_of_a_scan_equal_the_merged_whole(
    stored: dict[bytes, bytes],
    changes: list[tuple[bytes, bytes | None]],
    start: bytes,
    end: bytes,
    limit: int,
    page_rows: int,
    reverse: bool,
) -> None:
    """A merge that is wrong at a page's edge loses or repeats a row."""
    buffer = WriteBuffer()
    wanted = dict(stored)
    for key, value in changes:
        buffer.add(delete(key) if value is None else put(key, value))
        wanted.pop(key, None)
        if value is not None:
            wanted[key] = value
    whole = [
        (key, wanted[key])
        for key in sorted(wanted, reverse=reverse)
        if key >= start and (not end or key < end)
    ]
    got: list[tuple[bytes, bytes]] = []
    low, high = start, end
    for _ in range(100):
        page = buffer.overlay(
            stored_page(stored, low, high, min(limit, page_rows), reverse),
            low,
            high,
            reverse=reverse,
            limit=limit,
        )
        assert len(page.items) <= limit
        got += [(key, value) for key, value, _ in page.items]
        if page.resume is None:
            break
        low, high = (low, page.resume) if reverse else (page.resume, high)
    assert got == whole


@given(rows, writes, keys, st.just(b"") | keys, st.integers(1, 4), st.booleans())
def test_p10_a_page_has_as_many_rows_as_were_asked_for(
    stored: dict[bytes, bytes],
    changes: list[tuple[bytes, bytes | None]],
    start: bytes,
    end: bytes,
    limit: int,
    reverse: bool,
) -> None:
    """Who reads one row behind own deletes finds none, and takes that for the end."""
    buffer = WriteBuffer()
    wanted = dict(stored)
    for key, value in changes:
        buffer.add(delete(key) if value is None else put(key, value))
        wanted.pop(key, None)
        if value is not None:
            wanted[key] = value
    whole = [
        (key, wanted[key])
        for key in sorted(wanted, reverse=reverse)
        if key >= start and (not end or key < end)
    ]

    async def read(low: bytes, high: bytes, most: int) -> ScanPage:
        return stored_page(stored, low, high, most, reverse)

    async def paged() -> list[tuple[bytes, bytes]]:
        low, high = start, end
        got: list[tuple[bytes, bytes]] = []
        while True:
            page = await merged(buffer, read, low, high, reverse=reverse, limit=limit)
            assert len(page.items) == min(limit, len(whole) - len(got))
            got += [(key, value) for key, value, _ in page.items]
            if page.resume is None:
                return got
            low, high = (low, page.resume) if reverse else (page.resume, high)

    with pytest.raises(StopIteration) as ended:  # it waits for nothing
        paged().send(None)
    assert ended.value.value == whole


def stored_page(
    stored: dict[bytes, bytes], start: bytes, end: bytes, limit: int, reverse: bool
) -> ScanPage:
    """What a snapshot scan would answer."""
    found = [
        (key, stored[key], 1)
        for key in sorted(stored, reverse=reverse)
        if key >= start and (not end or key < end)
    ]
    if len(found) <= limit:
        return ScanPage(found, None, 9)
    last = found[limit - 1][0]
    return ScanPage(found[:limit], last if reverse else last + b"\x00", 9)


_KEYS = st.integers(0, 5).map(lambda n: b"tab1" + bytes([n]))
_OPS = st.one_of(
    st.builds(put, _KEYS, st.binary(max_size=4)),
    st.builds(delete, _KEYS),
    st.builds(check, _KEYS, st.just(7)),
)


@given(st.lists(_OPS, max_size=12), st.lists(_OPS, max_size=12), st.integers(20, 2_000))
def test_savepoint_takes_back_all_that_came_behind_it(
    before: list[Op], behind: list[Op], spill_bytes: int
) -> None:
    """A statement that failed inside a savepoint would leave half of its rows behind; also where
    what it overwrote lies in the file already.
    """
    buffer = WriteBuffer(open_file=TemporaryFile, spill_bytes=spill_bytes)
    for op in before:
        with suppress(ConditionFailed):
            buffer.add(op)
    expected = (list(buffer.stream()), len(buffer), buffer.size_bytes, buffer.memory_bytes)
    mark = buffer.mark()
    for _ in range(2):  # a savepoint can be gone back to more than once
        for op in behind:
            with suppress(ConditionFailed):
                buffer.add(op)
        buffer.undo_to(mark)
        found = (list(buffer.stream()), len(buffer), buffer.size_bytes, buffer.memory_bytes)
        assert found == expected
    buffer.close()


def write_over_and_over(buffer: WriteBuffer) -> None:
    for n in range(1_000):
        before = buffer.memory_bytes
        buffer.add(put(KEY, b"v" * 1_000 + b"%d" % n))
        assert n == 0 or buffer.memory_bytes >= before + 1_000


@pytest.mark.parametrize("spilled", [False, True])
def test_what_a_savepoint_keeps_counts(monkeypatch: pytest.MonkeyPatch, spilled: bool) -> None:
    """One row that is written over and over behind a savepoint takes all of a node's memory."""
    monkeypatch.setattr(write_buffer, "TXN_MEMORY_BYTES_MAX", 100_000)
    buffer = WriteBuffer(open_file=TemporaryFile, spill_bytes=1_000)
    buffer.add(put(KEY, b"v" * (2_000 if spilled else 10)))
    assert buffer.spilled == spilled
    buffer.mark()
    with pytest.raises(TooLarge):
        write_over_and_over(buffer)
    assert 90_000 < buffer.memory_bytes <= 100_000
    buffer.forget_marks()
    assert buffer.memory_bytes < 2_000
    buffer.close()


@given(
    st.lists(st.one_of(_OPS, st.sampled_from(["lend", "give back", "mark", "undo"])), max_size=30),
    st.integers(20, 2_000),
)
def test_what_is_lent_stays_as_it_was(steps: list[Any], spill_bytes: int) -> None:
    """A cursor would see what its transaction wrote, or took back, behind its DECLARE."""
    buffer = WriteBuffer(open_file=TemporaryFile, spill_bytes=spill_bytes)
    lent: list[tuple[WriteBuffer, Any]] = []
    mark: int | None = None

    def seen(one: WriteBuffer) -> Any:
        page = one.overlay(ScanPage([], None, 0), b"", b"", reverse=False, limit=1_000)
        keys = [key for key, _, _ in page.items]
        return page.items, [one.written(key) for key in keys], bool(one)

    for step in steps:
        if step == "lend":
            lent.append((buffer.lend(), seen(buffer)))
        elif step == "give back":
            if lent:
                buffer.give_back(lent.pop(0)[0])
        elif step == "mark":
            mark = buffer.mark()
        elif step == "undo":
            if mark is not None:
                buffer.undo_to(mark)
        else:
            with suppress(ConditionFailed):
                buffer.add(step)
        for one, expected in lent:
            assert seen(one) == expected
    buffer.close()


def test_what_is_not_lent_any_more_is_not_copied() -> None:
    """A transaction that reads and writes in turn would copy all its writes for each row."""
    buffer = WriteBuffer()
    buffer.add(put(b"tab.a", b"1"))
    ops = buffer._ops
    buffer.give_back(buffer.lend())
    buffer.add(put(b"tab.b", b"1"))
    assert buffer._ops is ops
    buffer.lend()
    buffer.add(put(b"tab.c", b"1"))
    copied = buffer._ops
    assert copied is not ops
    buffer.add(put(b"tab.d", b"1"))
    assert buffer._ops is copied
