"""The memory engine and RocksDB are one thing with two bodies: whatever is done, they answer
alike.
"""

from __future__ import annotations

import shutil
import tempfile
from bisect import insort
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kv.base.errors import InvalidArgument, KvorumError, Unavailable
from kv.storage.engine import Cursor, Engine
from kv.storage.memory import MemoryEngine
from kv.storage.rocks import RocksEngine
from tests.kit.mounts import elsewhere

FAMILIES = ("a", "b")
names = st.sampled_from(FAMILIES)
# Few keys, so that they meet; prefixes of one another, and the edges of byte order.
_EDGES = "00 0000 00ff 61 6100 61ff 61ffff 62 ff ff00 ffff"
keys = st.sampled_from([b"", b"m" * 300, *map(bytes.fromhex, _EDGES.split())])
values = st.binary(max_size=20)
op = st.one_of(
    st.tuples(st.just("put"), keys, values, names),
    st.tuples(st.just("delete"), keys, st.just(b""), names),
    st.tuples(st.just("delete_range"), keys, keys, names),
)


class Engines(RuleBasedStateMachine):
    place: Path | None = None

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="kvorum-engines-", dir=self.place))
        self.rocks: RocksEngine = RocksEngine(self.path / "db", FAMILIES)
        self.memory: MemoryEngine = MemoryEngine(FAMILIES)
        self.cursors: list[tuple[Cursor, Cursor]] = []

    def teardown(self) -> None:
        self.rocks.close()
        shutil.rmtree(self.path)

    def both(self) -> tuple[Engine, Engine]:
        return self.rocks, self.memory

    @rule(ops=st.lists(op, max_size=8))
    def write(self, ops: list[tuple[str, bytes, bytes, str]]) -> None:
        for engine in self.both():
            batch = engine.batch()
            for kind, key, other, name in ops:
                family = engine.family(name)
                if kind == "put":
                    batch.put(key, other, family)
                elif kind == "delete":
                    batch.delete(key, family)
                elif other < key:
                    with pytest.raises(InvalidArgument):
                        batch.delete_range(key, other, family)
                else:
                    batch.delete_range(key, other, family)
            engine.write(batch)

    @rule(
        name=names,
        start=keys,
        end=keys,
        reverse=st.booleans(),
        limit=st.integers(0, 5),
        size=st.sampled_from((0, 0, 1, 20, 700)),
    )
    def scan(
        self, name: str, start: bytes, end: bytes, *, reverse: bool, limit: int, size: int
    ) -> None:
        ours, model = [
            e.scan(name, start, end, reverse=reverse, limit=limit, bytes_max=size)
            for e in self.both()
        ]
        assert ours == model

    @rule(name=names, wanted=st.sets(keys))
    def read(self, name: str, wanted: set[bytes]) -> None:
        ordered = sorted(wanted)
        answers = [e.multi_getter(name)(ordered) for e in self.both()]
        assert answers[0] == answers[1]
        assert answers[0] == [self.rocks.getter(name)(key) for key in ordered]

    @rule(name=names, start=keys, end=keys)
    def open_cursor(self, name: str, start: bytes, end: bytes) -> None:
        if len(self.cursors) < 4:
            self.cursors.append(
                (self.rocks.cursor(name, start, end), self.memory.cursor(name, start, end))
            )

    @rule(at=st.integers(0, 3), rows=st.integers(1, 4), size=st.integers(1, 700))
    def take(self, at: int, rows: int, size: int) -> None:
        if at < len(self.cursors):
            ours, model = [cursor.take(rows, size) for cursor in self.cursors[at]]
            assert ours == model

    @rule(at=st.integers(0, 3))
    def close_cursor(self, at: int) -> None:
        if at < len(self.cursors):
            for cursor in self.cursors.pop(at):
                cursor.close()

    @rule(rows=st.dictionaries(keys, values, max_size=8), name=names, wait=st.booleans())
    def ingest(self, rows: dict[bytes, bytes], name: str, *, wait: bool) -> None:
        rows.pop(b"", None)
        for engine in self.both():
            file = engine.sorted_rows(name)
            for key in sorted(rows):
                file.put(key, rows[key])
            if not rows:
                file.discard()
                continue
            file.close()
            while not engine.ingest([file], wait=wait):
                engine.sync()

    @rule()
    def sync(self) -> None:
        for engine in self.both():
            engine.sync()

    @rule()
    def flush_and_compact(self) -> None:
        for engine in self.both():
            engine.flush()
            engine.compact("a", b"", b"")

    @rule()
    def reopen(self) -> None:
        self.cursors.clear()
        self.rocks.close()
        self.rocks = RocksEngine(self.path / "db", FAMILIES)
        self.memory.close()
        self.memory = self.memory.reopen()

    @invariant()
    def hold_the_same(self) -> None:
        for name in FAMILIES:
            for reverse in (False, True):
                ours, model = [e.scan(name, b"", b"", reverse=reverse) for e in self.both()]
                assert ours == model


