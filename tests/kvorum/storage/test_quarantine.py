"""Which failures a start makes good (kvorum/storage/quarantine.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kv.base.errors import Corruption, Unavailable
from kvorum.storage import quarantine


def damage(file: Path) -> Unavailable:
    """As it comes from below: something failed, because a file is damaged."""
    error = Unavailable("no writes any more")
    error.__cause__ = Corruption("block checksum mismatch", details={"file": str(file)})
    return error


def test_damage_of_a_database_is_marked_and_put_aside(tmp_path: Path) -> None:
    """The next start would open the same files; or a node that cannot be helped starts for ever."""
    state = tmp_path / "state"
    for done in range(quarantine.ASIDE_MAX + 1):
        state.mkdir()
        quarantine.refuse_marked(state)
        mendable = quarantine.mark(damage(state / "000011.sst"), tmp_path)
        assert mendable == (done < quarantine.ASIDE_MAX)
        with pytest.raises(Corruption, match="block checksum"):
            quarantine.refuse_marked(state)
        assert quarantine.put_aside(state).name == f"state.damaged-{done + 1}"
        assert not state.exists()


def test_what_no_start_makes_good_is_not_marked(tmp_path: Path) -> None:
    """A full disk, or a file of somebody else, would have a node start again and again."""
    state = tmp_path / "state"
    state.mkdir()
    for error in (
        Unavailable("the disk is full"),
        Corruption("of no file"),
        damage(tmp_path / "other" / "state" / "000011.sst"),
        damage(tmp_path / "gone" / "000011.sst"),
    ):
        assert not quarantine.mark(error, tmp_path)
    quarantine.refuse_marked(state)
