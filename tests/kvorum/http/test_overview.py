"""GET /v1/overview, /v1/hour and /v1/census, and who is told what of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

import kvorum
from kvorum.storage import hour
from tests.kit.machine import free_port_base


@dataclass
class Scene:
    http: httpx.Client
    db: kvorum.Database
    admin: str = ""

    def get(self, path: str, token: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {token or self.admin}"}
        return self.http.get(path, headers=headers)

    def post(self, path: str, body: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.admin}"}
        return self.http.post(path, headers=headers, json=body)

    def user(self, name: str, *grants: dict[str, object]) -> str:
        assert self.post("/v1/users", {"name": name}).is_success
        for grant in grants:
            made = self.post("/v1/grants", {"role": name, **grant})
            assert made.is_success, made.text
        return str(self.post("/v1/tokens", {"user": name, "name": "t"}).json()["token"])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = free_port_base()
    patch = pytest.MonkeyPatch()
    patch.setattr(hour, "SAMPLE_S", 0.05)
    with (
        patch.context(),
        kvorum.open(
            tmp_path_factory.mktemp("overview") / "data",
            port=base,
            procedure_modules=["tests.procedures.console_procedures"],
        ) as db,
        httpx.Client(base_url=f"http://127.0.0.1:{base + 2}", timeout=20) as http,
    ):
        db.create_table("default", "orders", split_keys=["m"])
        made = Scene(http, db)
        made.admin = http.post("/v1/init").json()["token"]
        yield made
        patch.undo()


def test_it_tells_how_the_cluster_is(scene: Scene) -> None:
    """The first page would be empty, or wrong, about a cluster that is well."""
    told = scene.get("/v1/overview").json()
    assert [(one["id"], one["state"]) for one in told["nodes"]] == [(1, "live")]
    partitions = told["partitions"]
    assert partitions["all"] == partitions["led"] == partitions["whole"] > 2
    assert [one["kind"] for one in told["attention"]] == ["backup"]
    assert told["procedures"]["kinds"]["stuck"] == 0


def test_the_hour_has_what_was_just_done(scene: Scene) -> None:
    """A picture of the load without the load."""
    for n in range(50):
        scene.db.table("default", "orders").put(f"k{n}", b"v" * 100)
    samples: list[list[Any]] = []
    while not any(one[2] for one in samples):
        ((first),) = scene.get("/v1/hour").json()["items"]
        samples = first["samples"]
    assert first["node"] == 1
    assert any(one[4] for one in samples), "syncs"
    last = samples[-1][0]
    (newer,) = scene.get(f"/v1/hour?after_ms={last}").json()["items"]
    assert all(one[0] > last for one in newer["samples"])


def test_a_census_has_only_types_that_one_may_see(scene: Scene) -> None:
    """Names of others' procedures, and how many they have, are nobody's business."""
    ids = [scene.db.submit("console.child", None) for _ in range(3)]
    other = scene.db.submit("console.import", {"lock": "census"})
    sees = {"actions": ["read"], "kind": "procedure type", "name": "console.import"}
    mine = scene.user("importer", sees)
    none = scene.user("stranger")
    kinds: dict[str, int] = {}
    while kinds.get("waiting", 0) < 3 or not kinds.get("children"):
        told = scene.get("/v1/census").json()
        kinds = told["kinds"]
    assert {one["name"] for one in told["types"]} >= {"console.child", "console.import"}
    told = scene.get("/v1/census", mine).json()
    assert [one["name"] for one in told["types"]] == ["console.import"]
    assert {one["name"] for one in told["first"]} <= {"console.import"}
    assert told["live"] == sum(told["kinds"].values()) == told["types"][0]["live"]
    told = scene.get("/v1/census", none).json()
    assert (told["live"], told["types"], told["first"]) == (0, [], [])
    assert not any(told["kinds"].values())
    for id in (*ids, other):
        scene.db.abort_procedure(id, "seen")


def test_who_may_only_look_is_not_told_of_locks_and_machines(scene: Scene) -> None:
    """`read` on the cluster is what a dashboard has: not whose locks there are."""
    reads = scene.user("viewer", {"actions": ["read"], "kind": "cluster"})
    told = scene.get("/v1/overview", reads).json()
    assert told["nodes"][0]["disk_free"] is None
    assert scene.get("/v1/overview", scene.user("nobody")).status_code == 403


def test_a_search_takes_conditions_and_refuses_what_it_does_not_know(scene: Scene) -> None:
    """What a handler takes by another function was refused as unknown, all of it."""
    failed = str(scene.db.submit("console.broken", "x"))
    found: list[str] = []
    while failed not in found:
        answer = scene.get("/v1/search?state=FAILED&state=SUCCESS&type=console.broken&limit=5")
        assert answer.status_code == 200, answer.text
        found = [one["id"] for one in answer.json()["items"]]
    assert scene.get("/v1/search?owner=nobody").json()["items"] == []
    assert scene.get("/v1/search/count?state=FAILED").json()["count"] >= 1
    for wrong in ("nonsense=1", "owner=a&owner=b", "state=%ff", "state=FAILED&state=%ff"):
        assert scene.get(f"/v1/search?{wrong}").status_code == 400, wrong
