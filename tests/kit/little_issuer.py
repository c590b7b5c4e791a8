"""A small issuer of OpenID Connect on the loopback: everybody who comes is logged in as `user`.

What it says can be bent: `said` changes its description, `claims` the ID token's, and `token` makes
the whole answer of the token endpoint. It is at an address of its own, so that it is another site
than the node to a browser.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey

HOST = "127.0.0.2"
CLIENT, SECRET = "console", "s3cret & more"
Respond = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class LittleIssuer:
    url: str
    user: str = "ann"
    key: Any = field(default_factory=lambda: ECKey.generate_key("P-256", {"kid": "k1"}))
    said: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, str] = field(default_factory=dict)  # to the browser
    make: Callable[[dict[str, Any]], str] | None = None  # the ID token of claims
    token: Respond | None = None
    asked: list[str] = field(default_factory=list)  # paths
    refused: list[str] = field(default_factory=list)  # why
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def description(self) -> dict[str, Any]:
        told = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "end_session_endpoint": f"{self.url}/logout",
            "authorization_response_iss_parameter_supported": True,
        }
        return {**told, **self.said}

    def authorized(self, query: str) -> str:
        """Where the browser goes with its code."""
        asked = dict(parse_qsl(query))
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.url, **self.answer}
        said = {name: value for name, value in back.items() if value}
        return f"{asked['redirect_uri']}?{urlencode(said)}"

    def signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "ES256", "kid": self.key.kid}, claims, self.key)

    def exchanged(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """The answer of the token endpoint."""
        asked = self._codes.pop(form.get("code", ""), None)
        _, _, pair = authorization.partition(" ")
        client, _, secret = base64.b64decode(pair).decode().partition(":")
        challenge = base64.urlsafe_b64encode(
            hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        ).rstrip(b"=")
        good = {
            "code": asked is not None,
            "client": (unquote(client), unquote(secret)) == (CLIENT, SECRET),
            "redirect": asked is not None and asked["redirect_uri"] == form["redirect_uri"],
            "verifier": asked is not None and asked["code_challenge"].encode() == challenge,
        }
        if asked is None or not all(good.values()):
            self.refused += [what for what, is_good in good.items() if not is_good]
            return 400, {"error": "invalid_grant", "error_description": "no such code"}
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "sub": self.user, "iat": now, "exp": now + 300}
        claims |= {"nonce": asked["nonce"], **self.claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        make = self.make or self.signed
        return 200, {"token_type": "Bearer", "access_token": "x", "id_token": make(claims)}


@contextlib.contextmanager
def little_issuer() -> Iterator[LittleIssuer]:
    """Until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            issuer.asked.append(parts.path)
            match parts.path:
                case "/.well-known/openid-configuration":
                    self.tell(200, issuer.description())
                case "/keys":
                    self.tell(200, {"keys": [issuer.key.as_dict(private=False)]})
                case "/authorize":
                    self.send_response(303)
                    self.send_header("location", issuer.authorized(parts.query))
                    self.end_headers()
                case "/logout":
                    self.tell(200, {"goodbye": parse_qs(parts.query)})
                case _:
                    self.tell(404, {})

        def do_POST(self) -> None:
            issuer.asked.append(self.path)
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            if issuer.token is not None:
                issuer.token(self)
                return
            self.tell(*issuer.exchanged(dict(parse_qsl(body)), self.headers["authorization"] or ""))

        def tell(self, status: int, told: dict[str, Any]) -> None:
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    issuer = LittleIssuer(f"http://{HOST}:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
