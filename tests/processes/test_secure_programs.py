"""Every program of ours and of others against three nodes with TLS and users: it works with right
credentials, and with wrong ones it ends soon, with words that say what to do.
"""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil
import psycopg
import pytest

import kvorum
from tests.kit.commands import command, run, settings
from tests.kit.machine import ROOT, free_port_base
from tests.kit.secured import PASSWORD, Secured, secured

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]

ENDS_S: Final = 45.0  # a worker's start on a loaded machine, and what a command may wait
MODULES = ("--procedure-modules", "tests.processes.sample_procedures", "--sql-processes", "1")
NATIVE: Final = {
    "get": ("get", "shop/t/k"),
    "check": ("check",),
    "sinks": ("spark", "sinks"),
    "backup": ("backup", "{}/backup-{}"),
    "export": ("export", "shop.t", "{}/export-{}", "--format", "csv"),
    "sql": ("sql", "-d", "shop", "-c", "select count(*) from rows"),
    "script": ("export", "shop", "{}/script-{}", "--format", "sql"),
}
HTTP: Final = {"get over HTTPS": ("get", "shop/t/k"), "tables": ("table", "list")}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as made:
        with as_boss(made) as db:
            db.create_namespace("shop")
            db.create_table("shop", "t")
            db.table("shop", "t").put("k", "tea")
            db.create_table(
                "shop", "rows", columns=[kvorum.Column("id", "int4", False)], primary_key=["id"]
            )
        for node in made.nodes:  # SQL takes its time when it is first used
            where = f"host=localhost port={node.base + 3} user=boss dbname=postgres"
            known = f"password='{PASSWORD}' sslmode=require connect_timeout=60"
            psycopg.connect(f"{where} {known}").close()
        yield made


def as_boss(made: Secured) -> kvorum.Database:
    return kvorum.connect(made.url, tls_dir=made.home / "boss")


def words(of: tuple[str, ...], made: Secured, way: str) -> tuple[str, ...]:
    """For a place of its own."""
    return tuple(word.format(made.home, way.replace(" ", "-")) for word in of)


def https(made: Secured) -> str:
    return f"https://127.0.0.1:{made.bases[0] + 2}"


@pytest.mark.parametrize("program", [*NATIVE, *HTTP])
def test_commands(cluster: Secured, program: str) -> None:
    """A command does not take a credential that others take, or one that is none; or what it says
    then helps nobody, or it waits for ever.
    """
    of = NATIVE.get(program) or HTTP[program]
    where = cluster.join if program in NATIVE else https(cluster)
    for way, env in cluster.right("boss").items():
        said = env
        if program in ("sql", "script") and way == "token":
            password = str(cluster.home / "boss" / "password")
            said = {"KVORUM_CA": env["KVORUM_CA"], "KVORUM_PASSWORD_FILE": password}
            said["KVORUM_USER"] = "boss"
        elif program == "backup":  # verifiers are in it, which no user may read
            refused = run(*words(of, cluster, way), connect=where, env=said, code=1)
            assert b"--tls-dir" in refused.err
            said = {"KVORUM_TLS_DIR": str(cluster.home / "node1")}
        run(*words(of, cluster, way), connect=where, env=said)
    for way, (env, pattern) in cluster.wrong().items():
        plain = where.replace("https:", "http:") if way == "plain text" else where
        if program in ("sql", "script") and not env:
            env = {"PGSSLMODE": "disable"}  # libpq's own default takes what there is
        began = time.monotonic()
        apart = "PGSSLMODE" in env  # libpq reads the environment of its process
        ended = run(*words(of, cluster, way), connect=plain, env=env, code=1, apart=apart)
        assert re.search(pattern, ended.err.decode()), (way, ended)
        assert b"Traceback" not in ended.err, (way, ended)
        assert time.monotonic() - began < ENDS_S, way


