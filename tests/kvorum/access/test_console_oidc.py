"""Logging in to the console by an issuer: who gets in, and every way in which it can go wrong."""

from __future__ import annotations

import asyncio
import base64
import hmac
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from kv.base.adapters import SystemRng
from kv.base.config import NodeConfig
from kv.base.errors import InvalidArgument, Unauthenticated, Unavailable
from kvorum.http.console.oidc_routes import LOGIN_COOKIE
from kvorum.http.wire.console_sessions import COOKIE
from kvorum.local.ports import system_ports
from kvorum.node.node import Node, build
from kvorum.programs.proxy import Proxy
from kvorum.sdk.portal import Portal
from kvorum.security import bounded_http, discovery
from kvorum.security.discovery import AGAIN_S, Discovery, provider_of
from kvorum.security.oidc_login import LOGIN_S, Client, Logins
from tests.kit.browser import Browser, browser
from tests.kit.little_issuer import CLIENT, SECRET, LittleIssuer, little_issuer
from tests.kit.machine import free_port_base

CLUSTER = "nodes say this to each other"
_ADDRESSES = itertools.count(10)


@dataclass
class Scene:
    url: str
    issuer: LittleIssuer
    admin: str
    audit: Path

    def client(self) -> httpx.Client:
        """A browser, of an address of its own: failures of one slow down no other."""
        address = f"127.0.1.{next(_ADDRESSES)}"
        transport = httpx.HTTPTransport(local_address=address)
        return httpx.Client(base_url=self.url, timeout=20, transport=transport)

    def told(self, request: str) -> list[dict[str, Any]]:
        """What the log of requests says of one."""
        for _ in range(200):
            found = [json.loads(line) for line in self.audit.read_text().splitlines()]
            if of_it := [one for one in found if one.get("request") == request]:
                return of_it
            httpx.get(f"{self.url}/healthz")  # time passes
        raise AssertionError(request)


