"""What processes leave behind is their owner's alone, and no secret that they were told is in it,
nor in their command lines and answers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

import kvorum
from kv.base.config import HTTP_OFFSET, SQL_OFFSET
from tests.kit.commands import command, settings
from tests.kit.machine import ROOT, free_port_base

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

READY_S = 60
MARK = b"hush"
ENVIRONMENT = {
    "KVORUM_CLUSTER_SECRET": "hush-cluster-secret",
    "AWS_SECRET_ACCESS_KEY": "hush-aws-key",
    "PGPASSWORD": "hush-environment",
}


class Place:
    """Processes that are started as by a user whose files others may read."""

    def __init__(self, path: Path) -> None:
        self.home = path / "made"  # all of it is looked at
        self.home.mkdir(mode=0o700)
        self.key = path / "key"
        self.key.touch(mode=0o600)
        self.key.write_text("1234567890abcdef" * 4)
        self.env = settings(env={**ENVIRONMENT, "TMPDIR": str(self.home), "HOME": str(self.home)})
        self.running: list[subprocess.Popen[bytes]] = []
        self.lines: list[str] = []

    def start(self, *words: str, says: bytes) -> subprocess.Popen[bytes]:
        """Wait until it says that it is ready."""
        log = self.home / f"{len(self.running)}.log"
        log.touch(mode=0o600)
        with log.open("ab") as out:
            child = subprocess.Popen(
                *(command(*words),),
                cwd=ROOT,
                env=self.env,
                umask=0,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self.running.append(child)
        until = time.monotonic() + READY_S
        while says not in log.read_bytes():
            assert child.poll() is None, log.read_bytes()
            assert time.monotonic() < until, log.read_bytes()
            time.sleep(0.05)
        return child

    def run(self, *words: str, code: int | None = 0) -> bytes:
        ended = subprocess.run(
            command(*words),
            cwd=ROOT,
            env=self.env,
            umask=0,
            capture_output=True,
            timeout=READY_S,
            check=False,
        )
        assert code in (None, ended.returncode), ended
        return ended.stdout + ended.stderr

    def look(self) -> None:
        """Note the command lines of what runs."""
        for child in self.running:
            if child.poll() is None:
                family = psutil.Process(child.pid)
                for one in (family, *family.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        self.lines.append(" ".join(one.cmdline()))

    def open_to_others(self) -> list[str]:
        return [
            f"{stat.filemode(path.lstat().st_mode)} {path.relative_to(self.home)}"
            for path in self.home.rglob("*")
            if not path.is_symlink() and path.lstat().st_mode & 0o077
        ]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    try:
        yield found
    finally:
        for child in found.running:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in found.running:
            child.wait(READY_S)


@pytest.mark.slow
def test_u15_files_of_all_programs_are_their_owners_alone(place: Place) -> None:
    """Whoever has an account on the machine reads the data, the logs or a backup."""
    base, home = free_port_base(3), place.home
    options = ("--audit", str(home / "audit/log"), "--sql-processes", "1")
    node = f"127.0.0.1:{base}"
    place.start(
        *("start", "--data", str(home / "data"), "--port", str(base), *options),
        *("--procedure-modules", "tests.processes.sample_procedures"),
        says=b"native",
    )
    place.start("proxy", "--connect", node, "--port", str(base + 10), says=b"http")
    place.start(*("worker", "tests.processes.sample_procedures", "--connect", node), says=b"worker")
    place.start(*("dev", "--data", str(home / "dev"), "--port", str(base + 20)), says=b"native")
    with kvorum.connect(f"kvorum://{node}") as db:
        db.create_table("default", "t")
        db.table("default", "t").put("k", "v")
    with psycopg.connect(
        host="127.0.0.1", port=base + SQL_OFFSET, user="kvorum", dbname="postgres"
    ) as session:
        session.execute("CREATE TABLE rows (id int PRIMARY KEY, v text)")
        session.execute("INSERT INTO rows SELECT g, repeat('x', 100) FROM generate_series(1, 99) g")
        session.execute("SELECT count(*) OVER () FROM rows ORDER BY v")
    place.run("backup", str(home / "backups/clear"), "--connect", node)
    place.run(
        *("backup", str(home / "backups/sealed"), "--key-file", str(place.key), "--connect", node)
    )
    place.run("checkpoint", "create", "one", "--connect", node)
    place.run("cert", "ca", "--dir", str(home / "certs"), code=None)
    names = {path.name for path in home.rglob("*")}
    assert {"data", "log", "state", "manifest.json", "dev", "points", "one"} <= names
    found = [one for one in place.open_to_others() if not one.endswith(".crt")]
    assert not found, found
    place.run("export", "default.t", str(home / "export"), "--format", "csv", "--connect", node)
    shared = (home / "export/export.json").stat().st_mode
    assert stat.S_IMODE(shared) == 0o666, (
        "an export is for whom its maker says, who has no umask here"
    )


def test_u15_a_directory_of_before_is_closed(tmp_path: Path) -> None:
    """Data that an earlier version made stay open to others; or a new one below is."""
    data = tmp_path / "a/data"
    old = os.umask(0)
    try:
        with kvorum.open(data):
            pass
        (data / "state").chmod(0o755)
        with kvorum.open(data) as db:
            db.create_table("default", "t")
    finally:
        os.umask(old)
    for folder in (tmp_path / "a", data, data / "state", data / "log"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


@pytest.mark.slow
def test_u15_secrets_are_nowhere(place: Place) -> None:
    """A password, a key or a token stands in a log, an error, a command line, the history of a
    procedure, a metric or a file.
    """
    base, home = free_port_base(), place.home
    node, answers = f"127.0.0.1:{base}", []
    place.start(
        *("start", "--data", str(home / "data"), "--port", str(base)),
        *("--audit", str(home / "audit/log"), "--audit-keys", "true", "--log-level", "debug"),
        *("--procedure-modules", "tests.processes.sample_procedures"),
        *("--transfer-places", home.as_uri(), "--backup-key-file", str(place.key)),
        says=b"native",
    )
    with kvorum.connect(f"kvorum://{node}") as db:
        found = db.wait(db.submit("sample.environment"), timeout_ms=60_000)
        assert "KVORUM_CLUSTER_SECRET" not in found, "a user's code could act as a node"
    http = f"http://127.0.0.1:{base + HTTP_OFFSET}"
    with kvorum.connect(f"kvorum://{node}") as db:
        db.create_table("default", "t")
        args = {"table": ["default", "t"], "format": "csv"}
        for name, field, url in (
            ("export", "target", "s3://key:hush-url@bucket/x"),
            ("export", "target", "sftp://me:hush/url@host/x"),
            ("export", "target", "abfs://c@a.example/x?sas=hush-option"),
            ("import", "source", "postgresql://me:hush-url@db/x?table=t"),
            ("import", "source", "postgresql://db/x?table=t&password=hush-option"),
            ("restore", "source", "https://me:hush-url@host/x"),
        ):
            with pytest.raises(kvorum.KvorumError) as caught:
                db.wait(db.submit(f"kvorum.{name}", {**args, field: url}), timeout_ms=20_000)
            answers.append(f"{caught.value} {caught.value.details}".encode())
        locks = ["table/default/t"]
        told = {"target": (home / "backup").as_uri(), "locks": locks}
        db.wait(db.submit("kvorum.backup", told), timeout_ms=30_000)
        answers.append(repr([(info, info.error) for info in db.procedures()]).encode())
    for words in (
        ("export", "default.t", "s3://key:hush-url@bucket/x", "--connect", node),
        ("import", "default.t", "postgresql://me:hush-url@db/x?table=t", "--connect", node),
        ("backup", "s3://key:hush/url@bucket/x", "--connect", node),
        ("backup", "verify", "sftp://me:hush-url@host/x"),
        ("restore", "sftp://me:hush-url@host/x", "--connect", node),
        ("import", "default.t", "sftp://me:hush-url@host/x", "--create", "--connect", node),
        ("export", "default.t", "fsspec+s3://k:hush-url@b/x", "--connect", node),
        ("start", "--data", str(home / "x"), "--transfer-places", "sftp://me:hush-url@host/x"),
    ):
        answers.append(place.run(*words, code=None))
    place.look()
    statements = (
        "CREATE ROLE ann LOGIN SUPERUSER PASSWORD 'hush-role'",
        "CREATE ROLE bob LOGIN PASSWORD 'hush-role' NONSENSE",
        "ALTER ROLE nobody PASSWORD 'hush-role'",
    )
    port = base + SQL_OFFSET
    with psycopg.connect(
        host="127.0.0.1", port=port, user="kvorum", dbname="postgres", autocommit=True
    ) as session:
        for statement in statements:
            with contextlib.suppress(psycopg.Error):
                session.execute(statement)
    for password in ("hush-role", "hush-wrong"):
        try:
            with psycopg.connect(
                host="127.0.0.1", port=port, user="ann", dbname="postgres", password=password
            ) as session:
                rows = session.execute("SELECT * FROM pg_stat_activity").fetchall()
                answers.append(repr(rows).encode())
        except psycopg.Error as error:
            answers.append(str(error).encode())
    basic = b64encode(b"ann:hush-basic").decode()
    for header in ("Bearer hush-token", f"Basic {basic}", "hush-nothing"):
        for path in ("/v1/cluster", "/metrics", "/v1/procedures", "/v1/tables?token=hush-query"):
            asked = urllib.request.Request(http + path, headers={"Authorization": header})
            try:
                with urllib.request.urlopen(asked, timeout=20) as answer:
                    answers.append(answer.read())
            except urllib.error.HTTPError as error:
                answers.append(error.read())
    place.look()
    for child in place.running:
        child.send_signal(signal.SIGTERM)
        child.wait(READY_S)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) > 10
    found = [str(path) for path in files if MARK in path.read_bytes()]
    assert not found, found
    assert not [line for line in place.lines if MARK.decode() in line]
    assert not [answer for answer in answers if MARK in answer or basic.encode() in answer]
    key = place.key.read_bytes()
    assert not [str(path) for path in files if key in path.read_bytes()]
