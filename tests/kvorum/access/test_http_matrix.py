"""Every route of HTTP, asked by nobody, with wrong, expired and revoked credentials, without the
right and with it: generated from the declarations, so that a new route is in it by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

import kvorum
from kv.base.rights import Kind
from kvorum.http import console
from kvorum.http.routes.declaring import Declared
from kvorum.http.routes.hot_routes import HOT_ROUTES
from kvorum.http.routes.openapi import DECLARED
from kvorum.http.routes.rights import SELF
from kvorum.http.routes.route import Route
from tests.kit.each import each
from tests.kit.machine import free_port_base

ROUTES: tuple[Route | Declared, ...] = (*HOT_ROUTES, *DECLARED, *console.ROUTES.declared)
CLOSED = [route for route in ROUTES if route.right.action is not None]
KEY = {"ns": "shop", "table": "orders", "key": "k"}
OPS = {"ops": [{"op": "put", **KEY, "value": "v"}]}
BODIES: dict[str, Any] = {
    "/v1/batch": OPS,
    "/v1/multi-write": OPS,
    "/v1/multi-get": {"keys": [KEY]},
    "/v1/txn/{id}/get": KEY,
    "/v1/txn/{id}/multi-get": {"keys": [KEY]},
    "/v1/txn/{id}/put": {**KEY, "value": "v"},
    "/v1/txn/{id}/delete": KEY,
    "/v1/txn/{id}/lock": KEY,
    "/v1/txn/{id}/scan": {"ns": "shop", "table": "orders"},
    "/v1/namespaces": {"name": "made"},
    "/v1/procedures/{id}/updates/{name}": {"key": "k"},
    "/v1/schedules": {"name": "s", "procedure": "sample.transfer"},
    "/v1/locks/steal": {"resource": "till"},
    "/v1/schedules/{schedule}/backfill": {"from_ms": 0, "to_ms": 1},
    "/v1/versions/{name}/move": {"to": 2},
    "/v1/pauses": {"kind": "type", "name": "sample.transfer", "note": "n"},
    "/v1/bulk": {"what": "abort", "filter": {"type": "none"}, "reason": "r", "dry_run": True},
    "/v1/retention": {"type": "none", "most": 1},
}
ALSO = {"/v1/txn/{id}/lock": ["read"]}  # what a route needs beside the right that it says
NAMES = {"table": "orders", "key": "k", "name": "sample.transfer", "schedule": "s", "site": "there"}
NAMES |= {"kind": "type", "paused": "sample.transfer", "pool": "default", "task": "t"}
NAMES |= {"queue": "q"}


def namespace_of(route: Route | Declared) -> str:
    """Rights are of names: what is not there is not changed."""
    return "none" if route.path.startswith("/v1/namespaces/") else "shop"


@dataclass
class Scene:
    http: httpx.Client
    admin: str
    procedure: str
    lock: str
    tokens: dict[str, str] = field(default_factory=dict)

    def ask(self, what: str, path: str, body: Any = None, *, token: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        more = {} if body is None else {"json": body}
        return self.http.request(what, path, headers=headers, **more)

    def status(self, route: Route | Declared, token: str, headers: dict[str, str]) -> int:
        """What a request of that route is answered with; streams are not read."""
        given = {**NAMES, "user": "ghost", "role": "ghost"}
        given["ns"] = namespace_of(route)
        given["id"] = self.lock if route.path.startswith("/v1/locks/") else self.procedure
        if route.path.startswith("/v1/txn/"):
            begun = self.ask("POST", "/v1/txn", {}, token=token)
            given["id"] = begun.json().get("txn", "1")
        path = re.sub(r"\{(\w+)\}", lambda part: given[part[1]], route.path)
        body = BODIES.get(route.path, {} if route.method in ("POST", "PATCH") else None)
        more = {} if body is None else {"json": body}
        with self.http.stream(route.method, path, headers=headers, **more) as answer:
            if answer.status_code in (401, 403):
                error = httpx.Response(200, content=b"".join(answer.iter_raw())).json()["error"]
                if answer.status_code == 401:
                    assert answer.headers["www-authenticate"].startswith("Bearer")
                    assert error["details"] == {}
                else:
                    assert set(error["details"]) == {"user", "missing", "resource"}
            return answer.status_code

    def holder(self, route: Route | Declared) -> str:
        """A token of a user who has that right, and no other than `ALSO` says."""
        right = route.right
        assert right.action is not None
        name, namespace = {
            Kind.CLUSTER: ("", ""),
            Kind.TABLE: ("orders", namespace_of(route)),
            Kind.NAMESPACE: ("made" if right.name == "<name>" else namespace_of(route), ""),
        }.get(right.kind, ("*", ""))
        actions = [right.action, *ALSO.get(route.path, [])]
        key = f"u.{'.'.join(actions)}.{right.kind.replace(' ', '')}.{namespace}.{name.strip('*')}"
        if key not in self.tokens:
            said = {"role": key, "actions": actions, "kind": right.kind, "name": name}
            if namespace:
                said["namespace"] = namespace
            said = {k: v for k, v in said.items() if v}
            assert self.ask("POST", "/v1/users", {"name": key}, token=self.admin).is_success
            made = self.ask("POST", "/v1/grants", said, token=self.admin)
            assert made.is_success, made.text
            self.tokens[key] = self.token(key)
        return self.tokens[key]

    def token(self, user: str, **more: Any) -> str:
        said = {"user": user, "name": f"t{len(self.tokens)}", **more}
        made = self.ask("POST", "/v1/tokens", said, token=self.admin)
        assert made.is_success, made.text
        return str(made.json()["token"])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = free_port_base()
    modules = ["tests.kvorum.surfaces.sample_procedures"]
    data = tmp_path_factory.mktemp("matrix") / "data"
    with (
        kvorum.open(data, port=base, procedure_modules=modules) as db,
        httpx.Client(base_url=f"http://127.0.0.1:{base + 2}", timeout=20) as http,
    ):
        db.create_namespace("shop")
        db.create_table("shop", "orders")
        procedure = str(db.submit("sample.transfer", {}))
        lock = str(
            db.submit("kvorum.lock", {"resource": "till", "exclusive": True, "ttl_ms": 600_000})
        )
        admin = http.post("/v1/init").json()["token"]
        made = Scene(http, admin, procedure, lock)
        assert made.ask("POST", "/v1/users", {"name": "nobody"}, token=admin).is_success
        made.tokens["nobody"] = made.token("nobody")
        made.tokens["revoked"] = made.token("nobody", name="revoked")
        gone = made.ask("DELETE", "/v1/tokens/nobody/revoked", token=admin)
        assert gone.is_success, gone.text
        made.tokens["expired"] = made.token("nobody", name="expired", ttl_ms=1)
        yield made


@pytest.mark.few(2)
@each("route", CLOSED, ids=lambda r: f"{r.method} {r.path}")
@pytest.mark.parametrize("wrong", ["nothing", "other", "expired", "revoked", "no scheme"])
def test_nobody_gets_in(scene: Scene, route: Route | Declared, wrong: str) -> None:
    """A route that answers whoever asks gives the cluster away. (429: after too many failures.)"""
    other = "kvt_" + "A" * 16 + "_" + "B" * 43
    said = {"nothing": "", "other": f"Bearer {other}", "no scheme": scene.admin}
    value = said.get(wrong, f"Bearer {scene.tokens.get(wrong, '')}")
    headers = {"authorization": value} if value else {}
    status = scene.status(route, "", headers)
    assert status in ((401,) if wrong in ("nothing", "no scheme") else (401, 429))


def test_what_changes_needs_more_than_the_consoles_cookie(scene: Scene) -> None:
    """Another site would have the browser of whoever looks at the console send it."""
    logged_in = scene.http.post("/console/login", json={"token": scene.admin})
    cookie = logged_in.headers["set-cookie"].partition(";")[0]
    scene.http.cookies.clear()
    changing = [route for route in CLOSED if route.method not in ("GET", "HEAD")]
    assert len(changing) > 40
    for route in changing:
        path = re.sub(r"\{\w+\}", "1", route.path)
        for csrf in ({}, {"x-kvorum-csrf": "0" * 64}):
            headers = {"cookie": cookie, **csrf}
            refused = scene.http.request(route.method, path, headers=headers, json={})
            assert refused.status_code == 403, (route.method, path)
            assert refused.json()["error"]["code"] == "CSRF", (route.method, path)


@each("route", CLOSED, ids=lambda r: f"{r.method} {r.path}")
def test_without_the_right_it_is_refused_and_with_it_it_is_not(
    scene: Scene, route: Route | Declared
) -> None:
    """A route whose check was forgotten lets every user in; one that asks for more lets none."""
    nobody, holder = scene.tokens["nobody"], scene.holder(route)
    if route.right is not SELF:
        assert scene.status(route, nobody, {"authorization": f"Bearer {nobody}"}) == 403
    assert scene.status(route, holder, {"authorization": f"Bearer {holder}"}) not in (401, 403, 500)


def test_what_one_may_not_see_looks_like_what_is_not_there(scene: Scene) -> None:
    """Else names of others' tables and procedures could be tried out."""
    token = scene.tokens["nobody"]
    for there, not_there in (
        ("/v1/kv/shop/orders/k", "/v1/kv/shop/none/k"),
        (f"/v1/procedures/{scene.procedure}", "/v1/procedures/999999999"),
        ("/v1/namespaces/shop", "/v1/namespaces/none"),
    ):
        told = [scene.ask("GET", path, token=token) for path in (there, not_there)]
        assert [one.status_code for one in told] == [403, 403]
        assert "sample.transfer" not in told[0].text
