"""What operators of procedures look at by SQL: the kvorum relations, with the rights of HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

import kvorum
from kv.base.config import HTTP_OFFSET
from tests.kit.machine import free_port_base

TYPE = "sample.transfer"
LISTS = {  # HTTP's list of the same
    "queues": ("name", "/v1/queues", "name"),
    "schedules": ("name", "/v1/schedules", "name"),
    "pauses": ("name", "/v1/pauses", "name"),
    "workers": ("worker", "/v1/workers", "worker"),
    "retention": ("type", "/v1/retention", "type"),
    "versions": ("name", "/v1/versions", "name"),
}
GRANTS: dict[str, dict[str, Any] | None] = {
    "watcher": {"actions": ["read"], "kind": "cluster"},
    "operator": {"actions": ["operate"], "kind": "cluster"},
    "reader": {"actions": ["read"], "kind": "procedure type", "name": TYPE},
    "submitter": {"actions": ["submit"], "kind": "procedure type", "name": TYPE},
    "nobody": None,
}


@dataclass
class Scene:
    url: str
    tokens: dict[str, str] = field(default_factory=dict)

    def ask(self, who: str, statement: str) -> list[list[str | None]]:
        with self._client(who) as http:
            told = http.post("/v1/sql", json={"statement": statement})
        assert told.status_code == 200, told.text
        return list(told.json()["rows"])

    def list(self, who: str, path: str) -> httpx.Response:
        with self._client(who) as http:
            return http.get(path)

    def _client(self, who: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens[who]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base, modules = free_port_base(), ["tests.kvorum.surfaces.sample_procedures"]
    data = tmp_path_factory.mktemp("n") / "data"
    with kvorum.open(data, port=base, procedure_modules=modules) as db:
        db.set_limit("mail", max_concurrent=3, rate_per_s=5, weights={"ada": 2})
        db.set_schedule("daily", ["0 3 * * *", "0 4 * * *"], TYPE, {"n": 1}, overlap="skip")
        db.set_schedule("often", None, TYPE, every_ms=3_600_000)
        db.pause("schedule", "often", "too often")
        db.pause("type", TYPE, "a fault")
        db.set_retention(type=TYPE, most=10)
        made = Scene(f"http://127.0.0.1:{base + HTTP_OFFSET}")
        made.tokens["root"] = db.access("init")["token"]
        for name, grant in GRANTS.items():
            db.access("user.create", {"name": name})
            if grant is not None:
                db.access("grant.give", {"role": name, **grant})
            made.tokens[name] = db.access("token.create", {"user": name, "name": "t"})["token"]
        yield made


def test_u26_relations_for_operating(scene: Scene) -> None:
    """A column had nothing in it, or something else than HTTP says."""

    def one(statement: str) -> list[str | None]:
        (row,) = scene.ask("root", statement)
        return row

    assert one(
        "SELECT kind, running, waiting, max_concurrent, rate_per_s, weights->>'ada' "
        "FROM kvorum.queues WHERE name = 'mail'"
    ) == ["queue", "0", "0", "3", "5", "2"]
    assert one(
        "SELECT procedure, cron[2], timezone, next > now(), last IS NULL, overlap, paused, "
        "args->>'n' FROM kvorum.schedules WHERE name = 'daily'"
    ) == [TYPE, "0 4 * * *", "UTC", "t", "t", "skip", "f", "1"]
    assert one("SELECT every_ms, paused FROM kvorum.schedules WHERE name = 'often'") == [
        *("3600000", "t")
    ]
    assert scene.ask("root", "SELECT kind, name, note FROM kvorum.pauses ORDER BY kind") == [
        ["schedule", "often", "too often"],
        ["type", TYPE, "a fault"],
    ]
    assert one("SELECT type, state, keep_ms, most FROM kvorum.retention") == [
        TYPE,
        None,
        None,
        "10",
    ]
    assert one(f"SELECT version, live, nodes FROM kvorum.versions WHERE name = '{TYPE}'") == [
        *("1", "0", "t")
    ]
    assert scene.ask("root", "SELECT * FROM kvorum.workers") == []


@pytest.mark.few(12)
@pytest.mark.parametrize("who", ["root", *GRANTS])
@pytest.mark.parametrize("name", LISTS)
def test_u26_who_may_see_them_is_who_may_by_http(scene: Scene, name: str, who: str) -> None:
    """SQL told what HTTP refuses, or hid what it shows."""
    column, path, field = LISTS[name]
    told = scene.list(who, path)
    seen = told.json()["items"] if told.status_code == 200 else []
    rows = [row[0] for row in scene.ask(who, f"SELECT DISTINCT {column} FROM kvorum.{name}")]
    assert sorted(map(str, rows)) == sorted({str(one[field]) for one in seen})
