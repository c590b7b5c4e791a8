"""Places for files: directories and what pyarrow opens behave alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from kv.base.errors import InvalidArgument, NotFound
from kvorum.transfer.backup import check_place
from kvorum.transfer.places import Directory, Place, Remote, is_local, local_path, place_of, uri_of


@pytest.fixture(params=["directory", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    where = tmp_path / "a b"
    return Directory(where) if request.param == "directory" else Remote(where.as_uri())


def test_files_are_written_read_listed_and_removed(place: Place) -> None:
    """A backup would be made in one place and not be found in the other."""
    assert place.names() == []
    place.write("data/2", b"two")
    place.write("data/1", b"")
    place.write("m.json", b"{}")
    place.write("m.json", b"[]")
    assert place.names() == ["data/1", "data/2", "m.json"]
    assert place.read("m.json") == b"[]"
    with place.open("data/2") as file:
        file.seek(1)
        assert file.read(10) == b"wo"
    place.remove("data/2")
    place.remove("data/2")
    assert place.names() == ["data/1", "m.json"]
    for ask in (place.read, place.open):
        with pytest.raises(NotFound):
            ask("data/2")


def test_a_file_is_a_place_of_one(tmp_path: Path) -> None:
    """`import t file.csv` would look for a directory of that name."""
    (tmp_path / "rows.csv").write_bytes(b"key,value\n")
    for place in (Directory(tmp_path / "rows.csv"), Remote((tmp_path / "rows.csv").as_uri())):
        assert place.names() == [""]
        with place.open("") as file:
            assert file.read() == b"key,value\n"


def test_no_half_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in the middle of a write would leave a file that looks whole."""
    place = Directory(tmp_path)
    place.write("m.json", b"old")

    def dies(self: Path, target: Path) -> None:
        raise OSError("power")

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(Exception, match="power"):
        place.write("m.json", b"new")
    assert place.read("m.json") == b"old"
    assert place.names() == ["m.json"]


def test_paths_and_uris_are_told_apart(tmp_path: Path) -> None:
    """A path would be taken for another machine's, or the other way round."""
    assert is_local("x/y")
    assert is_local("file:///x")
    assert not is_local("s3://bucket/x")
    assert local_path("file:///a%20b") == "/a b"
    assert local_path("file://localhost/x") == "/x"
    with pytest.raises(InvalidArgument, match="absolute path of this machine"):
        local_path("file://elsewhere/x")
    with pytest.raises(InvalidArgument, match="pyarrow cannot open it"):
        place_of("nosuch://x/y")
    with pytest.raises(InvalidArgument, match="nodes take URIs"):
        check_place("relative/path", here=False)
    check_place(str(tmp_path), here=True)
    check_place(tmp_path.as_uri(), here=False)


@pytest.mark.parametrize("name", ["plain", "a#1", "50%25 off?", "ä"])
def test_a_path_is_told_whole(name: str, tmp_path: Path) -> None:
    """A backup to `my#dir` is written to `my`, and whoever looks for it finds nothing."""
    assert local_path(uri_of(str(tmp_path / name))) == str(tmp_path / name)
    assert uri_of("s3://bucket/a#1") == "s3://bucket/a#1"
