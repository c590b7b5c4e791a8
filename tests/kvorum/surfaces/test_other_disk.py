"""A data directory on another file system than the machine's disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

import kvorum
from tests.kit.machine import free_port_base
from tests.kit.mounts import elsewhere


def test_a10_a_directory_of_another_mount_is_a_data_directory(tmp_path: Path) -> None:
    """What is kept there, and reached by a link, is lost over a restart, or two nodes that share
    the mount use one directory.
    """
    with tempfile.TemporaryDirectory(dir=elsewhere(tmp_path)) as mounted:
        data, base = tmp_path / "data", free_port_base()
        data.symlink_to(mounted)
        assert data.stat().st_dev != tmp_path.stat().st_dev
        with kvorum.open(data, port=base) as db:
            db.create_table("default", "t")
            version = db.table("default", "t").put("k", "v")
            with pytest.raises(kvorum.InvalidArgument, match="in use"):
                kvorum.open(Path(mounted), port=free_port_base())
        with kvorum.open(Path(mounted), port=base) as db:
            record = db.table("default", "t").get("k")
            assert record is not None
            assert (record.value, record.version) == (b"v", version)
