"""The life of a cluster on Kubernetes, with real processes: the image that `make image` builds runs
in pods of tests/deploy/pods.py as the chart's StatefulSet says, while clients write.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from scripts import chart, image
from tests.deploy.oci import checked, unpacked
from tests.deploy.pods import READY_S, Pods, possible
from tests.deploy.statefulset import NAMESPACE, StatefulSet
from tests.kit.commands import run, settings
from tests.kit.machine import ROOT
from tests.kit.waiting import poll

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1_800)]

PARTS: Final = ("d", "j", "p", "v")  # where the table of the clients is cut
MOVED_S: Final = 300.0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image.build(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def pods(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    if why := possible():
        pytest.skip(f"no network namespaces here: {why}")
    home = tmp_path_factory.mktemp("pods")
    config = checked(built)["config"]
    root = unpacked(built, home / "image")
    with Pods(home, root, config, chart.rendered(namespace=NAMESPACE)) as made:
        yield made


def certificates(home: Path, *renew: str) -> Path:
    """As the guide makes them; where they are."""
    at = home / "authority"
    if not renew:
        run("cert", "ca", "--dir", str(at))
    names = (
        "localhost",
        "127.0.0.1",
        f"*.kvorum.{NAMESPACE}.svc",
        f"kvorum-client.{NAMESPACE}.svc",
    )
    hosts = [word for name in names for word in ("--host", name)]
    run("cert", "node", "--dir", str(at), *hosts, *renew)
    return at


class Client:
    """An administrator elsewhere on the pods' network."""

    def __init__(self, pods: Pods, home: Path) -> None:
        self._pods, self._home, self._file = pods, home, home / "acknowledged"
        self.env = {"KVORUM_CA": str(home / "authority" / "ca.crt")}

    def token(self, text: str) -> None:
        """From now on it logs in."""
        file = self._home / "token"
        file.touch(mode=0o600)
        file.write_text(text)
        self.env["KVORUM_TOKEN_FILE"] = str(file)

    def __call__(self, *words: str, code: int = 0) -> Any:
        return self._pods.kvorum(*words, env=self.env, code=code)

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Those that have not left, by the name of their pod."""
        rows = [row for row in self("node", "list")["items"] if row["state"] != "gone"]
        return {row["address"].partition(".")[0]: row for row in rows}

    def placed(self) -> list[set[int]]:
        """The nodes of each part of the table."""
        rows = self("partition", "list")["items"]
        return [set(row["replicas"]) for row in rows if len(row["replicas"]) == 3]

    def writing(self) -> Any:
        words = ("-m", "tests.deploy.load", self._pods.url(), str(self._file))
        return self._pods.running(*words, env=self.env)

    def written(self) -> int:
        return len(self._file.read_text().splitlines()) if self._file.exists() else 0

    def goes_on(self) -> None:
        """Until some more writes were acknowledged."""
        before = self.written()
        poll(lambda: self.written() > before + 20)

    def nothing_lost(self) -> None:
        words = ("-m", "tests.deploy.load", self._pods.url(), str(self._file), "--check")
        checking = self._pods.clients(sys.executable, *words)
        env = settings("", self.env)
        done = subprocess.run(checking, cwd=ROOT, env=env, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) > 0


def test_r4_founded_grown_upgraded_shrunk_and_healed_under_load(pods: Pods) -> None:
    """A cluster that only stands on paper: pods that do not find each other or their new address,
    keep their number without their data, lose a write when they are rolled, or take nothing over.
    """
    home = pods.home
    pods.secret(certificates(home))
    pods.create(0, 1, 2)
    pods.wait(0, 1, 2)
    assert pods[0].status() == {"Uid": "7600", "CapEff": "0000000000000000", "NoNewPrivs": "1"}
    client = Client(pods, home)
    assert client("node", "list", code=1)["error"]["code"] == "NOT_INITIALIZED"
    client.token(json.loads(pods[0].execute("kvorum", "init", "--json"))["token"])
    assert {name: row["id"] for name, row in client.nodes().items()} == {
        f"kvorum-{i}": i + 1 for i in range(3)
    }
    cuts = [word for part in PARTS for word in ("--split", part)]
    client("namespace", "create", "shop")
    client("table", "create", "shop/orders", *cuts, "--replicas", "3")
    with client.writing():
        client.goes_on()
        fourth = _grown(pods, client)
        _upgraded(pods, client)
        _renewed(pods, client)
        _shrunk(pods, client, fourth)
        again = _grown(pods, client)
        assert again > fourth, "a new claim: another node at an old address"
        _replaced(pods, client, again)
        _founder_replaced(pods, client)
    client.nothing_lost()


def _grown(pods: Pods, client: Client) -> int:
    """`helm upgrade --set replicas=4`: data move to the new node. Its number."""
    pods.create(3)
    pods.wait(3)
    number: int = client.nodes()["kvorum-3"]["id"]
    poll(lambda: any(number in nodes for nodes in client.placed()), MOVED_S)
    client.goes_on()
    return number


def _upgraded(pods: Pods, client: Client) -> None:
    """`--set image=…,partition=2`, and on; and a container that is killed, and starts again."""
    pods.set = _with("partition=2", "replicas=4")
    assert [client.goes_on() or ordinal for ordinal in pods.roll()] == [3, 2]
    pods.set = _with("replicas=4")
    assert [client.goes_on() or ordinal for ordinal in pods.roll()] == [3, 2, 1, 0]
    pods[1].kill()
    pods[1].start()
    pods.wait(1)
    client.goes_on()


def _renewed(pods: Pods, client: Client) -> None:
    """The secret is replaced: no pod is restarted."""
    before = pods[0].certificate()
    pods.secret(certificates(pods.home, "--renew"))
    assert pods[0].certificate() != before
    client.goes_on()


def _shrunk(pods: Pods, client: Client, fourth: int) -> None:
    """Decommissioned, `--set replicas=3`, `kubectl delete pvc`."""
    client("node", "decommission", str(fourth))
    poll(lambda: not pods[3].probed("readiness"), READY_S)  # nobody is sent there
    assert fourth not in set().union(*client.placed())
    assert pods.delete(3) == 0
    pods.delete_claim(3)
    client.goes_on()


def _lost(pods: Pods, ordinal: int) -> str:
    """Its machine burns down, disk and all; what its pod says elsewhere, with an empty claim."""
    pods[ordinal].kill()
    pods.delete(ordinal)
    pods.delete_claim(ordinal)
    pods.create(ordinal)
    poll(pods[ordinal].ended, READY_S)
    return pods[ordinal].tail()


def _replaced(pods: Pods, client: Client, number: int) -> None:
    """A later node's disk is lost: decommissioned, it joins as another one by itself."""
    assert "ADDRESS_TAKEN" in _lost(pods, 3)
    client("node", "decommission", str(number))
    pods[3].start()
    pods.wait(3)
    assert client.nodes()["kvorum-3"]["id"] > number
    client.goes_on()


def _founder_replaced(pods: Pods, client: Client) -> None:
    """A founder's: it must not come back under its number either, and is a founder no more."""
    assert "DATA_GONE" in _lost(pods, 1)
    client.goes_on()
    client("node", "decommission", "2")
    pods.delete_claim(1)  # on which it has begun as node 2 again
    pods.set = _with("founders={0,2}", "replicas=4")
    assert [client.goes_on() or ordinal for ordinal in pods.roll()] == [3, 2, 1, 0]
    assert client.nodes()["kvorum-1"]["id"] > 4


def _with(*values: str) -> StatefulSet:
    given = [word for value in values for word in ("--set", value)]
    return StatefulSet(chart.rendered(*given, namespace=NAMESPACE))
