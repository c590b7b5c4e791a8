"""Places for files: directories, what pyarrow opens and what fsspec opens behave alike."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fsspec import register_implementation
from fsspec.implementations.local import LocalFileSystem

from kv.base.errors import InvalidArgument, NotFound, Refused, Unavailable
from kvorum.local.blocking_calls import Outside
from kvorum.transfer import claims, create_table, formats, places, postgresql
from kvorum.transfer.allowed_places import check_database, opened
from kvorum.transfer.places import Directory, FsspecPlace, Place, Remote, place_of
from kvorum.transfer.targets import check_no_keys, is_local, local_path, uri_of
from tests.kit.object_store import ObjectStore


@pytest.fixture(params=["directory", "pyarrow", "objects", "fsspec", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    where = tmp_path / "a b"
    match request.param:
        case "objects":
            store: ObjectStore = request.getfixturevalue("objects")
            return Remote(store.uri("a b"))
        case "directory":
            return Directory(where)
        case "pyarrow":
            return Remote(where.as_uri())
        case "fsspec":
            return FsspecPlace(f"fsspec+local://{where}")
        case _:
            return FsspecPlace(f"memory://{where}")


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


def test_u3_one_file_is_found_without_the_others(place: Place) -> None:
    """A piece of an import reads of another file than the listing told of, and does not notice."""
    place.write("a/one", b"1")
    place.write("two", b"22")
    assert [place.found(one.name) for one in place.files()] == place.files()
    assert place.found("two").size == 2
    with pytest.raises(NotFound):
        place.found("three")


def test_u3_a_changed_file_has_other_facts(place: Place) -> None:
    """An import would go on in the middle of another file of the same name."""
    place.write("a", b"one")
    before = place.files()
    assert [(one.name, one.size) for one in before] == [("a", 3)]
    assert place.files() == before
    place.write("a", b"two")
    assert place.files() != before


@pytest.mark.few(3)
def test_u3_one_of_several_writers_takes_a_place(place: Place) -> None:
    """Two that find a place empty at the same moment would both write there."""

    class Late:
        """Its first look is of before the others came."""

        def __init__(self) -> None:
            self.looked = False

        def __getattr__(self, name: str) -> Any:
            return getattr(place, name)

        def names(self) -> list[str]:
            self.looked, first = True, not self.looked
            return [] if first else place.names()

    def late(id: str, looks: int = 1) -> bool | str:
        try:
            return claims.take(Late(), id, "an export", looks=looks)
        except Refused as error:
            return error.code

    assert late("b")
    assert late("c") == "TARGET_IN_USE"
    assert late("a") is False, "the other one may go"
    assert late("a", claims.LOOKS_MAX) == "TARGET_IN_USE", "it was there before"
    assert late("b"), "again"
    assert place.names() == [claims.claim_of("b")]
    place.write("part", b"")
    claims.release(place, "b")
    assert late("d") == "TARGET_IN_USE"
    assert place.names() == ["part"]


@pytest.mark.parametrize(
    "target",
    [
        "s3://bucket/a?region=eu&endpoint_override=http://h:9",
        "hdfs://me@h:8020/a:b@c",
        "hdfs://h:8020/a:b@c",
        "https://h:8443/@a/b",
        "webhdfs://h:9870/a@b",
        "abfs://container@account/a?credential_kind=anonymous",
        "file:///a:b@c",
        "/a:b@c",
    ],
)
def test_u3_places_without_keys_are_taken(target: str) -> None:
    """A region, a container or an odd path would be refused as if it were a key."""
    check_no_keys(target)


@pytest.mark.parametrize(
    "target",
    [
        "s3://key:12/3@bucket/a",
        "s3://key:123/45@bucket/a",
        "fsspec+s3://key:123/45@bucket/a",
        "sftp://me:123/45@host/a",
        "https://me:abc/5@host/a",
        "hdfs://me:abc@h:8020/a",
    ],
)
def test_u3_a_secret_with_a_slash_is_one(target: str) -> None:
    """A secret of digits and a slash is taken for a port and a path, and kept in clear."""
    with pytest.raises(InvalidArgument, match="has keys in it"):
        check_no_keys(target)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Bucket 'b' not found. To create buckets, enable allow_bucket_creation", InvalidArgument),
        ("AWS Error ACCESS_DENIED during PutObject operation: Access Denied", InvalidArgument),
        ("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7", Unavailable),
    ],
)
def test_a_store_that_refuses_is_not_asked_again(said: str, error: type[Exception]) -> None:
    """A backup to a bucket that is not there is tried for a day; or one whose store is away for a
    moment fails.
    """

    def fails() -> None:
        raise OSError(said)

    with pytest.raises(error):
        places.guarded(fails, "s3://b")


def test_options_of_a_store_are_no_part_of_a_name() -> None:
    """`import t s3://b/rows.csv?region=eu` would not know that it is CSV."""
    assert formats.format_of("s3://b/rows.csv?region=eu") == "csv"
    with pytest.raises(InvalidArgument):
        formats.format_of("rows.csv?")


def test_u3_a_claim_that_goes_while_a_place_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two exports that come at once the one that stays ends because the other went."""
    place = Directory(tmp_path)
    for name in ("a", "b"):
        place.write(name, b"")
    stat = Directory._stat

    def gone(self: Directory, name: str) -> os.stat_result:
        (tmp_path / "b").unlink(missing_ok=True)
        return stat(self, name)

    monkeypatch.setattr(Directory, "_stat", gone)
    assert place.names() == ["a"]


