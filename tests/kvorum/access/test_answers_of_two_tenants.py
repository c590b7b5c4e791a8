"""What one tenant is answered does not depend on what another one has and hides from him: the same
questions, before the other has anything and after, at both doors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import kvorum
from kv.base import limits
from kv.base.config import HTTP_OFFSET
from kvorum.http.routes.openapi import DECLARED
from kvorum.sdk.sync import Database
from procedures.pools import census
from tests.kit.machine import free_port_base

MINE, THEIRS = "mine.pay", "theirs.pay"
_ALIKE = {"customer": str, "amount": int}


def _done(ctx: Any) -> Any:
    match ctx.args["do"]:
        case "wait":
            return kvorum.suspend(event="never", then="begin")
        case "fail":
            return kvorum.fail("CARD", "card 4111 is refused")
    return kvorum.done()


@kvorum.procedure(MINE, attributes=_ALIKE | {"tag": str})
class Mine:
    """Ends at once, unless it shall wait."""

    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:
        return _done(ctx)


@kvorum.procedure(THEIRS, attributes=_ALIKE | {"iban": str, "tag": int})
class Theirs:
    """The same, of another tenant; of one attribute it says another kind."""

    @kvorum.step(first=True)
    def begin(self, ctx: Any) -> Any:
        return _done(ctx)


class Scene:
    def __init__(self, base: int, db: Database) -> None:
        self.db, self.url = db, f"http://127.0.0.1:{base + HTTP_OFFSET}"
        self.native = f"127.0.0.1:{base}"
        db.access("init")
        self.tokens = {}
        for who in ("mine", "theirs"):
            db.access("user.create", {"name": who})
            for kind, name in (("procedure type", f"{who}.*"), ("namespace", who)):
                grant = {"role": who, "actions": ["read"], "kind": kind, "name": name}
                if kind == "namespace":
                    db.create_namespace(name)
                db.access("grant.give", grant)
            said = {"user": who, "name": "t"}
            self.tokens[who] = str(db.access("token.create", said)["token"])

    def fill(self, who: str, table: str = "orders") -> None:
        """Of everything something, more of it than any list may look at or shows."""
        db, type_ = self.db, f"{who}.pay"
        tag: Any = "x" if who == "mine" else 7
        iban = {"iban": "DE89"} if who == "theirs" else {}
        for n, do in enumerate(("done", "fail", "wait", "done", "wait", "fail", "wait")):
            said = {"customer": "ada", "amount": n, "tag": tag, **iban}
            id = db.submit(type_, {"do": do}, attributes=said, queue="shared")
            if do != "wait":
                db.procedure(int(id), wait_ms=10_000)
            else:
                while db.procedure(int(id)).state != "WAITING":
                    db.procedure(int(id), wait_ms=20)
        held = db.submit(type_, {"do": "done"}, delay_ms=3_600_000, attributes={"customer": "bob"})
        db.bypass_procedure(int(held), "it is not wanted")
        db.set_schedule(f"{who}-often", None, type_, {"do": "done"}, every_ms=3_600_000)
        for n in range(3):
            for id in db.trigger_schedule(f"{who}-often", key=f"{n}")["started"]:
                db.procedure(int(id), wait_ms=10_000)
        db.create_table(who, table)
        db.table(who, table).put("k", b"v")

    def answers(self) -> dict[str, str]:
        """Of all listing routes, and natively."""
        token = self.tokens["mine"]
        found: dict[str, str] = {}
        headers = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=30) as http:
            for path in questions():
                answer = http.get(path)
                found[path] = f"{answer.status_code} {_plain(answer)}"
        with kvorum.connect(self.native, token=token) as db:
            for said in NATIVE:
                try:
                    page = db.search(**said)
                    told = [[one.id for one in page["items"]], page["token"], page["looked"]]
                except kvorum.KvorumError as error:
                    told = [error.code, error.message]
                found[f"search {said}"] = json.dumps(told, default=str)
            found["audit"] = json.dumps(db.audit())
            found["list"] = json.dumps([str(one.id) for one in db.procedures()])
        return found


SEARCHES = (
    "limit=2",
    "type=theirs.pay&limit=1",
    "type=theirs.pay&type=mine.pay&limit=1",
    "type=theirs.pay&where=iban^=DE&limit=1",
    "where=iban^=DE&limit=1",
    "where=customer=ada&limit=2",
    "where=customer=ada",
    "where=customer^=ad",
    "where=amount>=0",
    "where=tag=x",
    "type=theirs.pay&where=tag>=1",
    "error=card 4111&limit=1",
    "error=zzz",
    "owner=nobody",
    "queue=shared&state=WAITING",
    "schedule=theirs-often&limit=1",
    "schedule=mine-often",
    "state=SUCCESS&limit=3",
    "state=FAILED&state=RUNNABLE",
    "ended_from=1",
)
NATIVE: tuple[dict[str, Any], ...] = (
    {"limit": 2},
    {"type": THEIRS, "limit": 1},
    {"where": ["customer=ada"]},
    {"where": ["customer^=ad"]},
    {"where": ["tag=x"]},
    {"where": ["iban^=DE"]},
    {"schedule": "theirs-often"},
)


def questions() -> list[str]:
    """Each route that lists, counts or looks, as who it is not meant for, too."""
    plain = [
        route.path
        for route in DECLARED
        if route.method == "GET" and route.path.startswith("/v1/") and "{" not in route.path
    ]
    assert "/v1/search" in plain
    several = [
        f"{path}?{query}"
        for path in ("/v1/search", "/v1/search/count")
        for query in (
            SEARCHES if path == "/v1/search" else [one for one in SEARCHES if "limit" not in one]
        )
    ]
    lists = ("/v1/procedures?name=theirs.pay", "/v1/procedures?state=SUCCESS", "/v1/audit?limit=1")
    named = ("/v1/versions?name=theirs.pay", "/v1/namespaces/theirs", "/v1/queues/shared")
    one = ("/v1/schedules/theirs-often/times", "/v1/procedures/1/explain")
    return [*plain, *several, *lists, *named, *one, "/v1/namespaces/mine/tables"]


def _plain(answer: httpx.Response) -> str:
    """Without what time alone changes."""
    try:
        said = answer.json()
    except ValueError:
        return answer.text
    return json.dumps(_timeless(said), sort_keys=True)


def _timeless(said: Any) -> Any:
    if isinstance(said, dict):
        return {
            k: _timeless(v) for k, v in said.items() if k not in TIMES and not k.endswith("_ms")
        }
    return [_timeless(one) for one in said] if isinstance(said, list) else said


TIMES = frozenset(
    [
        *("reads", "writes", "bytes", "load", "size", "entries", "lag", "hot_keys", "hint"),
        *("policy", "policy_proposed"),
        *("leaders", "replicas", "end"),  # how many partitions there are is told to everybody
    ]
)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = free_port_base()
    data = tmp_path_factory.mktemp("n") / "data"
    with kvorum.open(data, port=base, procedure_modules=[__name__]) as db:
        yield Scene(base, db)


def test_answers_do_not_depend_on_what_is_hidden(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token, a count, "too many" or a wrong condition told who may not read a type that there was
    something of it, and which values it had.
    """
    monkeypatch.setattr(limits, "PROCEDURE_LOOKED_MAX", 100)
    monkeypatch.setattr(limits, "SEARCH_SORTED_MAX", 12)
    monkeypatch.setattr(census, "FRESH_S", 0.0)
    monkeypatch.setattr(census, "_REST", 0)
    monkeypatch.setattr(census, "_FIRST", 3)
    monkeypatch.setattr(census, "_OLDEST", 3)
    scene.fill("mine")
    with kvorum.connect(scene.url, token=scene.tokens["mine"]) as db:
        while not db.partitions():  # whose they are is known a moment later
            db.procedures()
    before = scene.answers()
    scene.fill("theirs")
    after = scene.answers()
    different = {q: (before[q], after[q]) for q in before if before[q] != after[q]}
    assert not different
    searched = json.loads(after["/v1/search?where=tag=x"].partition(" ")[2])
    assert {one["name"] for one in searched["items"]} == {MINE}
    for query in ("/v1/search?where=iban^=DE&limit=1", "/v1/search?type=theirs.pay&where=tag>=1"):
        assert after[query].startswith("400 ")
        assert "ATTRIBUTE_UNKNOWN" in after[query]
    with kvorum.connect(scene.native, token=scene.tokens["theirs"]) as db:
        assert db.search(where=["iban^=DE"])["items"]


def test_a_page_ends_where_too_much_is_passed_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request of who may see little had the master read all that others have."""
    monkeypatch.setattr(limits, "PROCEDURE_PASSED_MAX", 3)
    scene.fill("theirs", "more")
    with kvorum.connect(scene.native, token=scene.tokens["mine"]) as db:
        page = db.search(where=["customer=ada"])
        assert not page["items"]
        found, pages = [], 1
        while page["token"]:
            page = db.search(where=["customer=ada"], token=page["token"])
            found += page["items"]
            pages += 1
        assert {one.name for one in found} <= {MINE}
        assert pages > 2
