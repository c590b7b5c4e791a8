"""`kvorum cluster …`, `kvorum node …` and `kvorum proxy`, as typed by a user."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvorum.cli.cluster_commands import links
from kvorum.programs.localcluster import LocalCluster
from tests.kit.commands import command, run, settings
from tests.kit.machine import ROOT, free_port_base

pytestmark = pytest.mark.cluster


def done(*words: str, connect: str = "") -> Any:
    """Its JSON; the command must succeed."""
    ended = run(*words, "--json", connect=connect, apart=True)
    return ended.json if ended.out else None


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, int]]:
    """A cluster of three: its directory, its addresses, its base port."""
    directory = tmp_path_factory.mktemp("cli") / "cluster"
    base = free_port_base(5)
    where = ("--data", str(directory))
    try:
        up = done("cluster", "up", "--nodes", "3", "--port", str(base), *where)
        assert [node["address"] for node in up["nodes"]] == [
            f"127.0.0.1:{base + 10 * i}" for i in (1, 2, 3)
        ]
        yield directory, up["connect"], base
    finally:
        if LocalCluster.exists(directory):
            LocalCluster.open(directory).down(within_s=10)


def status(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = done("cluster", "status", "--data", str(directory))
    return found


@pytest.mark.slow
def test_f3_a_cluster_is_started_hurt_and_healed_by_commands(
    running: tuple[Path, str, int],
) -> None:
    """Who tries a cluster out wants to see it survive, with commands that fit on one line each."""
    directory, connect, _ = running
    where = ("--data", str(directory))
    done("put", "default/t/a", "1", "--create", connect=connect)
    done("cluster", "kill", "1", *where)
    told = status(directory)
    assert [node["state"] for node in told["nodes"]] == ["dead", "running", "running"]
    done("put", "default/t/a", "2", connect=connect)
    assert all(row["leader"] in (2, 3) for row in status(directory)["partitions"])
    done("cluster", "start", "1", *where)
    done("cluster", "pause", "2", *where)
    assert status(directory)["nodes"][1]["state"] == "paused"
    assert run("get", "default/t/a", connect=connect, apart=True).out.strip() == b"2"
    done("cluster", "cut", "1", "3", *where)
    both = {"hears": False, "heard": False}
    cuts = [node["cuts"] for node in status(directory)["nodes"]]
    assert cuts == [[{"node": 3, **both}], None, [{"node": 1, **both}]], "who is paused cannot say"
    done("cluster", "heal", *where)
    assert done("cluster", "cut", "1", "3", "--one-way", *where)["done"] == "cut one way"
    three = LocalCluster.open(directory).node(3)
    assert links(three, None) == [[1, "in"]]
    assert links(LocalCluster.open(directory).node(1), None) == []
    assert b"does not hear 1" in run("cluster", "status", *where, apart=True).out
    again = run("cluster", "cut", "1", "3", "--one-way", *where, apart=True).out.decode()
    there, back = again.splitlines()
    assert there == "node 1 → node 3: cut, 3 does not hear 1"
    assert back == "node 3 → node 1: open"
    done("cluster", "heal", *where)
    assert links(three, None) == []
    done("put", "default/t/a", "3", connect=connect)
    told = status(directory)
    assert [node["state"] for node in told["nodes"]] == ["running"] * 3
    assert {row["id"] for row in told["members"]} == {1, 2, 3}
    text = run("cluster", "status", *where, apart=True).out.decode()
    assert "PARTITION  LEADER  TERM  VOTERS" in text
    assert len(done("node", "list", connect=connect)["items"]) == 3
    assert len(done("partition", "list", connect=connect)["items"]) == 2


@pytest.mark.slow
def test_f8_a_table_says_how_many_copies_it_wants(running: tuple[Path, str, int]) -> None:
    """Without the option, more machines would only mean more copies."""
    _, connect, _ = running
    words = ("table", "create", "default/few", "--split", "m", "--replicas", "1")
    made = done(*words, connect=connect)
    assert made["name"] == "few"
    done("put", "default/few/a", "1", connect=connect)
    rows = done("partition", "list", connect=connect)["items"]
    mine = [row["replicas"] for row in rows if len(row["replicas"]) == 1]
    assert len(mine) == 2
    assert mine[0] != mine[1]
    wrong = run(
        "table", "create", "default/none", "--replicas", "0", connect=connect, code=1, apart=True
    )
    assert "replicas must be 1 to" in wrong.err.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("kill", "9"), "there is no node 9"),
        (("cut", "1", "1"), "two different nodes"),
        (("up", "--nodes", "5"), "has 3 nodes, not 5"),
    ],
)
def test_cluster_commands_refuse_what_makes_no_sense(
    running: tuple[Path, str, int], words: tuple[str, ...], says: str
) -> None:
    """A typing error must not take a cluster down, nor end in a traceback."""
    told = run("cluster", *words, "--data", str(running[0]), code=1, apart=True)
    assert says in told.err.decode()
    assert len(told.err.decode().splitlines()) == 1


@pytest.mark.slow
def test_cluster_commands_say_when_there_is_no_cluster(tmp_path: Path) -> None:
    """The usual first mistake is the wrong directory."""
    told = run("cluster", "status", "--data", str(tmp_path), code=1, apart=True)
    assert "kvorum cluster up --data" in told.err.decode()
    (tmp_path / "letters").write_text("precious")
    told = run("cluster", "up", "--data", str(tmp_path), code=1, apart=True)
    assert "is not empty" in told.err.decode()
    assert (tmp_path / "letters").read_text() == "precious"


@pytest.mark.slow
def test_a1_a_proxy_serves_a_cluster_and_keeps_nothing(running: tuple[Path, str, int]) -> None:
    """Clients that know one address must not depend on one node, nor on one proxy."""
    directory, connect, base = running
    proxies = []
    try:
        for port in (base, base + 40):
            proxies.append(
                subprocess.Popen(
                    command("proxy", "--connect", connect, "--port", str(port)),
                    cwd=ROOT,
                    env=settings(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        one, other = (f"http://127.0.0.1:{port + 2}" for port in (base, base + 40))
        for url in (one, other):
            _until_ready(url)
        done("put", "default/p/k", "v1", "--create", connect=connect)
        assert _http("GET", f"{one}/v1/kv/default/p/k") == b"v1"
        _http("PUT", f"{one}/v1/kv/default/p/k", b"v2")
        proxies[0].kill()
        proxies[0].wait()
        assert _http("GET", f"{other}/v1/kv/default/p/k") == b"v2"
        done("cluster", "kill", "2", "--data", str(directory))
        _http("PUT", f"{other}/v1/kv/default/p/k", b"v3")
        assert _http("GET", f"{other}/v1/kv/default/p/k") == b"v3"
        done("cluster", "start", "2", "--data", str(directory))
    finally:
        for proxy in proxies:
            proxy.terminate()
            proxy.wait(15)


def _until_ready(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            _http("GET", f"{url}/readyz")
            return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < deadline, "the proxy is not ready"
            time.sleep(0.1)


def _http(method: str, url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(
        urllib.request.Request(url, body, method=method), timeout=20
    ) as answer:
        read: bytes = answer.read()
        return read