def test_u3_a_table_is_made_as_the_files_of_a_source_say(tmp_path: Path) -> None:
    """A claim that a dead export left would be taken for one of them; a store's keys be used."""
    (tmp_path / claims.claim_of("left")).write_bytes(b"{}\n")
    (tmp_path / "part-00000.csv").write_text("id,name\n1,x\n")
    assert create_table.schema_of(tmp_path.as_uri(), "", "") == [("id", "int8"), ("name", "text")]
    with pytest.raises(InvalidArgument, match="has keys in it"):
        create_table.schema_of("s3://AKIA:hush@bucket/x", "", "")


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

    def dies(*_: object, **_more: object) -> None:
        raise OSError("power")

    monkeypatch.setattr(os, "replace", dies)
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
    with pytest.raises(InvalidArgument, match="fsspec cannot open it: Protocol not known: nosuch"):
        place_of("nosuch://x/y")
    with pytest.raises(InvalidArgument, match="nodes take URIs"):
        opened("relative/path", here=False)
    opened(str(tmp_path), here=True)
    opened(tmp_path.as_uri(), here=False)


def test_u3_what_fsspec_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library is a traceback, or looks as if the place did not exist."""
    with pytest.raises(InvalidArgument, match="s3fs"):
        place_of("fsspec+s3://bucket/x")
    with pytest.raises(InvalidArgument, match="gone with it"):
        opened("memory://x", here=True)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'kvorum\[files\]'"):
        place_of("sftp://host/x")


class Odd(LocalFileSystem):
    """A store for reading alone whose library has errors of its own; it says no times."""

    protocol = "odd"
    said: BaseException | None = None

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        if self.said is not None:
            raise self.said
        return super().info(path, **more) | {"mtime": None, "last_modified": "2024-01-02T00:00:00Z"}

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
        raise NotImplementedError


class Keeping(LocalFileSystem):
    """A rename does not replace what is there; `says` whether it is an error."""

    protocol = "keeping"
    says = False

    def mv(self, path1: str, path2: str, recursive: bool = True, **more: Any) -> None:
        if not self.exists(path2):
            super().mv(path1, path2, recursive, **more)
        elif self.says:
            raise FileExistsError(path2)


@pytest.mark.parametrize("says", [False, True])
def test_u3_a_rename_that_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bool
) -> None:
    """A file that is written again keeps what it had, without a word (WebHDFS), or never can be."""
    register_implementation("keeping", Keeping, clobber=True)
    monkeypatch.setattr(Keeping, "says", says)
    place = FsspecPlace(f"keeping://{tmp_path}")
    for data in (b"one", b"two"):
        place.write("a/x", data)
        assert place.read("a/x") == data
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x"]


def test_u3_errors_of_other_stores_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that does not answer ends a backup of hours; one that cannot be written to is asked
    again for ever.
    """
    register_implementation("odd", Odd, clobber=True)
    place = FsspecPlace(f"odd://{tmp_path}")
    (tmp_path / "x").write_text("x")
    assert place.files() == [places.Found("x", 1, 1_704_153_600_000_000_000)]
    with pytest.raises(InvalidArgument, match="only for reading"):
        place.write("y", b"")
    monkeypatch.setattr(Odd, "said", RuntimeError("the tunnel is closed"))
    with pytest.raises(Unavailable, match="RuntimeError: the tunnel is closed; it is tried again"):
        place.files()
    monkeypatch.setattr(Odd, "said", PermissionError("not yours"))
    with pytest.raises(InvalidArgument, match="not yours"):
        place.found("x")