def settings(issuer: LittleIssuer, base: int, directory: Path) -> dict[str, Any]:
    secret = directory / "secret"
    secret.write_text(SECRET + "\n")
    return {
        "oidc_issuer": issuer.url,
        "oidc_audience": "kvorum",
        "oidc_client_id": CLIENT,
        "oidc_client_secret_file": str(secret),
        "oidc_redirect_url": f"http://127.0.0.1:{base + 2}/console/oidc",
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A node with an issuer, an administrator and ann."""
    base, directory = free_port_base(), tmp_path_factory.mktemp("oidc")
    portal = Portal("oidc")
    with little_issuer() as issuer:
        config = NodeConfig(
            data=directory / "data",
            port=base,
            audit_log=str(directory / "audit.log"),
            cluster_secret=CLUSTER,
            **settings(issuer, base, directory),
        )

        async def start() -> Node:
            node = await build(config, system_ports(asyncio.get_running_loop()))
            await node.start()
            return node

        node = portal.call(start())
        url = f"http://127.0.0.1:{base + 2}"
        try:
            admin = httpx.post(f"{url}/v1/init").json()["token"]
            headers = {"authorization": f"Bearer {admin}"}
            for name in ("ann", "carl"):
                made = httpx.post(f"{url}/v1/users", json={"name": name}, headers=headers)
                assert made.is_success
            yield Scene(url, issuer, admin, directory / "audit.log")
        finally:
            portal.call(node.stop())
            portal.close()


@pytest.fixture
def scene(place: Scene) -> Scene:
    """The issuer is as it was."""
    issuer = place.issuer
    issuer.user, issuer.make, issuer.token = "ann", None, None
    for bent in (issuer.claims, issuer.answer, issuer.asked, issuer.refused):
        bent.clear()
    return place


def begun(client: httpx.Client) -> str:
    """Where the issuer sends the browser back to."""
    gone = client.get("/console/oidc/begin")
    assert gone.status_code == 303, gone.text
    back = httpx.get(gone.headers["location"])
    assert back.status_code == 303
    return back.headers["location"]


def refused(client: httpx.Client, back: str, *words: str, status: int = 401) -> httpx.Response:
    answer = client.get(back)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    for word in words:
        assert word in answer.text
    assert COOKIE not in client.cookies
    assert client.get("/console/session").json()["user"] is None
    return answer


def test_a_user_of_the_issuer_gets_a_visit(scene: Scene) -> None:
    """The console's users would need passwords of their own."""
    with scene.client() as client:
        told = client.get("/console/session").json()
        assert told["issuer"] == {"name": "127.0.0.2", "begin": f"{scene.url}/console/oidc/begin"}
        gone = client.get("/console/oidc/begin")
        said = gone.headers["set-cookie"]
        for word in ("HttpOnly", "SameSite=Lax", "Max-Age=600"):
            assert word in said
        asked = dict(parse_qsl(urlsplit(gone.headers["location"]).query))
        assert asked["scope"] == "openid"
        assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
        assert SECRET not in gone.headers["location"]
        done = client.get(httpx.get(gone.headers["location"]).headers["location"])
        assert (done.status_code, done.headers["location"]) == (303, "../console")
        session = next(c for c in done.headers.get_list("set-cookie") if c.startswith(COOKIE))
        assert "SameSite=Strict" in session
        assert "HttpOnly" in session
        assert LOGIN_COOKIE not in client.cookies
        assert scene.issuer.refused == []
        me = client.get("/console/session").json()
        assert (me["user"], me["credential"]) == ("ann", "oidc")
        assert client.get("/v1/cluster").status_code == 403
    (told,) = scene.told(done.headers["x-request-id"])
    assert (told["user"], told["credential"]) == ("ann", f"oidc {scene.issuer.url}")
    assert told["allowed"] is True
    assert told["client"].startswith("127.0.1.")


def test_signing_out_ends_it_here_and_goes_on_to_the_issuer(scene: Scene) -> None:
    """The next one at this browser would be logged in by one click."""
    with scene.client() as client:
        client.get(begun(client))
        kept = client.cookies[COOKIE]
        csrf = {"x-kvorum-csrf": client.get("/console/session").json()["csrf"]}
        done = client.post("/console/logout", json={}, headers=csrf)
        goodbye = done.json()["goodbye"]
        assert goodbye.startswith(f"{scene.issuer.url}/logout?id_token_hint=")
        assert httpx.get(f"{scene.url}/v1/whoami", cookies={COOKIE: kept}).status_code == 401
    (told,) = scene.told(done.headers["x-request-id"])
    assert (told["user"], told["method"]) == ("ann", "POST /console/logout")


def test_logins_by_password_and_token_are_in_the_log(scene: Scene) -> None:
    """Nobody could say who came in by the console, or as whom somebody tried."""
    headers = {"authorization": f"Bearer {scene.admin}"}
    made = {"name": "dora", "password": "correct horse battery"}
    assert httpx.post(f"{scene.url}/v1/users", json=made, headers=headers).is_success
    wrong = {"user": "dora", "password": "wrong"}
    right = {"user": "dora", "password": made["password"]}
    for body, user, credential, allowed in (
        (wrong, "dora", "none", False),
        ({"token": "kvt_x"}, "", "", False),
        (right, "dora", "password", True),
        ({"token": scene.admin}, "admin", "token init", True),
    ):
        with scene.client() as client:
            done = client.post("/console/login", json=body)
        (told,) = scene.told(done.headers["x-request-id"])
        assert told["method"] == "POST /console/login"
        found = (told.get("user", ""), told.get("credential", ""), told["allowed"])
        assert found == (user, credential, allowed)
    assert made["password"] not in scene.audit.read_text()


def test_a_node_is_known_by_where_logins_come_back_to(tmp_path: Path) -> None:
    """It would refuse the browsers that the issuer sends back (Host)."""
    there = {"oidc_issuer": ISSUER, "oidc_client_id": CLIENT}
    url = "https://kv.example:7602/console/oidc"
    config = NodeConfig(data=tmp_path, oidc_redirect_url=url, **there)
    assert "kv.example" in config.known_as
    with pytest.raises(InvalidArgument, match="/console/oidc"):
        NodeConfig(data=tmp_path, oidc_redirect_url="https://kv.example/", **there)
    for wrong in ({"oidc_issuer": ISSUER}, {"oidc_jwks": ISSUER}, {"oidc_client_id": CLIENT}):
        with pytest.raises(InvalidArgument, match="oidc_issuer needs"):
            NodeConfig(data=tmp_path, **wrong)
    with pytest.raises(InvalidArgument, match="belong together"):
        NodeConfig(data=tmp_path, **there)
    with pytest.raises(InvalidArgument, match="lacks openid"):
        NodeConfig(data=tmp_path, oidc_redirect_url=url, oidc_scopes=("email",), **there)


def test_a_user_who_is_dropped_is_out(scene: Scene) -> None:
    """The issuer's word would count for as long as the browser is open."""
    scene.issuer.user = "carl"
    with scene.client() as client:
        client.get(begun(client))
        assert client.get("/v1/whoami").json()["user"] == "carl"
        headers = {"authorization": f"Bearer {scene.admin}"}
        assert httpx.delete(f"{scene.url}/v1/users/carl", headers=headers).is_success
        assert client.get("/v1/whoami").status_code == 401
        assert client.get("/console/session").json()["user"] is None


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["bob", "kvorum", "<b>'\" onload=x", "x" * 3_000])
def test_who_is_nobody_here_is_told_so(scene: Scene, name: str) -> None:
    """An administrator would not know whom to make; or a name from elsewhere runs in the page."""
    scene.issuer.user = name
    with scene.client() as client:
        answer = refused(client, begun(client), "no user of that name")
        assert ("bob" in answer.text) == (name == "bob")
        assert "<b>" not in answer.text
        assert len(answer.text) < 5_000
        assert "script-src" not in answer.headers["content-security-policy"]
    (told,) = scene.told(answer.headers["x-request-id"])
    assert (told["allowed"], told["code"]) == (False, "UNAUTHENTICATED")
    assert (told["user"], told["credential"]) == (name[:200], f"oidc {scene.issuer.url}")
    assert name[:100] in told["denied"] or name[0] == "<"