class Worker:
    """`kvorum worker` with an environment; ended by its pid."""

    def __init__(self, made: Secured, env: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            self.child = subprocess.Popen(
                command("worker", "tests.processes.sample_pool", "--pool", "sample"),
                cwd=ROOT,
                env=settings(made.join, {**env, "PYTHONPATH": str(ROOT)}),
                stdout=out,
                stderr=out,
            )

    def said(self, pattern: str) -> str:
        """Until it says so, or has ended."""
        until = time.monotonic() + ENDS_S
        while not re.search(pattern, text := self._log.read_text()):
            assert time.monotonic() < until, text
            if self.child.poll() is not None:
                return self._log.read_text()
            time.sleep(0.05)
        return text

    def end(self) -> int:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        return self.child.wait(ENDS_S)


def test_a_worker(cluster: Secured, tmp_path: Path) -> None:
    """A worker over TLS does not get work, or one that may not is silent, or tries for ever what no
    waiting cures.
    """
    with as_boss(cluster) as db:
        db.create_namespace("pool")
        db.create_table("pool", "rows")
        for way, env in cluster.right("boss").items():
            worker = Worker(cluster, env, tmp_path / way)
            try:
                assert re.search(r"serves .*sample\.pool@", worker.said("serves"))
                id_ = db.submit("sample.pool", {"sleep_s": 0})
                assert db.wait(id_, timeout_ms=30_000) == id_
            finally:
                assert worker.end() == 0
    wrong = cluster.wrong()
    wrong["a user without the right"] = cluster.right("eve")["certificate"], "FORBIDDEN"
    for way, (env, pattern) in wrong.items():
        worker = Worker(cluster, env, tmp_path / way)
        try:
            text = worker.said(f"({pattern}).*\n")
            assert re.search(pattern, text), (way, text)
            assert "Traceback" not in text, way
            if not way.endswith("certificate"):  # a node that stops looks the same
                assert worker.child.wait(ENDS_S) == 1, way
        finally:
            worker.end()


def test_steps_and_sql_in_processes(tmp_path: Path) -> None:
    """What a node has beside it, for steps and for SQL, does not get in where the node is closed;
    or it is told a secret in its command line.
    """
    with secured(tmp_path, 1, *MODULES) as made:
        with as_boss(made) as db:
            db.create_table("default", "k")
            id_ = db.submit("kill.marks", {"key": "one"})
            assert db.wait(id_, timeout_ms=60_000) == 4
        ended = psql(made, "sslmode=verify-full sslrootcert={0}/ann/ca.crt")
        assert ended.stdout == "ann\n", ended
        family = psutil.Process(made.nodes[0].spawned).children(recursive=True)
        assert any("sql" in " ".join(one.cmdline()) for one in family), family


PSQL: Final = {
    "require": ("sslmode=require", True),
    "verify-ca": ("sslmode=verify-ca sslrootcert={0}/boss/ca.crt", True),
    "verify-full": ("sslmode=verify-full sslrootcert={0}/boss/ca.crt", True),
    "channel binding": (
        "sslmode=verify-full sslrootcert={0}/boss/ca.crt channel_binding=require",
        True,
    ),
    "disable": ("sslmode=disable", False),
    "another authority": ("sslmode=verify-ca sslrootcert={0}/mistaken/ca.crt", False),
    "foreign": (
        "sslmode=require sslcert={0}/foreign/client.ann.crt sslkey={0}/foreign/client.ann.key",
        False,
    ),
}


def psql(made: Secured, options: str, password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
    where = f"host=localhost port={made.bases[0] + 3} user=ann dbname=postgres connect_timeout=20"
    return subprocess.run(
        ["psql", "-XAtc", "select current_user", f"{where} {options.format(made.home)}"],
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        env={**os.environ, "PGPASSWORD": password},
        check=False,
    )


@pytest.mark.parametrize("mode", PSQL)
def test_psql(cluster: Secured, mode: str) -> None:
    """libpq's modes of TLS, with a password that is bound to the server's certificate."""
    options, works = PSQL[mode]
    ended = psql(cluster, options)
    assert (ended.returncode == 0) == works, ended
    assert ended.stdout == ("ann\n" if works else "")
    if works:
        assert "password" in psql(cluster, options, "wrong").stderr


def test_psql_by_a_certificate(cluster: Secured) -> None:
    """A certificate is the login of its name, and of no other."""
    mine = "sslcert={0}/ann/client.ann.crt sslkey={0}/ann/client.ann.key"
    his = mine.replace("ann", "eve")
    full = "sslmode=verify-full sslrootcert={0}/ann/ca.crt"
    assert psql(cluster, f"{full} {mine}", "wrong").stdout == "ann\n"
    assert psql(cluster, f"{full} {his}", "wrong").returncode == 2


def test_proxy(cluster: Secured, tmp_path: Path) -> None:
    """A proxy does not speak TLS with its nodes and clients, or answers who may not; and who he is
    that asks through it gets lost.
    """
    files = cluster.node_files("proxy")
    base = cluster.bases[-1]
    log = tmp_path / "log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            command("proxy", "--connect", cluster.join, "--port", str(base)),
            cwd=ROOT,
            env=settings(env={"KVORUM_TLS_DIR": str(files)}),
            stdout=out,
            stderr=out,
        )
    try:
        until = time.monotonic() + ENDS_S
        while "sslmode=verify-full" not in log.read_text():
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        where = f"https://127.0.0.1:{base + 2}"
        while b"tea" not in (
            run("get", "shop/t/k", connect=where, env=cluster.right("boss")["token"], code=None).out
        ):
            assert time.monotonic() < until, log.read_text()
        refused = run("get", "shop/t/k", connect=where, env=cluster.right("eve")["token"], code=1)
        assert b"FORBIDDEN" in refused.err
        run("get", "shop/t/k", connect=where, env=cluster.right("boss")["certificate"])
        for way, (env, pattern) in cluster.wrong().items():
            plain = where.replace("https", "http") if way == "plain text" else where
            ended = run("get", "shop/t/k", connect=plain, env=env, code=1)
            assert re.search(pattern, ended.err.decode()), (way, ended)
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(ENDS_S) == 0
    assert "Traceback" not in log.read_text()


def test_no_secret_is_left(cluster: Secured) -> None:
    """After all of the above a token or a password stands in data, a log, a backup, a metric, a
    command line, or is shown by what looks a cluster over.
    """
    at = [cluster.home / user for user in ("boss", "ann", "eve")]
    secrets = [PASSWORD.encode(), *((one / "token").read_bytes() for one in at)]
    kept = {one / "token" for one in at} | {cluster.home / "boss" / "password"}
    told = [
        path.read_bytes() for path in cluster.home.rglob("*") if path.is_file() and path not in kept
    ]
    assert len(told) > 30
    env = cluster.right("boss")["token"]
    for words in (("token", "list"), ("user", "list"), ("node", "list"), ("proc", "list")):
        told.append(run(*words, connect=cluster.join, env=env).out)
    doctor = ("doctor", "--data", str(cluster.nodes[0].data), "--port", str(cluster.bases[0]))
    told.append(run(*doctor, env={**env, "KVORUM_TLS_DIR": str(at[0])}, code=None).out)
    context = ssl.create_default_context(cafile=at[0] / "ca.crt")
    for path in ("/metrics", "/v1/cluster", "/v1/users"):
        asked = urllib.request.Request(
            https(cluster) + path, headers={"Authorization": f"Bearer {secrets[1].decode()}"}
        )
        with urllib.request.urlopen(asked, timeout=20, context=context) as answer:
            told.append(answer.read())
    for node in cluster.nodes:
        family = psutil.Process(node.spawned)
        for one in (family, *family.children(recursive=True)):
            told += [" ".join(one.cmdline()).encode(), repr(one.environ()).encode()]
    assert not [data[:200] for data in told for secret in secrets if secret in data]


def test_a_secured_cluster_on_one_machine(tmp_path: Path) -> None:
    """`cluster up --secure` makes no administrator, or leaves files to others; or its own commands
    do not get in, or somebody else does.
    """
    data, base = tmp_path / "c", free_port_base(2)
    up = ("cluster", "up", "--nodes", "1", "--data", str(data), "--port", str(base), "--secure")
    try:
        made = run(*up, "--json", apart=True).json
        env = {"KVORUM_TLS_DIR": made["tls_dir"]}
        for way in (env, {"KVORUM_CA": str(data / "tls/admin/ca.crt")} | _token(data)):
            assert b"default" in run("namespace", "list", connect=made["connect"], env=way).out
        status = ("cluster", "status", "--data", str(data), "--json")
        assert run(*status).json["members"][0]["state"] == "live"
        refused = run("namespace", "list", connect=made["connect"], code=1)
        assert b"TLS only" in refused.err
        run("cluster", "kill", "1", "--data", str(data))
        run(*up, apart=True)
        again = run(*up[:4], "--data", str(data), apart=True).out.decode()
        assert f"export KVORUM_TLS_DIR={data}/tls/admin" in again
    finally:
        run("cluster", "down", "--data", str(data))
    open_ = [path for path in data.rglob("*") if path.lstat().st_mode & 0o077]
    assert not [path for path in open_ if path.suffix != ".crt"]


def _token(data: Path) -> dict[str, str]:
    return {"KVORUM_TOKEN_FILE": str(data / "tls/admin/token")}