def test_u3_nodes_use_only_listed_urls() -> None:
    """Whoever may submit a procedure reaches every server that the node can."""
    listed = ["sftp://store/backups", "https://data"]
    for good in ("sftp://store/backups", "sftp://store/backups/a/b", "https://data/x.csv"):
        assert "transfer_places" not in str(_refusal(good, listed)), "its library may be missing"
    for bad in (
        "sftp://store/backups-other",
        "sftp://store/backups/../etc",
        "sftp://other/backups",
        "https://data.other/x",
        "simplecache::sftp://store/backups",
        "http://data/x",
        "fsspec+file:///etc",
        "fsspec+local:///etc",
        "fsspec+sftp://store/backups",
    ):
        assert _refusal(bad, listed), bad
    for climbing in ("%2e%2e", ".%2E", "..%2fx", "a%2f..", "..\\x", "..;a=b"):
        assert "no chains" in str(_refusal(f"https://data/a/{climbing}/x", listed)), climbing
    assert "no chains" in str(_refusal("filecache::https://data/x", ["filecache::https://data"]))


def test_u13_nodes_use_only_listed_stores() -> None:
    """Whoever may submit a procedure has a node ask any server, with the node's credentials."""
    listed = ["s3://mine/kvorum?endpoint_override=minio:9000&scheme=http&region=x", "hdfs://nn/b"]
    for good in ("s3://mine/kvorum", "s3://mine/kvorum/a/b"):
        place = opened(good, here=False, listed=listed)
        assert place.uri == f"{good}?{listed[0].partition('?')[2]}"
    same = f"s3://mine/kvorum/a?region=x&{listed[0].partition('?')[2].replace('&region=x', '')}"
    assert opened(same, here=False, listed=listed).uri.startswith("s3://mine/kvorum/a?endpoint")
    for bad in (
        "s3://mine",
        "s3://other/kvorum",
        "s3://mine/kvorum-other",
        "gs://mine/kvorum",
        "hdfs://evil/b",
        "abfs://mine@evil/kvorum",
        "fsspec+s3://mine/kvorum",
        "S3://mine/kvorum",
    ):
        assert "transfer_places" in str(_refusal(bad, listed)), bad
        assert "transfer_places" in str(_refusal(bad, [])), bad
    for climbing in ("..", "%2e%2e", "a/../../x", "a\\..\\x"):
        assert "no chains" in str(_refusal(f"s3://mine/kvorum/{climbing}", listed)), climbing
    assert "control characters" in str(_refusal("s3://mine/kvorum/a%0d%0ab", listed))
    for options in ("?endpoint_override=evil:1", "?region=x", "?", "#x"):
        target = f"s3://mine/kvorum/a{options}"
        assert "leave them out here" in str(_refusal(target, listed)), options
    assert "leave them out here" in str(_refusal("hdfs://nn/b/x?user=root", listed))


