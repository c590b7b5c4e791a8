"""Flipped bits in the files that RocksDB reads to their end: each is noticed at the start."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kv.base.errors import Corruption
from kv.storage import damaged_log
from kv.storage.engine import STATE_FAMILIES
from kv.storage.rocks import RocksEngine

ROWS = 30
KILLED = """
import os, sys
from kv.storage.engine import STATE_FAMILIES
from kv.storage.rocks import RocksEngine
engine = RocksEngine(sys.argv[1], STATE_FAMILIES)
for i in range({rows}):
    batch = engine.batch()
    batch.put(b"k%03d" % i, b"v" * 20, engine.family("cur"))
    engine.write(batch)
    if i == 10:
        engine.flush()
engine.sync()
os._exit(9)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose process was killed: files, a manifest, and a WAL that is to be read."""
    path = tmp_path_factory.mktemp("killed") / "db"
    subprocess.run([sys.executable, "-c", KILLED.format(rows=ROWS), path], check=False)
    return path


def records(data: bytes) -> list[int]:
    """Where the records of a log of one block begin."""
    found, at = [], 0
    while at + 7 <= len(data):
        found.append(at)
        at += 7 + int.from_bytes(data[at + 4 : at + 6], "little")
    return found


def logs(path: Path) -> list[Path]:
    return [*path.glob("*.log"), *path.glob("MANIFEST-*")]


def flipped(source: Path, log: Path, offset: int, bit: int, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    data = bytearray(log.read_bytes())
    data[offset] ^= 1 << bit
    (target / log.name).write_bytes(data)
    return target


@pytest.mark.slow
def test_b14_every_flipped_bit_of_a_head_is_noticed_at_the_start(
    killed: Path, tmp_path: Path
) -> None:
    """RocksDB takes a length that reaches beyond the file, and the type of a recycled log, for the
    end: what was synced behind it was dropped without a word.
    """
    for log in logs(killed):
        data = log.read_bytes()
        for at in (records(data)[0], records(data)[-2], records(data)[-1]):
            for offset in (4, 5, 6):  # the length, the type
                for bit in range(8):
                    damaged = flipped(killed, log, at + offset, bit, tmp_path / "x")
                    noticed = False
                    try:
                        damaged_log.check_logs(damaged)
                    except Corruption as error:
                        noticed = error.details["file"] == log.name
                    if not noticed:  # then it is RocksDB that sees it, by a checksum
                        with pytest.raises(Corruption):
                            RocksEngine(damaged, STATE_FAMILIES)


@pytest.mark.parametrize("seed", range(12))
def test_b14_a_flipped_bit_anywhere_in_a_log_loses_nothing(
    killed: Path, tmp_path: Path, seed: int
) -> None:
    """It is refused with the file's name, or all rows are there."""
    chance = random.Random(seed)
    log = chance.choice(logs(killed))
    offset = chance.randrange(log.stat().st_size)
    with pytest.raises(Corruption):
        RocksEngine(
            flipped(killed, log, offset, chance.randrange(8), tmp_path / "x"), STATE_FAMILIES
        )


@pytest.mark.slow
def test_b14_a_torn_tail_is_no_damage(killed: Path, tmp_path: Path) -> None:
    """A power loss in the middle of a write would keep a node from starting."""
    (log,) = killed.glob("*.log")
    size = log.stat().st_size
    last = records(log.read_bytes())[-1]
    for cut in range(last, size + 1, 3):
        torn = tmp_path / "x"
        shutil.rmtree(torn, ignore_errors=True)
        shutil.copytree(killed, torn)
        os.truncate(torn / log.name, cut)
        damaged_log.check_logs(torn)
        engine = RocksEngine(torn, STATE_FAMILIES)
        rows = len(engine.scan("cur", b"", b""))
        engine.close()
        assert rows == (ROWS if cut == size else ROWS - 1)


def test_b14_records_over_many_blocks_are_walked(tmp_path: Path) -> None:
    """Large records are cut into pieces at the borders of blocks, whose ends may be too short for
    a head: taken for damage, no node with large values would start again.
    """
    path = tmp_path / "db"
    engine = RocksEngine(path, STATE_FAMILIES)
    chance = random.Random(1)
    for size in (*range(32_700, 32_790, 3), *(chance.randrange(200_000) for _ in range(40))):
        batch = engine.batch()
        batch.put(b"%06d" % size, bytes(size), engine.family("cur"))
        engine.write(batch)
    engine.sync()
    (log,) = path.glob("*.log")
    damaged_log.check_logs(path)
    data = bytearray(log.read_bytes())
    at = 0
    while at < len(data) // 2:  # the head of a record in the middle
        at += 7 + int.from_bytes(data[at + 4 : at + 6], "little")
        if -at % (1 << 15) < 7:
            at += -at % (1 << 15)
    data[at + 6] ^= 4  # "of a recycled log"
    log.write_bytes(data)
    with pytest.raises(Corruption, match=f"at offset {at}"):
        damaged_log.check_logs(path)
    engine.close()
