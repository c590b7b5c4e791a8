"""Every route says who may ask it, where it is declared: what is not declared is not served."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.routing import APIRoute

from kv.base.errors import Unavailable
from kv.base.rights import Action, Kind
from kvorum.http import console
from kvorum.http.console import oidc_routes
from kvorum.http.routes import console_routes
from kvorum.http.routes.declaring import Declared, Routes, book_of, types_of
from kvorum.http.routes.hot_routes import HOT_ROUTES
from kvorum.http.routes.openapi import DECLARED
from kvorum.http.routes.route import Route
from kvorum.http.server.fastapi_app import application
from kvorum.http.server.hot_app import HotApi
from tests.kit.each import each

COLD = (
    *(*DECLARED, *console.ROUTES.declared, *console_routes.ROUTES.declared),
    *oidc_routes.ROUTES.declared,
)


def test_fastapi_serves_what_is_declared() -> None:
    """A route that is added to the application itself would be served to anybody."""
    served = [route for route in application().routes if isinstance(route, APIRoute)]
    assert len(served) == len(application().routes)
    assert {(m, route.path) for route in served for m in route.methods or ()} == {
        (route.method, route.path) for route in COLD
    }


def test_the_hot_application_serves_what_is_declared() -> None:
    """Its paths are in its code, not in a table: one that nobody declared has no right."""
    declared = {route.path for route in HOT_ROUTES}
    exact = {f"/v1/{name}" for name in ("batch", "multi-get", "multi-write", "txn")}
    verbs = {f"/v1/txn/{{id}}/{verb.decode()}" for verb in HotApi._txn_verbs}
    records = {"/v1/kv/{ns}/{table}", "/v1/kv/{ns}/{table}/{key}", "/v1/watch/{ns}/{table}"}
    assert declared == exact | verbs | records | {"/v1/txn/{id}"}


@each("route", [*HOT_ROUTES, *COLD], ids=lambda r: f"{r.method} {r.path}")
def test_a_route_says_its_right(route: Route | Declared) -> None:
    """A right that names a part which the path does not have can be checked by nobody."""
    action, kind, name = route.right
    assert kind in Kind
    assert action is None or action in Action
    assert set(re.findall(r"\{\w+\}", name)) <= set(re.findall(r"\{\w+\}", route.path))
    if action is None:
        assert not route.path.startswith("/v1/"), "the API itself is open to nobody"


def test_a_route_without_a_right_cannot_be_declared() -> None:
    """Whoever forgets it must hear of it at once, not from whoever got in."""
    with pytest.raises(TypeError, match="right"):
        Routes("tables").on("GET", "/v1/new")  # type: ignore[call-arg]


def test_what_is_not_known_to_be_ones_own_is_not_shown() -> None:
    """Rights that cannot be read any more were taken for those of who may see all."""
    here: Any = SimpleNamespace(guard=SimpleNamespace(book=None))
    somebody: Any = SimpleNamespace(may=lambda _actions, _resource: None)
    everybody: Any = SimpleNamespace(may=None)
    for asks in (book_of, types_of):
        with pytest.raises(Unavailable, match="rights cannot be read now"):
            asks(somebody, here)
        assert asks(everybody, here) is None