def test_u13_a_node_follows_no_link_in_a_place(tmp_path: Path) -> None:
    """Who shares a directory with a node makes a link there, and reads or writes what only the node
    may; or a pipe, and the node waits for ever.
    """
    (tmp_path / "shared/inner").mkdir(parents=True)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/secret.csv").write_text("1")
    (tmp_path / "shared/good.csv").write_text("2")
    (tmp_path / "shared/bad.csv").symlink_to(tmp_path / "own/secret.csv")
    (tmp_path / "shared/there").symlink_to(tmp_path / "own")
    os.mkfifo(tmp_path / "shared/pipe.csv")
    target = (tmp_path / "shared").as_uri()
    place = opened(target, here=False, listed=[target])
    assert place.names() == ["good.csv"]
    assert place.read("good.csv") == b"2"
    for name in ("bad.csv", "there/secret.csv", "pipe.csv"):
        with pytest.raises(InvalidArgument):
            place.open(name)
    with pytest.raises(InvalidArgument):
        place.write("there/new", b"x")
    (tmp_path / "shared/.new.new").symlink_to(tmp_path / "own/secret.csv")
    with pytest.raises(InvalidArgument, match="nodes do not follow"):
        place.write("new", b"x")
    (tmp_path / "shared/inner").rmdir()
    inner = opened(f"{target}/inner", here=False, listed=[target])
    (tmp_path / "shared/inner").symlink_to(tmp_path / "own")
    with pytest.raises(InvalidArgument):
        inner.write("x", b"x")
    assert (tmp_path / "own/secret.csv").read_text() == "1"
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["secret.csv"]
    mine = opened(str(tmp_path / "shared"), here=True)
    assert mine.read("bad.csv") == b"1", "a command has its user's own files"


def test_u13_a_listed_server_sends_nowhere_else() -> None:
    """A server that is listed sends a node to any other one in its network."""
    pytest.importorskip("aiohttp")
    asked: list[str] = []

    class Sends(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path == "/inner/secret":
                self.send_response(200)
                self.send_header("Content-Length", "1")
                self.end_headers()
                self.wfile.write(b"s")
                return
            self.send_response(302)
            self.send_header("Location", "/inner/secret")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Sends) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            target = f"http://127.0.0.1:{server.server_port}/data/x.csv"
            listed = [target.removesuffix("/x.csv")]
            assert opened(target, here=True).read("") == b"s"
            asked.clear()
            with pytest.raises(InvalidArgument, match="sends to another place, /inner/secret"):
                opened(target, here=False, listed=listed).read("")
            assert asked == ["/data/x.csv"]
        finally:
            server.shutdown()
            thread.join()


def _refusal(target: str, listed: list[str]) -> str | None:
    try:
        opened(target, here=False, listed=listed)
    except InvalidArgument as error:
        return error.message
    return None


def test_u3_nodes_use_only_listed_places(tmp_path: Path) -> None:
    """Whoever may submit a procedure reads and writes every file of the node's user."""
    listed = [(tmp_path / "backup").as_uri(), "postgresql://db/shop"]
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "out").symlink_to(tmp_path)
    for good in ("backup", "backup/", "backup/monday", "backup/a/../b", "x/../backup/b"):
        opened(f"{tmp_path.as_uri()}/{good}", here=False, listed=listed)
    bad = ("", "backup-other", "backup/../other", "backup/%2e%2e/other", "backup/out/x", "Backup")
    for name in bad:
        target = f"{tmp_path.as_uri()}/{name}"
        with pytest.raises(InvalidArgument, match="transfer_places") as caught:
            opened(target, here=False, listed=listed)
        assert target in caught.value.message
        opened(target, here=True)
    with pytest.raises(InvalidArgument, match="none is listed"):
        opened("file:///etc", here=False, listed=[])
    for odd in ("FILE:///etc", "mock://x", "file:///a%00b", "local:///etc"):
        with pytest.raises(InvalidArgument):
            opened(odd, here=False, listed=listed)
    opened("file:///anywhere", here=False, listed=["file:///"])