OTHER = ECKey.generate_key("P-256", {"kid": "k1"})


def part(said: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()


def by_public_key(issuer: LittleIssuer) -> Callable[[dict[str, Any]], str]:
    def make(claims: dict[str, Any]) -> str:
        text = f"{part({'alg': 'HS256', 'kid': 'k1'})}.{part(claims)}"
        made = hmac.digest(issuer.key.as_pem(private=False), text.encode(), "sha256")
        return f"{text}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"

    return make


CLAIMS: dict[str, dict[str, Any]] = {
    "another login's": {"nonce": "0" * 64},
    "of no login": {"nonce": None},
    "for another client": {"aud": "others"},
    "for another client, too": {"aud": [CLIENT, "others"], "azp": "others"},
    "for requests": {"aud": "kvorum"},
    "of another issuer": {"iss": "https://evil.example"},
    "expired": {"exp": int(time.time()) - 3_600},
    "without an end": {"exp": None},
    "not yet good": {"nbf": int(time.time()) + 10**6},
    "of nobody": {"sub": None},
    "of a list": {"sub": ["ann"]},
}


@pytest.mark.few(4)
@pytest.mark.parametrize("claims", CLAIMS.values(), ids=CLAIMS.keys())
def test_an_id_token_that_is_not_for_this_login_opens_nothing(
    scene: Scene, claims: dict[str, Any]
) -> None:
    """Whoever gets hold of any token of the issuer would be its user here."""
    scene.issuer.claims |= claims
    with scene.client() as client:
        refused(client, begun(client), "ID token is refused")


TOKENS: dict[str, Callable[[LittleIssuer], Callable[[dict[str, Any]], str]]] = {
    "unsigned": lambda _: lambda claims: f"{part({'alg': 'none', 'kid': 'k1'})}.{part(claims)}.",
    "signed with the public key": by_public_key,
    "signed by another key": lambda _: (
        lambda claims: jwt.encode({"alg": "ES256", "kid": "k1"}, claims, OTHER)
    ),
    "with a key of its own": lambda _: (
        lambda claims: jwt.encode(
            {"alg": "ES256", "kid": "k1", "jwk": OTHER.as_dict(private=False)}, claims, OTHER
        )
    ),
    "no token": lambda _: lambda claims: "x",
    "dots": lambda _: lambda claims: "..",
    "long": lambda issuer: lambda claims: issuer.signed({**claims, "more": "x" * 9_000}),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("make", TOKENS.values(), ids=TOKENS.keys())
def test_an_id_token_that_the_issuer_has_not_signed_opens_nothing(
    scene: Scene, make: Callable[[LittleIssuer], Callable[[dict[str, Any]], str]]
) -> None:
    """Whoever can make one of these is whoever he likes."""
    scene.issuer.make = make(scene.issuer)
    with scene.client() as client:
        refused(client, begun(client), "ID token is refused")


def changed(back: str, **said: str) -> str:
    url = httpx.URL(back)
    kept = {name: value for name, value in {**url.params, **said}.items() if value}
    return str(url.copy_with(params=kept))


ANSWERS: dict[str, tuple[dict[str, str], str]] = {
    "another state": ({"state": "0" * 64}, "no answer to a login"),
    "no state": ({"state": ""}, "no answer to a login"),
    "a state that is no text": ({"state": "\N{SNOWMAN}"}, "no answer to a login"),
    "no code": ({"code": ""}, "no code"),
    "a long code": ({"code": "x" * 5_000}, "no code"),
    "an unknown code": ({"code": "x"}, "invalid_grant"),
    "another issuer": ({"iss": "https://evil.example"}, "another issuer"),
    "no issuer, where it says that it tells": ({"iss": ""}, "from which issuer"),
    "an error": ({"error": "access_denied", "error_description": "<i>no</i>"}, "access_denied"),
}


@pytest.mark.few(4)
@pytest.mark.parametrize(("said", "word"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_that_does_not_fit_opens_nothing(
    scene: Scene, said: dict[str, str], word: str
) -> None:
    """Another site would log a browser in as somebody else, or use its code."""
    with scene.client() as client:
        answer = refused(client, changed(begun(client), **said), word)
        assert "<i>" not in answer.text


def test_an_answer_counts_in_its_browser_and_once(scene: Scene) -> None:
    """Whoever reads an address in a log or a history would be logged in by it."""
    with scene.client() as client, scene.client() as other:
        back = begun(client)
        refused(other, back, "no answer to a login")  # it has no cookie
        begun(other)
        refused(other, back, "no answer to a login")  # it has another one
        assert "/token" not in scene.issuer.asked
        kept = client.cookies[LOGIN_COOKIE]
        assert client.get(back).status_code == 303
        again = scene.client()
        again.cookies.set(LOGIN_COOKIE, kept, domain="127.0.0.1")
        refused(again, back, "answered before")
        again.close()
        assert scene.issuer.asked.count("/token") == 1


def test_an_answer_that_says_something_twice_is_none(scene: Scene) -> None:
    """What one server reads first and another last is two answers."""
    with scene.client() as client:
        refused(client, begun(client) + "&code=x", "twice", status=400)
        many = "&".join(f"a{n}=1" for n in range(100))
        refused(client, f"{scene.url}/console/oidc?{many}", "no answer", status=400)


def raw(text: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: handler.wfile.write(text) and None


def huge(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(64):
            handler.wfile.write(b" " * (1 << 20))
    except OSError:
        pass  # it has hung up, as it should


def slow(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(100):
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        pass


def elsewhere(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(307)
    handler.send_header("location", "/keys")
    handler.send_header("content-length", "0")
    handler.end_headers()


ISSUERS: dict[str, tuple[Callable[[BaseHTTPRequestHandler], None], int]] = {
    "huge": (huge, 503),
    "slow": (slow, 503),
    "cut": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"), 503),
    "no HTTP": (raw(b"\0" * 100), 503),
    "a line without end": (raw(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000), 503),
    "silent": (raw(b""), 503),
    "no JSON": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"), 401),
    "deep": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n" + b"[" * 200_000), 503),
    "a list": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]"), 401),
    "no token": (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), 401),
    "elsewhere": (elsewhere, 401),
}


@pytest.mark.few(4)
@pytest.mark.parametrize(("token", "status"), ISSUERS.values(), ids=ISSUERS.keys())
def test_an_issuer_that_misbehaves_costs_nobody_else(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    token: Callable[[BaseHTTPRequestHandler], None],
    status: int,
) -> None:
    """It would fill the node's memory, hold its threads, or send it to any server."""
    monkeypatch.setattr(bounded_http, "ASK_S_MAX", 0.5)
    scene.issuer.token = token
    with scene.client() as client:
        refused(client, begun(client), status=status)
    assert scene.issuer.asked.count("/token") == 1
    assert scene.issuer.asked[-1] == "/token"


def test_guesses_are_slowed_down_and_the_issuer_is_spared(scene: Scene) -> None:
    """Anybody could have the node ask the issuer as often as he likes."""
    with scene.client() as client:
        got = [401]
        while got[-1] == 401:  # each wait is twice as long as the one before
            got.append(client.get(changed(begun(client), code="x")).status_code)
    assert got[-1] == 429
    assert scene.issuer.asked.count("/token") == len(got) - 2 >= 3


# ------------------------------------------------------------------------------- its description

ISSUER = "https://login.example/realm"
SAID = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://login.example/authorize?tenant=1",
    "token_endpoint": "https://login.example/token",
    "jwks_uri": "https://keys.example/keys",
}
HOSTS = frozenset({"login.example", "keys.example"})


def test_a_description_is_taken() -> None:
    """Issuers with hosts for their keys, and with parameters in an address, could not be used."""
    found = provider_of(json.dumps(SAID).encode(), ISSUER, HOSTS)
    assert found.keys == SAID["jwks_uri"]
    assert (found.end_session, found.says_iss, found.posts_secret) == ("", False, False)
    ways = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert provider_of(json.dumps({**SAID, **ways}).encode(), ISSUER, HOSTS).posts_secret


WRONG: dict[str, Any] = {
    "another issuer": {"issuer": ISSUER + "/"},
    "no issuer": {"issuer": None},
    "no token endpoint": {"token_endpoint": None},
    "another host": {"token_endpoint": "https://evil.example/token"},
    "this machine": {"token_endpoint": "https://127.0.0.1/token"},
    "plain text": {"token_endpoint": "http://login.example/token"},
    "a file": {"jwks_uri": "file:///etc/passwd"},
    "a user in the address": {"authorization_endpoint": "https://login.example@evil.example/"},
    "a line's end": {"authorization_endpoint": "https://login.example/a\r\nx: y"},
    "a script": {"end_session_endpoint": "javascript:alert(1)"},
    "a fragment": {"end_session_endpoint": "https://login.example/#a"},
    "a number": {"jwks_uri": 1},
}


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG.keys())
def test_a_description_that_leads_elsewhere_is_refused(said: dict[str, Any]) -> None:
    """Whoever can change it would have nodes ask any server, and be sent people and their codes."""
    with pytest.raises(ValueError, match="its "):
        provider_of(json.dumps({**SAID, **said}).encode(), ISSUER, HOSTS)


@pytest.mark.parametrize("text", [b"", b"[]", b"[" * 200_000, b"\xff", b"null"])
def test_what_is_no_description_is_refused(text: bytes) -> None:
    """It would be an error of ours."""
    with pytest.raises(ValueError):  # noqa: PT011 - json's own say what it is
        provider_of(text, ISSUER, HOSTS)


def test_an_issuer_that_is_down_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each login would wait for it; or one that was down once would be so for ever."""
    now, asked = [0.0], [0]

    def read(url: str) -> bytes:
        asked[0] += 1
        if now[0] < AGAIN_S:
            raise OSError("no route")
        return json.dumps(SAID).encode()

    monkeypatch.setattr(discovery, "read", read)
    found = Discovery(ISSUER, ["keys.example"], lambda: now[0])
    for _ in range(3):
        with pytest.raises(OSError, match="no route"):
            found.provider()
    assert asked == [1]
    now[0] = AGAIN_S
    assert found.provider() is found.provider()
    assert asked == [2]


class Believing:
    async def of_login(self, token: str, client: str, nonce: str) -> str:
        return token


async def at_once(work: Callable[[], None]) -> None:
    work()


async def test_a_login_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser left in a library would be logged in by whoever comes back to it."""
    monkeypatch.setattr(discovery, "read", lambda url: json.dumps(SAID).encode())
    now = [5_000.0]
    client = Client(ISSUER, CLIENT, "", ["openid", "email"], "https://kv.example/console/oidc")

    def made() -> Logins:
        return Logins(
            *(client, Discovery(ISSUER, ["keys.example"], lambda: now[0]), Believing()),
            rng=SystemRng(),
            monotonic=lambda: now[0],
            in_thread=at_once,
        )

    logins = made()
    first, url = await logins.begin()
    second, _ = await logins.begin()
    assert url.startswith("https://login.example/authorize?tenant=1&response_type=code&")
    state = dict(parse_qsl(urlsplit(url).query))["state"]
    said = {"state": state, "code": "c"}
    for cookie in (second, "", first + "0", "0" + first, "f" + first[1:]):
        with pytest.raises(Unauthenticated):
            logins.admit(cookie, said)
    with pytest.raises(Unauthenticated):
        made().admit(first, said)  # of another process
    now[0] += LOGIN_S + 1
    with pytest.raises(Unauthenticated):
        logins.admit(first, said)
    now[0] -= 2
    assert logins.admit(first, said) == "c"


async def test_an_issuer_that_is_down_is_told_as_such() -> None:
    """People would take it for a wrong password."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    issuer = f"http://127.0.0.1:{port}"
    client = Client(issuer, CLIENT, "", ["openid"], "http://127.0.0.1/console/oidc")
    logins = Logins(
        *(client, Discovery(issuer, [], lambda: 0.0), Believing()),
        rng=SystemRng(),
        monotonic=lambda: 0.0,
        in_thread=at_once,
    )
    with pytest.raises(Unavailable, match="with a token or a password"):
        await logins.begin()


# ------------------------------------------------------------------------------- elsewhere


def test_a_proxy_takes_the_issuers_users_as_a_node_does(scene: Scene, tmp_path: Path) -> None:
    """Behind a proxy, nobody of the issuer could log in: neither by a token nor in the console."""
    base = free_port_base()
    node = urlsplit(scene.url).port or 0
    config = NodeConfig(**settings(scene.issuer, base, tmp_path))
    proxy = Proxy([("127.0.0.1", node - 2)], "127.0.0.1", base, config=config)
    portal = Portal("proxy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVORUM_CLUSTER_SECRET", CLUSTER)
        portal.call(proxy.start())
    try:
        there = Scene(proxy.url, scene.issuer, scene.admin, scene.audit)
        with there.client() as client:
            assert client.get(begun(client)).status_code == 303
            assert client.get("/v1/whoami").json()["user"] == "ann"
        claims = {"iss": scene.issuer.url, "aud": "kvorum", "sub": "ann"}
        token = scene.issuer.signed({**claims, "exp": int(time.time()) + 60})
        headers = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{proxy.url}/v1/whoami", headers=headers).json()["user"] == "ann"
        wrong = scene.issuer.signed({**claims, "aud": CLIENT, "exp": int(time.time()) + 60})
        headers = {"authorization": f"Bearer {wrong}"}
        assert httpx.get(f"{proxy.url}/v1/whoami", headers=headers).status_code == 401
    finally:
        portal.call(proxy.stop())
        portal.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.mark.slow
def test_a_browser_comes_back_from_another_site_logged_in(page: Browser, scene: Scene) -> None:
    """Cookies that the browser does not send from another site would end it: so it asks anew."""
    page.open(f"{scene.url}/console#/nodes")
    page.click("#issuer")
    page.wait("document.querySelector('#user')?.innerText.includes('ann (oidc)')")
    page.wait("location.hash === '#/nodes'")
    page.click("#logout")
    page.wait("location.href.includes('/logout?id_token_hint=')")
    page.open(f"{scene.url}/console")
    page.wait("document.querySelector('#login')")
    scene.issuer.user = "bob"
    page.click("#issuer")
    page.wait("document.body.innerText.includes('no user of that name')")
    page.click("a[href='../console']")
    page.wait("document.querySelector('#login')")
