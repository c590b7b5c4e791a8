"""What a worker that speaks HTTP may, of pools, tables, types and other users' tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import kvorum
from kv.base.config import HTTP_OFFSET
from kvorum.sdk.sync import Database
from tests.kit.machine import free_port_base


class Scene:
    def __init__(self, base: int, db: Database) -> None:
        self.db, self.url = db, f"http://127.0.0.1:{base + HTTP_OFFSET}/v1/pools"

    def user(self, name: str, *grants: dict[str, Any]) -> str:
        self.db.access("user.create", {"name": name})
        for said in grants:
            self.db.access("grant.give", {"role": name, **said})
        return str(self.db.access("token.create", {"user": name, "name": "t"})["token"])

    def told(self, token: str, path: str, **body: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return httpx.post(
            f"{self.url}/{path}", json={"worker": "w", **body}, headers=headers, timeout=30
        )


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("w") / "data", port=base) as db:
        db.access("init")
        db.create_namespace("shop")
        db.create_table("shop", "orders")
        db.create_table("shop", "secrets")
        yield Scene(base, db)


@pytest.mark.slow
def test_a_worker_over_http_has_the_rights_of_its_user(scene: Scene) -> None:
    """Who may run a pool wrote tables that he may not, started what he may not, ran the types of
    another pool, or committed the task of another user.
    """
    run = {"actions": ["run"], "kind": "pool", "name": "mine"}
    write = {"actions": ["write"], "kind": "table", "namespace": "shop", "name": "orders"}
    mine, other = scene.user("mine", run, write), scene.user("other", run)
    stranger = scene.user("stranger")
    types = [{"name": "rights.task", "steps": [{"name": "go"}]}]
    assert scene.told(stranger, "mine/lease", types=types).status_code == 403
    assert scene.told("nonsense", "mine/lease", types=types).status_code == 401
    assert scene.told(mine, "yours/lease", types=types).status_code == 403
    assert scene.told(mine, "mine/lease", types=types, take=0).status_code == 200
    id = scene.db.submit("rights.task", {"a": 1})
    (task,) = scene.told(mine, "mine/lease", take=1, wait_ms=3_000).json()["tasks"]
    path, done = f"mine/tasks/{task['task']}", {"do": "done", "result": 7}
    lost = scene.told(other, f"{path}/commit", outcome=done)
    assert (lost.status_code, lost.json()["error"]["code"]) == (409, "TASK_LOST")
    put = {"op": "put", "ns": "shop", "table": "secrets", "key": "k", "value": "v"}
    read = {"ns": "shop", "table": "orders", "key": "k"}
    child = {"do": "children", "children": [{"name": "rights.other"}], "then": "go"}
    for what, body in (
        ("commit", {"outcome": done, "writes": [put]}),
        ("commit", {"outcome": child}),
        ("read", read),
    ):
        assert scene.told(mine, f"{path}/{what}", **body).status_code == 403, body
    assert scene.db.table("shop", "secrets").get("k") is None
    good = scene.told(mine, f"{path}/commit", outcome=done, writes=[{**put, "table": "orders"}])
    assert good.json() == {"state": "SUCCESS", "step": "go"}
    assert scene.db.wait(id) == 7
    theirs = scene.user("theirs", {"actions": ["run"], "kind": "pool", "name": "theirs"})
    taken = scene.told(theirs, "theirs/lease", types=types, take=0)
    assert taken.status_code == 403, "the type is one of another pool"
    scene.told(mine, "mine/leave")
