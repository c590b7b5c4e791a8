"""Storage shards: families of their own in one database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import SHARDS_HELD_MAX, SHARDS_MAX
from kv.base.shards import canonical, family_of, is_shard, parted, policy_of, proposed_policy
from kv.storage.engine import STATE_FAMILIES, Engine
from kv.storage.files_to_rewrite import Span, next_job
from kv.storage.memory import MemoryEngine
from kv.storage.rocks import RocksEngine


@pytest.fixture(params=["memory", "rocks"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made: Engine = (
        MemoryEngine(STATE_FAMILIES)
        if request.param == "memory"
        else RocksEngine(tmp_path / "db", STATE_FAMILIES)
    )
    yield made
    made.close()


def put(engine: Engine, family: str, *keys: bytes, value: bytes = b"v") -> None:
    batch = engine.batch()
    for key in keys:
        batch.put(key, value, engine.family(family))
    engine.write(batch)


def test_g10_a_shard_has_rows_of_its_own_and_shares_the_batch(engine: Engine) -> None:
    """Rows of a shard were found by another one, or its batch was not one with the database's."""
    shard = engine.shard("logs")
    batch = shard.batch()
    batch.put(b"k", b"in the shard", shard.family("cur"))
    batch.put(b"m", b"applied", shard.family("meta"))
    batch.put(b"k", b"elsewhere", engine.family("cur"))
    shard.write(batch)
    assert shard.getter("cur")(b"k") == b"in the shard"
    assert engine.shard("logs").scan("cur", b"", b"") == [(b"k", b"in the shard")]
    assert engine.getter("cur")(b"k") == b"elsewhere"
    assert engine.getter("meta")(b"m") == shard.getter("meta")(b"m") == b"applied"
    assert engine.shard("") is engine
    assert list(engine.shards()) == ["logs"]
    batch = shard.batch()
    batch.delete_range(b"", b"z", shard.family("cur"))
    shard.write(batch)
    assert shard.is_empty("cur", b"", b"")
    assert engine.getter("cur")(b"k") == b"elsewhere"
    file = shard.sorted_rows("cur")
    file.put(b"x", b"filed")
    file.close()
    shard.sync()
    assert shard.ingest([file], wait=True)
    assert shard.multi_getter("cur")([b"k", b"x"]) == [None, b"filed"]
    shard.check_room()


@pytest.mark.few(1)
def test_g10_a_shard_too_many_is_refused(engine: Engine) -> None:
    """A node made families without a bound, or lost those it had when one more was refused."""
    assert SHARDS_HELD_MAX >= 2 * SHARDS_MAX, "names that came and went leave room for others"
    for number in range(SHARDS_HELD_MAX):
        put(engine.shard(f"s{number}"), "cur", b"k", value=b"%d" % number)
    with pytest.raises(TooLarge, match="until it is started again"):
        engine.shard("more")
    assert engine.shard("s3").getter("cur")(b"k") == b"3"


def test_g10_shards_are_there_after_a_restart_and_go_when_nobody_has_them(tmp_path: Path) -> None:
    """A database with shards did not open, or rows were gone; or unwanted ones stayed for ever."""
    path = tmp_path / "db"
    engine = RocksEngine(path, STATE_FAMILIES)
    put(engine.shard("a"), "cur", b"k")
    put(engine.shard("b:universal"), "hist", b"h")
    engine.checkpoint(tmp_path / "copy")
    engine.close()
    for where in (tmp_path / "copy", path):
        engine = RocksEngine(where, STATE_FAMILIES)
        assert list(engine.shards()) == ["a", "b:universal"]
        assert engine.shard("a").getter("cur")(b"k") == b"v"
        engine.keep_shards({"b:universal"})
        assert list(engine.shards()) == ["b:universal"]
        assert engine.shard("b:universal").getter("hist")(b"h") == b"v"
        assert engine.shard("a").getter("cur")(b"k") is None, "made anew, empty"
        put(engine.shard("a"), "cur", b"k2")
        engine.close()
    engine = RocksEngine(path, STATE_FAMILIES)
    assert engine.shard("a").scan("cur", b"", b"") == [(b"k2", b"v")]
    engine.keep_shards(())
    engine.close()
    assert (path / "KVORUM").read_text().split("\n")[1].split() == list(STATE_FAMILIES)
    RocksEngine(path, STATE_FAMILIES).close()


def test_g10_families_that_a_crash_left_unmade_are_made(tmp_path: Path) -> None:
    """A crash between naming a shard's families and making them left a database that never opens
    again.
    """
    path = tmp_path / "db"
    RocksEngine(path, STATE_FAMILIES).close()
    text = (path / "KVORUM").read_text().rstrip("\n")
    (path / "KVORUM").write_text(f"{text} {family_of('cur', 'a')}\n")
    engine = RocksEngine(path, STATE_FAMILIES)
    put(engine.shard("a"), "lock", b"k")
    engine.close()
    engine = RocksEngine(path, STATE_FAMILIES)
    assert engine.shard("a").getter("lock")(b"k") == b"v"
    engine.close()


