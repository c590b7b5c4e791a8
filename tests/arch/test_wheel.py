"""The product as users install it: a wheel in an empty environment, away from the clone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.arch.test_modules import PACKAGES
from tests.kit.machine import ROOT, free_port_base

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EMBEDDED = """
import kvorum
with kvorum.open("embedded") as db:
    db.create_namespace("n")
    db.create_table("n", "t")
    table = db.table("n", "t")
    table.put(b"k", b"v")
    assert table.get(b"k").value == b"v"
"""


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment() | env,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ".", cwd=ROOT)
    (source,) = out.glob("kvorum-*.tar.gz")
    assert source.stat().st_size < 8 << 20, "the source archive has what does not belong there"
    (found,) = out.glob("kvorum-*.whl")
    return found


def test_all_files_of_the_packages_are_in_the_wheel(wheel: Path) -> None:
    """A file of data that the clone has is missing where the product is installed."""
    with ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    tracked = run("git", "ls-files", *PACKAGES, cwd=ROOT).split()
    assert not [path for path in tracked if path not in packed and not path.endswith(".md")]


@pytest.fixture
def installed(wheel: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The folder of an environment's commands, with one extra."""
    pins = (ROOT / "requirements" / "dev.lock").read_text()
    pins = "\n".join(re.findall(r"^[\w.\[\]-]+==[^\\\n]+", pins, re.MULTILINE))
    (tmp_path / "pins.txt").write_text(pins + "\n")
    run(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    bin_ = tmp_path / "env" / "bin"
    extra = f"[{request.param}]" if request.param else ""
    what = f"kvorum{extra} @ {wheel.as_uri()}"
    run(bin_ / "python", "-m", "pip", "install", "-q", "-c", "pins.txt", what, cwd=tmp_path)
    return bin_


@pytest.fixture
def node(installed: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What `kvorum dev` of that environment says of itself: native, http, sql, ..."""
    command = [installed / "kvorum", "dev", "--data", "data", "--port", str(free_port_base())]
    with (tmp_path / "node.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout
    try:
        said: dict[str, str] = {}
        while "sql" not in said:
            line = process.stdout.readline()
            assert line, (tmp_path / "node.log").read_text()[-4000:]
            name, _, value = line.strip().partition(" ")
            said[name] = value.strip()
        yield said
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def commands(bin_: Path, node: dict[str, str], cwd: Path) -> Callable[..., str]:
    return partial(run, bin_ / "kvorum", cwd=cwd, KVORUM_CONNECT=node["native"])


@pytest.mark.parametrize("installed", [""], indirect=True)
def test_a_node_needs_no_extra(installed: Path, node: dict[str, str], tmp_path: Path) -> None:
    """`pip install kvorum` gives no node, or one that dies of what only SQL needs."""
    kvorum = commands(installed, node, tmp_path)
    kvorum("put", "default/greetings/hello", "world", "--create")
    assert kvorum("get", "default/greetings/hello") == "world\n"
    assert node["sql"] == "not installed: pip install 'kvorum[sql]'"
    for words in (["sql", "-c", "select 1"], ["export", "default/greetings", "out"]):
        with pytest.raises(AssertionError, match="not installed here: pip install 'kvorum") as told:
            kvorum(*words)
        assert "Traceback" not in str(told.value)
    run(installed / "python", "-c", EMBEDDED, cwd=tmp_path)


@pytest.mark.parametrize("installed", ["sql"], indirect=True)
def test_sql_comes_with_its_extra(installed: Path, node: dict[str, str], tmp_path: Path) -> None:
    """A package that SQL needs is missing in its extra."""
    kvorum = commands(installed, node, tmp_path)
    kvorum("sql", "-c", "CREATE TABLE t (id int PRIMARY KEY, x text)")
    kvorum("sql", "-c", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    assert "aggregated" in kvorum("sql", "-c", "SELECT x || 'ggregated' FROM t GROUP BY x")
    assert "t" in kvorum("sql", "-c", "SELECT relname FROM pg_class WHERE relname = 't'")
    kvorum("export", "postgres", "out.sql", "--format", "sql")
    assert "CREATE TABLE" in (tmp_path / "out.sql").read_text()


@pytest.mark.parametrize("installed", ["files"], indirect=True)
def test_files_come_with_their_extra(installed: Path, node: dict[str, str], tmp_path: Path) -> None:
    """A package that Parquet or a far place needs is missing in its extra."""
    kvorum = commands(installed, node, tmp_path)
    kvorum("put", "default/greetings/hello", "world", "--create")
    for place in ("out", f"local://{tmp_path}/far"):
        kvorum("export", "default/greetings", place)
    kvorum("put", "default/again/first", "one", "--create")
    kvorum("import", "default/again", "out")
    assert kvorum("get", "default/again/hello") == "world\n"


@pytest.mark.spark
@pytest.mark.parametrize("installed", ["spark"], indirect=True)
def test_spark_comes_with_its_extra(installed: Path, node: dict[str, str], tmp_path: Path) -> None:
    """A package that the connector needs is missing in its extra."""
    script = (ROOT / "demo" / "quickstart" / "spark_quickstart.py").read_text()
    (tmp_path / "quickstart.py").write_text(script)
    endpoint = node["native"].removeprefix("kvorum://")
    run(installed / "python", "quickstart.py", cwd=tmp_path, KVORUM=endpoint)
