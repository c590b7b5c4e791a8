"""A node whose disk fills up for real: a small tmpfs under RocksDB (C15)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvorum
from kv.base.limits import DISK_FREE_BYTES_MIN, MiB
from tests.kit.machine import free_port_base
from tests.kit.processes import NodeProcess

pytestmark = pytest.mark.slow

DISK_BYTES = 512 * MiB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own. The test in tests/processes does the same without one."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill(table: kvorum.Table, acked: dict[str, int]) -> None:
    """Write until it is refused; what was acknowledged is in `acked`."""
    for i in range(DISK_BYTES // MiB):
        acked[f"{i}"] = table.put(f"{i}", bytes(MiB))


@pytest.mark.slow
@pytest.mark.cluster
def test_c15_full_disk_refuses_writes_until_there_is_room(disk: Path, tmp_path: Path) -> None:
    """RocksDB never recovers from a full disk: a node that fills it has to be started anew."""
    filler = disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES - DISK_FREE_BYTES_MIN - 100 * MiB))
    with NodeProcess(disk / "data", free_port_base()) as node:
        node.start()
        with kvorum.connect(node.url) as db:
            db.create_table("default", "t")
            db.create_table("default", "spare")
            table = db.table("default", "t")
            acked: dict[str, int] = {}
            with pytest.raises(kvorum.Unavailable) as refused:
                fill(table, acked)
            details = refused.value.details
            assert details["what"] == "disk_free_bytes"
            assert details["actual"] < details["limit"] == DISK_FREE_BYTES_MIN
            assert "make room" in refused.value.message
            assert node.ready()
            with pytest.raises(kvorum.Unavailable):
                db.batch(
                    [kvorum.Put("default", "t", "x", "1"), kvorum.Put("default", "t", "y", "1")]
                )
            for key, version in acked.items():
                record = table.get(key)
                assert record is not None
                assert record.version == version
            # What frees space goes on: rows are deleted, tables are dropped.
            assert table.delete("0") > max(acked.values())
            with db.transaction() as t:
                t.table("default", "t").delete("1")
            assert (table.get("0"), table.get("1")) == (None, None)
            db.drop_table("default", "spare")
            assert [one.name for one in db.tables("default")] == ["t"]
            filler.unlink()
            deadline = time.monotonic() + 20
            while True:
                try:
                    assert table.put("again", b"1") > max(acked.values())
                    break
                except kvorum.Unavailable:
                    assert time.monotonic() < deadline, "writes did not go on"
                    time.sleep(0.1)
        assert node.stop() == 0
