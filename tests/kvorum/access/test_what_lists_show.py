"""Lists have what their reader may see, and refuse nobody who has logged in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

import kvorum
from kv.base import limits
from kv.base.config import HTTP_OFFSET
from kv.base.errors import Forbidden
from kv.base.keys import table_prefix
from kv.base.limits import PROCEDURE_LIST_DEFAULT
from kvorum.native.native_admin import NativeAdmin
from kvorum.sdk.sync import Database
from tests.kit.machine import free_port_base

TYPE = "sample.transfer"
GRANTS = {"submitter": "submit", "reader": "read", "operator": "operate", "nobody": ""}


@dataclass
class Scene:
    db: Database
    urls: dict[str, str]
    shown: list[int]
    hidden: int
    tokens: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base, modules = free_port_base(), ["tests.kvorum.surfaces.sample_procedures"]
    data = tmp_path_factory.mktemp("n") / "data"
    with kvorum.open(data, port=base, procedure_modules=modules) as db:
        db.create_namespace("shop")
        for name in ("orders", "secrets"):
            db.create_table("shop", name)
        shown = [int(db.submit(TYPE, {})) for _ in range(2)]
        shown.append(int(db.submit(TYPE, {}, delay_ms=600_000)))
        db.bypass_procedure(shown[-1], "it hangs")
        for _ in range(3):
            db.bypass_procedure(int(db.submit("sample.wait", {}, delay_ms=600_000)), "so, too")
        said = {"exclusive": True, "ttl_ms": 600_000}
        for n in range(PROCEDURE_LIST_DEFAULT):
            hidden = int(db.submit("kvorum.lock", {"resource": f"till {n}", **said}))
        root = db.access("init")["token"]
        http = f"http://127.0.0.1:{base + HTTP_OFFSET}"
        made = Scene(db, {"native": f"127.0.0.1:{base}", "http": http}, shown, hidden)
        made.tokens["root"] = root
        for name, action in GRANTS.items():
            db.access("user.create", {"name": name})
            if action:
                grant = {"role": name, "actions": [action], "kind": "procedure type", "name": TYPE}
                db.access("grant.give", grant)
            token = db.access("token.create", {"user": name, "name": "t"})
            made.tokens[name] = token["token"]
        table = {"kind": "table", "namespace": "shop", "name": "orders", "actions": ["read"]}
        db.access("grant.give", {"role": "reader", **table})
        yield made


@pytest.mark.parametrize("surface", ["native", "http"])
@pytest.mark.parametrize("who", GRANTS)
def test_procedures_of_ones_own_types(scene: Scene, who: str, surface: str) -> None:
    """Who may begin procedures of a type saw none of them; a page that others fill hides them."""
    shown = sorted(scene.shown) if GRANTS[who] else []
    with kvorum.connect(scene.urls[surface], token=scene.tokens[who]) as db:
        assert sorted(int(one.id) for one in db.procedures()) == shown
        assert sorted(int(one.id) for one in db.procedures(name=TYPE)) == shown
        assert db.procedures(name="kvorum.lock") == []
        for id in shown:
            assert db.procedure(id).name == TYPE
            assert db.explain_procedure(id)["name"] == TYPE
        with pytest.raises(Forbidden):
            db.procedure(scene.hidden)
    with kvorum.connect(scene.urls[surface], token=scene.tokens["root"]) as db:
        assert len(db.procedures()) == PROCEDURE_LIST_DEFAULT


@pytest.mark.parametrize("surface", ["native", "http"])
def test_one_answer_has_looked_at_so_many_at_most(
    scene: Scene, surface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may see few or none had the node read all that is kept, with one request."""
    monkeypatch.setattr(limits, "PROCEDURE_LOOKED_MAX", PROCEDURE_LIST_DEFAULT)
    monkeypatch.setattr(limits, "PROCEDURE_PASSED_MAX", PROCEDURE_LIST_DEFAULT)
    looked: list[int] = []
    real = NativeAdmin.procedure_page

    async def procedure_page(self: NativeAdmin, **said: Any) -> Any:
        looked.append(1)
        return await real(self, **said)

    monkeypatch.setattr(NativeAdmin, "procedure_page", procedure_page)

    def told(who: str, query: str = "") -> Any:
        looked.clear()
        headers = {"authorization": f"Bearer {scene.tokens[who]}"}
        url = f"{scene.urls['http']}/v1/procedures{query}"
        return httpx.get(url, headers=headers).json()

    for query in ("", "?state=FAILED"):
        answer = told("submitter", query)
        assert answer["items"] == []
        assert int(answer["before"]) <= scene.hidden
        assert len(looked) == 1
        assert told("nobody", query) == {"items": []}
        assert looked == [], "there is nothing that he may see"
    for who, seen in (("submitter", sorted(scene.shown)), ("nobody", [])):
        with kvorum.connect(scene.urls[surface], token=scene.tokens[who]) as db:
            assert sorted(int(one.id) for one in db.procedures()) == seen


