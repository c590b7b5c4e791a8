"""The console's login: what a browser's cookie stands for, and when it ends."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

import kvorum
from kv.base.adapters import SystemRng
from kv.base.rights import Identity
from kvorum.http import console
from kvorum.http.wire.console_sessions import (
    COOKIE,
    DAY_S,
    IDLE_S,
    VISITS_MAX,
    VISITS_OF_USER_MAX,
    Visits,
)
from kvorum.http.wire.request import Request
from tests.kit.browser import browser
from tests.kit.machine import free_port_base

PASSWORD = "correct horse battery"
PAGES = [
    *("cluster", "overview", "data", "procedures", "schedules", "queues", "workers", "sinks"),
    *("locks", "nodes", "partitions"),
]


@dataclass
class Scene:
    url: str
    admin: str

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.admin}"}
        content = b"" if body is None else json.dumps(body).encode()
        return httpx.request(method, self.url + path, headers=headers, timeout=20, content=content)

    def browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=20)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("login") / "data", port=base):
        url = f"http://127.0.0.1:{base + 2}"
        with httpx.Client(base_url=url) as client:
            told = client.get("/console/session").json()
            assert (told["user"], told["credential"]) == ("kvorum", "loopback")
            admin = client.post("/v1/init").json()["token"]
        made = Scene(url, admin)
        user = {"name": "ann", "password": PASSWORD}
        assert made.ask("POST", "/v1/users", user).is_success
        grant = {"role": "ann", "actions": ["read"], "kind": "cluster"}
        assert made.ask("POST", "/v1/grants", grant).is_success
        yield made


def logged_in(client: httpx.Client, body: dict[str, str]) -> dict[str, str]:
    """The header that changing requests need."""
    answer = client.post("/console/login", json=body)
    assert answer.status_code == 200, answer.text
    return {"x-kvorum-csrf": client.get("/console/session").json()["csrf"]}


def test_a_wrong_login_tells_nothing(scene: Scene) -> None:
    """The answer to an unknown user would be told apart from that to a wrong password."""
    bodies = ({"user": "ann", "password": "wrong"}, {"user": "nobody", "password": "wrong"})
    with scene.browser() as client:
        told = [client.post("/console/login", json=body) for body in bodies]
    assert [one.status_code for one in told] == [401, 401]
    assert told[0].json() == told[1].json()
    assert "set-cookie" not in told[0].headers


def test_a_cookie_is_for_this_site_and_not_for_scripts(scene: Scene) -> None:
    """A script on the page, or another site, would act as whoever looks at it."""
    with scene.browser() as client:
        answer = client.post("/console/login", json={"token": scene.admin})
        said = answer.headers["set-cookie"]
        for word in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="):
            assert word in said
        assert scene.admin not in said
        assert client.get("/v1/whoami").json()["user"] == "admin"


def test_a_change_needs_what_other_sites_cannot_read(scene: Scene) -> None:
    """Whoever makes a browser send a form would change the cluster."""
    with scene.browser() as client:
        csrf = logged_in(client, {"token": scene.admin})
        for headers in ({}, {"x-kvorum-csrf": "0" * 64}):
            refused = client.post("/v1/users", json={"name": "eve"}, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "CSRF")
        assert client.post("/console/logout", json={}).status_code == 403
        assert client.post("/v1/users", json={"name": "carl"}, headers=csrf).status_code == 201


def test_signing_out_ends_it(scene: Scene) -> None:
    """A cookie that somebody copied would stay good."""
    with scene.browser() as client:
        csrf = logged_in(client, {"user": "ann", "password": PASSWORD})
        kept = client.cookies[COOKIE]
        assert client.get("/v1/cluster").status_code == 200
        assert client.post("/console/logout", json={}, headers=csrf).status_code == 200
        assert COOKIE not in client.cookies
        again = httpx.get(f"{scene.url}/v1/cluster", cookies={COOKIE: kept})
        assert again.status_code == 401


def test_a_page_offers_what_its_user_may(scene: Scene) -> None:
    """Buttons that are always refused teach people to pass over refusals."""
    with scene.browser() as client:
        logged_in(client, {"user": "ann", "password": PASSWORD})
        told = client.get("/console/session?of=console.import").json()
        pages = [page for page in PAGES if page != "locks"]
        assert (told["pages"], told["operates"]) == (pages, False)
        one_type = {"role": "ann", "actions": ["operate"], "kind": "procedure type", "name": "a.*"}
        assert scene.ask("POST", "/v1/grants", one_type).is_success
        for name, operates in (("a.b", True), ("b.a", False), ("", False)):
            told = client.get(f"/console/session?of={name}").json()
            assert (told["pages"], told["operates"]) == (pages, operates)
        logged_in(client, {"token": scene.admin})
        told = client.get("/console/session").json()
        assert told["pages"] == PAGES
        assert told["operates"]


@pytest.mark.slow
def test_a_login_and_a_sign_out_in_a_browser(scene: Scene, tmp_path: Path) -> None:
    """What one user saw stays on the page for the next, or a page is asked for again and again by
    who may not see it; or a session that has ended looks like an error.
    """
    user = {"name": "bob", "password": PASSWORD}
    assert scene.ask("POST", "/v1/users", user).is_success
    with browser(tmp_path / "chromium") as page:

        def log_in(field: str, **values: str) -> None:
            page.wait("document.querySelector('#login')")
            for name, value in values.items():
                page.js(f"document.querySelector('#{name}').value = {json.dumps(value)}")
            page.js(f"document.querySelector('#{field}').form.requestSubmit()")

        page.open(f"{scene.url}/console#/locks")
        page.wait("document.querySelector('#login')")
        assert page.js("document.querySelector('#top').hidden")
        log_in("name", name="bob", password="wrong")
        page.wait("document.querySelector('#refused').textContent.includes('could not be')")
        log_in("token", token=scene.admin)
        page.wait("document.body.innerText.includes('cluster ')")
        page.wait("document.body.innerText.includes('Nobody waits')")
        page.click("#logout")
        page.wait("document.querySelector('#login')")
        assert page.js("document.querySelector('#cluster').textContent") == ""
        log_in("name", name="bob", password=PASSWORD)
        page.wait("document.querySelector('#closed')")  # it is still the page of locks
        assert "cluster " not in page.text()
        assert page.js("[...document.querySelectorAll('nav a')].filter(a => !a.hidden).length") == 6
        grant = {"role": "bob", "actions": ["read"], "kind": "cluster"}
        assert scene.ask("POST", "/v1/grants", grant).is_success
        page.click("#logout")
        log_in("name", name="bob", password=PASSWORD)
        page.wait("document.querySelector('nav a[href=\"#/procedures\"]:not([hidden])')")
        page.js("location.hash = '#/procedures'")
        page.wait("document.querySelector('#state')")
        changed = {"password": PASSWORD + "!"}
        assert scene.ask("POST", "/v1/users/bob/password", changed).is_success
        page.wait("document.querySelector('#refused')")
        page.wait("document.querySelector('#refused').textContent.length > 0")
        assert page.js("document.querySelector('#trouble').hidden")
        assert not [c for c in page.complaints if "401" not in c]


def test_a_revoked_token_and_a_changed_password_end_visits(scene: Scene) -> None:
    """Who lost a right would keep it as long as the browser is open."""
    made = scene.ask("POST", "/v1/tokens", {"user": "ann", "name": "mine"}).json()
    with scene.browser() as by_token, scene.browser() as by_password:
        logged_in(by_token, {"token": made["token"]})
        logged_in(by_password, {"user": "ann", "password": PASSWORD})
        assert by_token.get("/v1/cluster").status_code == 200
        assert scene.ask("DELETE", "/v1/tokens/ann/mine").is_success
        assert by_token.get("/v1/cluster").status_code == 401
        assert by_token.get("/console/session").json()["user"] is None
        assert by_password.get("/v1/cluster").status_code == 200
        changed = {"password": PASSWORD + "!"}
        assert scene.ask("POST", "/v1/users/ann/password", changed).is_success
        assert by_password.get("/v1/cluster").status_code == 401
    assert scene.ask("POST", "/v1/users/ann/password", {"password": PASSWORD}).is_success


class AnyToken:
    """A guard that takes whatever it is shown."""

    async def by_token(self, token: str, address: str) -> Identity:
        return Identity(token, "token")


def asking(secret: str) -> Request:
    headers = [(b"cookie", f"{COOKIE}={secret}".encode())]
    scope = {"method": "GET", "raw_path": b"/", "query_string": b"", "headers": headers}

    async def receive() -> dict[str, object]:
        return {}

    return Request(scope, receive)


async def test_visits_end_by_themselves_and_are_bounded() -> None:
    """A browser in a library would stay logged in; logins without end would fill the memory."""
    now = [1_000.0]
    visits = Visits(AnyToken(), SystemRng(), lambda: now[0])  # type: ignore[arg-type]
    idle, used = await visits.by_token("idle", ""), await visits.by_token("used", "")
    for _ in range(int(DAY_S / IDLE_S) + 1):
        now[0] += IDLE_S - 1
        assert visits.find(asking(used)) is not None or now[0] - 1_000 > DAY_S
    assert visits.find(asking(idle)) is None
    now[0] = 1_001 + DAY_S
    assert visits.find(asking(used)) is None
    first = await visits.by_token("first", "")
    for _ in range(VISITS_MAX):
        last = await visits.by_token("busy", "")  # one user's do not end those of others
    assert len(visits) == 1 + VISITS_OF_USER_MAX
    assert visits.find(asking(last)) is not None
    assert visits.find(asking(first)) is not None
    for n in range(VISITS_MAX):
        await visits.by_token(str(n), "")
    assert len(visits) == VISITS_MAX
    assert visits.find(asking(first)) is None


@pytest.mark.few(4)
@pytest.mark.skipif(shutil.which("node") is None, reason="no node here: apt-get install nodejs")
@pytest.mark.parametrize("script", console.SCRIPTS)
def test_scripts_can_be_read(script: str, tmp_path: Path) -> None:
    """A page with a mistake in its script shows nothing at all."""
    path = tmp_path / "script.mjs"  # a module
    path.write_bytes((Path(console.__file__).parent / script).read_bytes())
    subprocess.run(["node", "--check", str(path)], check=True, timeout=60)
