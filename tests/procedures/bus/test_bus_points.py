"""The files of points at one node, on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from kv.base.errors import Refused
from kv.storage.engine import STATE_FAMILIES, Engine
from kv.storage.open_engine import open_engine
from kvorum.master.bus_work import STAGING, Points


def engine(path: Path) -> Engine:
    made = open_engine("rocks", path, STATE_FAMILIES)
    batch = made.batch()
    batch.put(b"key", b"value", made.family("cur"))
    made.write(batch)
    return made


def manifest(name: str) -> dict[str, object]:
    return {"name": name, "at_ms": 5, "partitions": [[1, 9]]}


@pytest.mark.slow
def test_n9_a_point_can_be_opened_and_has_what_was_written(tmp_path: Path) -> None:
    """A copy that nobody can open, or without what was only in memory."""
    state, points = engine(tmp_path / "state"), Points(tmp_path)
    points.stage("7", state, manifest("a"))
    assert points.all() == [], "nobody sees it before it is committed"
    points.commit("7", "a")
    assert points.all() == [["a", 5]]
    batch = state.batch()
    batch.put(b"key", b"later", state.family("cur"))
    state.write(batch)
    state.close()
    copy = open_engine("rocks", tmp_path / "points" / "a" / "state", STATE_FAMILIES)
    assert copy.getter("cur")(b"key") == b"value"
    copy.close()


def test_n9_every_step_may_run_twice(tmp_path: Path) -> None:
    """An order that was repeated, after a restart too, failed on its own work."""
    state, points = engine(tmp_path / "state"), Points(tmp_path)
    points.stage("7", state, manifest("a"))
    points.stage("7", state, manifest("a"))
    points.commit("7", "a")
    points.commit("7", "a")
    points.stage("7", state, manifest("a"))
    points.commit("7", "a")
    with pytest.raises(Refused) as caught:
        points.stage("8", state, manifest("a"))
    assert caught.value.code == "POINT_EXISTS"
    points.undo("8")
    points.undo("8")
    points.undo("7")
    assert points.all() == [["a", 5]], "what was committed stays"
    assert points.drop("9", "a")
    assert not points.drop("9", "a")
    assert points.all() == []
    state.close()


@pytest.mark.slow
def test_n9_what_was_staged_does_not_outlive_its_process(tmp_path: Path) -> None:
    """Copies that nobody will ever commit filled the disk."""
    state, points = engine(tmp_path / "state"), Points(tmp_path)
    points.stage("7", state, manifest("a"))
    points.undo("7")
    points.stage("8", state, manifest("b"))
    again = Points(tmp_path)
    again.clear()
    assert not (tmp_path / "points" / STAGING).exists()
    again.stage("8", state, manifest("b"))
    again.commit("8", "b")
    assert again.all() == [["b", 5]]
    state.close()
