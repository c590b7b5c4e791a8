"""Directories on other file systems than the machine's disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.kit.machine import ROOT

PLACES = (Path("/dev/shm"), Path(tempfile.gettempdir()), Path.home(), ROOT)


def elsewhere(path: Path) -> Path:
    """A directory of another mount than `path`'s, that may be written to."""
    for place in PLACES:
        other = place.is_dir() and place.stat().st_dev != path.stat().st_dev
        if other and os.access(place, os.W_OK):
            return place
    pytest.skip(f"{path} and {', '.join(map(str, PLACES))} are of one file system")