def test_g10_a_shard_that_is_behind_is_refused_alone(tmp_path: Path) -> None:
    """A shard whose memtables wait for the disk refused the writes of all others; or a snapshot
    for one was staged, beside all others' rows, as fast as it came.
    """
    engine = RocksEngine(tmp_path / "db", STATE_FAMILIES)
    asked: list[str] = []
    families = engine._families

    class Waiting:
        def property_int_value(self, _name: str) -> int:
            asked.append("a")
            return 9

    engine.shard("a")
    families = dict(engine._families)
    engine._families = {**families, family_of("cur", "a"): Waiting()}  # type: ignore[dict-item]
    engine.check_room()
    assert not asked
    with pytest.raises(Exception, match="cur@a"):
        engine.shard("a").check_room()
    engine._families = {**families, "staged": Waiting()}  # type: ignore[dict-item]
    with pytest.raises(Exception, match="staged"):
        engine.shard("a").check_room()
    engine.check_room("a")
    engine._families = families
    engine.close()


def test_g11_the_policy_is_the_familys(tmp_path: Path) -> None:
    """`universal` was not what RocksDB did: files of a shard went down the levels one by one."""
    engine = RocksEngine(tmp_path / "db", STATE_FAMILIES)
    for name in ("lev", "uni:universal"):
        shard = engine.shard(name)
        for _ in range(3):
            put(shard, "cur", *(b"%04d" % n for n in range(500)), value=b"v" * 100)
            shard.flush_family("cur")
        shard.compact("cur", b"0100", b"0101")
    engine.close()
    text = next(iter(sorted((tmp_path / "db").glob("OPTIONS-*"), reverse=True))).read_text()
    sections = text.replace("\\:", ":").split("[CFOptions ")
    style = {
        part.split('"')[1]: part.split("compaction_style=")[1].split("\n")[0]
        for part in sections[1:]
    }
    assert style["cur@uni:universal"] == "kCompactionStyleUniversal"
    assert style["cur@lev"] == style["cur"] == "kCompactionStyleLevel"


def test_files_of_a_shard_are_looked_at_by_themselves(tmp_path: Path) -> None:
    """What a partition counts in one shard hid garbage of another one at the same keys."""
    engine = RocksEngine(tmp_path / "db", STATE_FAMILIES)
    shard = engine.shard("a:universal")
    for number in range(4):
        keys = (b"%06d" % n for n in range(number * 1000, number * 1000 + 1000))
        put(shard, "cur", *keys, value=b"%d" % number * 8_000)
        shard.flush_family("cur")
    files = engine.files()
    size = sum(file.bytes for file in files if file.family == "cur@a:universal")
    assert {file.family for file in files} == {"cur@a:universal"}
    assert next_job(files, [Span(b"", b"", 32_000_000, 0, "a:universal")]) is None
    spans = [Span(b"", b"", 32_000_000, 0)]
    job = next_job([f._replace(bytes=f.bytes + 20_000_000) for f in files], spans)
    assert job is not None
    assert (job.family, job.why) == ("cur@a:universal", "space")
    assert [piece.bytes for piece in job.pieces] == [size + 80_000_000], "as a whole"
    engine.close()


@pytest.mark.parametrize(
    ("shard", "policy"),
    [
        ("logs", "leveled"),
        ("a-1:universal", "universal"),
        ("x:leveled", "leveled"),
        ("", "leveled"),
    ],
)
def test_names_of_shards(shard: str, policy: str) -> None:
    """A name or a policy was read as another one."""
    assert is_shard(shard)
    assert policy_of(shard) == policy
    assert parted(family_of("cur", shard)) == ("cur", shard)
    assert canonical(shard) == shard.removesuffix(":leveled")


@pytest.mark.parametrize("shard", ["A", "a@b", "a b", ":universal", "a:fifo", "a:", "-a", "a" * 33])
def test_what_is_no_name_of_a_shard(shard: str) -> None:
    """A name that is no family's was taken, and the database refused it when it was too late."""
    assert not is_shard(shard)


@pytest.mark.parametrize(
    ("shard", "reads", "writes", "policy"),
    [
        ("a", 0.0, 0.0, "leveled"),
        ("a", 0.0, 9.0, "leveled"),  # too little to tell
        ("a", 5.0, 95.0, "universal"),
        ("a", 40.0, 60.0, "leveled"),
        ("a:universal", 40.0, 60.0, "universal"),  # no worse
        ("a:universal", 60.0, 40.0, "leveled"),
        ("", 1.0, 99.0, "universal"),
    ],
)
def test_g11_a_policy_is_proposed_from_what_is_asked(
    shard: str, reads: float, writes: float, policy: str
) -> None:
    """What fits writes was proposed for reads, or another policy with every tremor."""
    assert proposed_policy(shard, reads, writes) == policy


def test_a_family_without_a_shard_is_not_made(engine: Engine) -> None:
    """Asking for a family made one."""
    with pytest.raises(InvalidArgument, match="no family"):
        engine.getter("cur@nobody")