def test_g18_the_memory_engine_equals_rocksdb() -> None:
    """A difference would make every simulation prove something about another database."""
    run_state_machine_as_test(
        Engines, settings=settings(max_examples=10, stateful_step_count=30, deadline=None)
    )


def test_r5_the_engine_answers_alike_on_another_file_system(tmp_path: Path) -> None:
    """What works on the machine's disk only (links, locks, names) would be found by whoever keeps
    a node's data on a mount.
    """

    class Mounted(Engines):
        place = elsewhere(tmp_path)

    run_state_machine_as_test(
        Mounted, settings=settings(max_examples=5, stateful_step_count=30, deadline=None)
    )


@pytest.fixture(params=["rocks", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    made = RocksEngine(tmp_path, FAMILIES) if request.param == "rocks" else MemoryEngine(FAMILIES)
    yield made
    made.close()


def test_c2_versions_of_a_key_iterate_newest_first(engine: Engine) -> None:
    """The read path takes the first version at or below its timestamp; any other order reads the
    past.
    """
    batch, family = engine.batch(), engine.family("a")
    for key in (b"k", b"k\x00", b"l"):
        for version in (3, 1, 2, 1 << 40):
            row = (
                key.replace(b"\x00", b"\x00\xff")
                + b"\x00\x01"
                + (~version & (1 << 64) - 1).to_bytes(8)
            )
            batch.put(row, b"%d" % version, family)
    engine.write(batch)
    found = [(k[:-10], int(v)) for k, v in engine.scan("a", b"", b"")]
    newest_first = [1 << 40, 3, 2, 1]
    assert found == [(k, v) for k in (b"k", b"k\x00\xff", b"l") for v in newest_first]


def test_c16_iteration_while_inserting_skips_no_existing_key(engine: Engine) -> None:
    """A scan in pages, with writes in between, must still return every row that was there all
    along.
    """
    family = engine.family("a")
    batch = engine.batch()
    existing = [b"%04d" % i for i in range(0, 1000, 2)]
    for key in existing:
        batch.put(key, b"old", family)
    engine.write(batch)
    seen: list[bytes] = []
    start, number = b"", 1
    while page := engine.scan("a", start, b"", limit=7):
        seen += [key for key, _ in page]
        start = page[-1][0] + b"\x00"
        batch = engine.batch()
        for _ in range(3):  # behind, at and before the cursor
            batch.put(b"%04d" % (number * 331 % 1000 | 1), b"new", family)
            number += 1
        batch.put(page[0][0] + b"\x00", b"new", family)
        engine.write(batch)
    assert sorted(seen) == seen
    assert set(existing) <= set(seen)
    assert len(seen) > len(existing), "what was inserted ahead is met too"


def test_g15_newest_versions_scan_apart_from_old_ones(engine: Engine) -> None:
    """Old versions live in a family of their own: a scan of the newest must not touch them."""
    newest, old = engine.family("a"), engine.family("b")
    batch = engine.batch()
    for i in range(50):
        batch.put(b"%03d" % i, b"newest", newest)
        for version in range(20):
            batch.put(b"%03d-%03d" % (i, version), b"old", old)
    engine.write(batch)
    assert engine.scan("a", b"", b"") == [(b"%03d" % i, b"newest") for i in range(50)]
    assert len(engine.scan("b", b"", b"")) == 1000


def test_cursors_of_one_step_are_one_view(engine: Engine) -> None:
    """A snapshot taken while writes go on would mix families of different moments."""
    a, b = engine.family("a"), engine.family("b")

    def write(number: int) -> None:
        batch = engine.batch()
        for i in range(0, 100, 1 + number % 3):
            batch.put(b"%03d" % i, b"%d" % number, a)
            batch.put(b"%03d" % i, b"%d" % number, b)
        batch.delete_range(b"%03d" % (number % 90), b"%03d" % (number % 90 + 5), a)
        engine.write(batch)

    write(0)
    before = engine.scan("a", b"", b""), engine.scan("b", b"010", b"050")
    cursors = engine.cursor("a", b"", b""), engine.cursor("b", b"010", b"050")
    found: tuple[list[tuple[bytes, bytes]], ...] = ([], [])
    for number in range(1, 60):
        write(number)
        for cursor, rows in zip(cursors, found, strict=True):
            page = cursor.take(3, 1 << 20)
            assert len(page) <= 3
            rows += page
        if number % 20 == 0:
            engine.flush()
            engine.compact("a", b"", b"")
    assert found == before
    assert engine.scan("a", b"", b"") != before[0]
    for cursor in cursors:
        assert cursor.take(3, 100) == [], "the end stays the end"
        cursor.close()
        cursor.close()
        with pytest.raises(Unavailable, match="cursor is closed"):
            cursor.take(1, 1)


@pytest.mark.slow
def test_a_cursor_stops_at_the_row_that_fills_its_bytes(engine: Engine) -> None:
    """A chunk of large rows would be as large as all of them together, or never get past one."""
    batch, family = engine.batch(), engine.family("a")
    for i in range(10):
        batch.put(b"%d" % i, bytes(99), family)
    engine.write(batch)
    cursor = engine.cursor("a", b"2", b"9")
    pages = []
    while page := cursor.take(100, 201):
        pages.append([int(key) for key, _ in page])
    assert pages == [[2, 3, 4], [5, 6, 7], [8]]
    assert engine.cursor("a", b"9", b"2").take(9, 9) == []


def test_closing_an_engine_closes_its_cursors(engine: Engine) -> None:
    """A forgotten cursor kept the directory locked and its files alive."""
    cursor = engine.cursor("a", b"", b"")
    engine.close()
    with pytest.raises(Unavailable):
        cursor.take(1, 1)


@pytest.mark.slow
def test_one_batch_with_many_writes_of_one_key_keeps_the_last(engine: Engine) -> None:
    """Order inside a batch is order of effect, deletes of ranges included."""
    family, batch = engine.family("a"), engine.batch()
    batch.put(b"k", b"1", family)
    batch.delete_range(b"a", b"z", family)
    batch.put(b"k", b"2", family)
    batch.delete(b"gone", family)
    engine.write(batch)
    assert engine.scan("a", b"", b"") == [(b"k", b"2")]


def test_closed_and_unknown_are_told_apart(engine: Engine) -> None:
    """A closed engine must refuse as 'try later', a wrong name as a wrong argument."""
    with pytest.raises(InvalidArgument, match="no family 'x'"):
        engine.family("x")
    get = engine.getter("a")
    batch = engine.batch()
    engine.close()
    engine.close()
    calls = (
        lambda: get(b"k"),
        lambda: engine.scan("a", b"", b""),
        lambda: engine.write(batch),
        lambda: engine.sync(),
        lambda: engine.flush(),
        lambda: engine.compact("a", b"", b""),
    )
    errors: list[str] = []
    for call in calls:
        with pytest.raises(KvorumError) as caught:
            call()
        insort(errors, caught.value.code)
    assert errors == ["UNAVAILABLE"] * len(calls)