@pytest.mark.parametrize("surface", ["native", "http"])
@pytest.mark.parametrize("who", [*GRANTS, "root"])
def test_what_was_done_to_procedures_of_ones_own_types(
    scene: Scene, who: str, surface: str
) -> None:
    """Who may begin a type could not see who had ended one of his, or saw what is none of his."""
    seen = 4 if who == "root" else bool(GRANTS[who])
    with kvorum.connect(scene.urls[surface], token=scene.tokens[who]) as db:
        assert len(db.audit()) == seen
        assert len(db.audit(limit=1)) == min(seen, 1)
        found = db.audit(scene.shown[-1])
        assert [one["reason"] for one in found] == ["it hangs"] * bool(seen)
        assert all(one["name"] == TYPE for one in found)
        if seen:
            assert len(db.audit(before=found[0]["number"])) == 0


@pytest.mark.parametrize("surface", ["native", "http"])
def test_one_answer_of_the_audit_has_looked_at_so_many_at_most(
    scene: Scene, surface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may see few actions had the node read the whole audit, with one request."""
    monkeypatch.setattr(limits, "PROCEDURE_LOOKED_MAX", 2)
    monkeypatch.setattr(limits, "PROCEDURE_PASSED_MAX", 2)
    headers = {"authorization": f"Bearer {scene.tokens['submitter']}"}
    asked: list[dict[str, Any]] = []
    before: int | None = 0
    while before is not None:
        query = f"?before={before}" if before else ""
        asked.append(httpx.get(f"{scene.urls['http']}/v1/audit{query}", headers=headers).json())
        before = asked[-1].get("before")
    assert [len(answer["items"]) for answer in asked] == [0, 1]
    with kvorum.connect(scene.urls[surface], token=scene.tokens["submitter"]) as db:
        assert [one["reason"] for one in db.audit()] == ["it hangs"]
    with kvorum.connect(scene.urls[surface], token=scene.tokens["root"]) as db:
        assert [one["reason"] for one in db.audit()] == ["so, too"] * 3 + ["it hangs"]


def test_a_stream_of_events_does_not_tell_whether_there_is_one(scene: Scene) -> None:
    """Who may read one type learned of which type any procedure is, by its id."""
    accept = {"accept": "text/event-stream"}
    for who in ("reader", "nobody"):
        headers = {"authorization": f"Bearer {scene.tokens[who]}", **accept}
        told = []
        for id in (scene.hidden, 4_000_000_000):
            answer = httpx.get(f"{scene.urls['http']}/v1/procedures/{id}/events", headers=headers)
            told.append((answer.status_code, answer.json()["error"]["message"]))
        assert told[0] == told[1]
        assert told[0][0] == 403
        assert "kvorum.lock" not in told[0][1]
    headers = {"authorization": f"Bearer {scene.tokens['reader']}", **accept}
    answer = httpx.get(
        f"{scene.urls['http']}/v1/procedures/{scene.shown[0]}/events", headers=headers
    )
    assert answer.status_code == 200


def test_a_limited_token_shows_what_it_is_for(scene: Scene) -> None:
    """A token for one thing would tell what else its user may see."""
    narrow = [{"actions": ["submit"], "kind": "procedure type", "name": TYPE}]
    said = {"user": "admin", "name": "narrow", "limits": narrow}
    token = scene.db.access("token.create", said)["token"]
    for url in scene.urls.values():
        with kvorum.connect(url, token=token) as db:
            assert sorted(int(one.id) for one in db.procedures()) == sorted(scene.shown)


def test_nodes_and_partitions(scene: Scene) -> None:
    """Keys of tables that one may not read are where partitions begin; what machines a cluster has
    is nobody's who does not operate it.
    """
    ids = {one.name: one.id for one in scene.db.tables("shop")}
    for who, tables in (("reader", ["orders"]), ("nobody", []), ("root", ["orders", "secrets"])):
        with kvorum.connect(scene.urls["http"], token=scene.tokens[who]) as db:
            starts = {bytes(one["start"])[:4] for one in db.partitions()}
            assert {n for n in ids if table_prefix(ids[n]) in starts} == set(tables)
            assert (b"" in starts) == (who == "root")
            (node,) = db.nodes()
            assert node["state"] == "live"
            assert bool(node["version"]) == (who == "root")
        with kvorum.connect(scene.urls["native"], token=scene.tokens[who]) as db:
            if who != "root":  # natively a client asks each node, which is for operators
                for ask in (db.nodes, db.partitions):
                    with pytest.raises(Forbidden):
                        ask()