@pytest.mark.parametrize("source", ["jdbc:mysql://db/shop", "mysql://db/shop", "JDBC:oracle:x"])
@pytest.mark.parametrize("here", [True, False])
def test_u3_other_databases_are_named(source: str, here: bool) -> None:
    """Whoever imports from MySQL is told of object stores, or that there is no such file."""
    with pytest.raises(InvalidArgument, match=r"spark\.read\.jdbc"):
        opened(source, here=here, listed=())


def test_u3_nodes_ask_only_listed_databases() -> None:
    """A node would ask any database in its network, with the password of its own user."""
    listed = ["postgresql://db/shop", "postgres://[::1]:5433"]
    for good in (
        "postgresql://db/shop?table=a.b",
        "postgres://me@DB:5432/shop?sslmode=require",
        "postgresql://[::1]:5433/any?table=t",
    ):
        check_database(good, here=False, listed=listed)
    for bad in (
        "postgresql://db-other/shop",
        "postgresql://db/shop2",
        "postgresql://db:5433/shop",
        "postgresql://db,evil/shop",
        "postgresql://db/shop?host=evil",
        "postgresql:///shop",
        "postgresql://a@evil,x@db/shop",
        "postgresql://db#@evil/shop",
        "postgresql://%2Ftmp/shop",
        "postgresql://db/shop#?host=evil",
        "postgresql://db/shop?service=x",
        "postgresql://db",
    ):
        with pytest.raises(InvalidArgument):
            check_database(bad, here=False, listed=listed)
        check_database(bad, here=True)
    with pytest.raises(InvalidArgument, match="transfer_places"):
        check_database("postgresql://db/shop", here=False, listed=[])


def test_an_option_of_a_database_stays_one() -> None:
    """A quoted & in a value would become an option that nobody checked."""
    url, table = postgresql.split("postgresql://db/x?application_name=a%26host%3Devil&table=s.t")
    assert (url, table) == ("postgresql://db/x?application_name=a%26host%3Devil", "s.t")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush@db/x",
        "postgres://me:hush@db,other/x?table=t",
        "postgresql://db/x?table=t&password=hush",
        "postgresql://db/x?p%61ssword=hush",
        "postgresql://db/x?sslpassword=hush",
        "postgresql://me:hu/sh@db/x",
        "postgresql://me:hu?sh@db/x",
    ],
)
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    """It would stand in the procedure's arguments, its history and all backups."""
    for here in (True, False):
        with pytest.raises(InvalidArgument, match=r"PGPASSWORD or ~/\.pgpass") as caught:
            check_database(url, here=here, listed=[])
        assert "hush" not in str(caught.value)
    check_database("postgresql://me@[::1]:5432/x?table=t&passfile=/x", here=True)


@pytest.mark.parametrize("name", ["plain", "a#1", "50%25 off?", "ä"])
def test_a_path_is_told_whole(name: str, tmp_path: Path) -> None:
    """A backup to `my#dir` is written to `my`, and whoever looks for it finds nothing."""
    assert local_path(uri_of(str(tmp_path / name))) == str(tmp_path / name)
    assert uri_of("s3://bucket/a#1") == "s3://bucket/a#1"


def test_u13_places_that_hang_take_no_others_threads() -> None:
    """A store that does not answer takes the threads that write the log; who gave up waiting for it
    frees a thread that is still there; or a process does not end for it.
    """
    release = threading.Event()
    running: list[int] = []

    def hangs() -> None:
        running.append(1)
        release.wait(30)

    def fails() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        outside = Outside(2)
        waiting = [asyncio.create_task(outside(hangs)) for _ in range(3)]
        await asyncio.to_thread(lambda: None)  # of others
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting[0], 0.2)
        assert len(running) == 2, "the one that was given up has its place"
        assert all(thread.daemon for thread in threading.enumerate() if thread.name == "outside")
        release.set()
        await asyncio.gather(*waiting[1:])
        assert len(running) == 3
        with pytest.raises(ZeroDivisionError):
            await outside(fails)

    asyncio.run(main())
