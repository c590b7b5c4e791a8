"""What HTTP clients meet at the edges of the API: other methods, requests that are none, sizes,
and operations of which only some can be done.
"""

from __future__ import annotations

import html
import json
import logging
import socket
from collections.abc import MutableMapping
from typing import Any

import httpx
import pytest

from kv.base.limits import BATCH_OPS_MAX, HTTP_HEAD_BYTES_MAX, VALUE_BYTES_MAX
from kvorum.http.server.host_header import HostGuard
from kvorum.http.wire.request import Receive, Scope, Send
from tests.kvorum.surfaces.conftest import Served, error_of

WEB = {"ns": "default", "table": "web"}


def spoken(port: int, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of what the node answers to raw bytes before it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
        s.sendall(request)
        answer = b""
        while part := s.recv(65_536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize(
    ("method", "url", "allowed"),
    [
        ("POST", "/v1/kv/default/web/k", {"GET", "HEAD", "PUT", "DELETE"}),
        ("PUT", "/v1/kv/default/web", {"GET", "HEAD"}),
        ("GET", "/v1/batch", {"POST"}),
        ("DELETE", "/v1/txn/1", {"GET", "HEAD"}),
        ("GET", "/v1/txn/1/commit", {"POST"}),
        ("DELETE", "/v1/namespaces", {"GET", "HEAD", "POST"}),
        ("OPTIONS", "/v1/namespaces/default/tables", {"GET", "HEAD", "POST"}),
        ("PUT", "/v1/procedures/1", {"GET", "HEAD", "POST"}),
        ("POST", "/metrics", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_is_told_all_right_ones(
    http: httpx.Client, method: str, url: str, allowed: set[str]
) -> None:
    """405 without `Allow` breaks RFC 9110; one that lists half of them misleads."""
    answer = http.request(method, url)
    details = error_of(answer, 405, "METHOD_NOT_ALLOWED")["details"]
    assert answer.headers["allow"] == details["allow"]
    assert set(details["allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "url", ["/healthz", "/readyz", "/metrics", "/docs", "/v1/nodes", "/v1/kv/default/web"]
)
def test_what_can_be_read_can_be_probed(http: httpx.Client, url: str) -> None:
    """Load balancers probe with HEAD: a 405 takes a healthy node out of service."""
    answer = http.head(url)
    assert (answer.status_code, answer.content) == (200, b"")


def test_a_page_of_another_site_writes_nothing(http: httpx.Client) -> None:
    """An operator's browser posts for any page that it shows: what needs no leave of ours was done
    (a procedure aborted, rows written).
    """
    route, body = "/v1/tso", b'{"count": 1}'
    host = http.base_url.netloc.decode()
    foreign = [
        {"origin": "http://evil.example"},
        {"origin": "http://evil.example", "content-type": "text/plain;charset=UTF-8"},
        {"origin": "null", "content-type": "application/x-www-form-urlencoded"},
        {"origin": f"http://{host}.evil.example"},
    ]
    for headers in foreign:
        told = error_of(http.post(route, content=body, headers=headers), 403, "FOREIGN_ORIGIN")
        assert "application/json" in told["message"]
    bare = http.post("/v1/namespaces/default/disable", headers=foreign[0])
    error_of(bare, 403, "FOREIGN_ORIGIN")
    ours = [
        {},
        {"content-type": "text/plain"},
        {"origin": f"http://{host}"},
        {"origin": "https://behind.a.proxy", "content-type": "application/json; charset=utf-8"},
    ]
    for headers in ours:
        assert http.post(route, content=body, headers=headers).status_code == 200
    answer = http.request("OPTIONS", route, headers={"origin": "http://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "route", ["/v1/kv/default/web", "/v1/watch/default/web", "/v1/nodes", "/console", "/healthz"]
)
def test_a_page_whose_name_was_made_to_point_here_reads_nothing(
    http: httpx.Client, route: str
) -> None:
    """To its browser the node is then the page's own site: it read and wrote whatever it liked."""
    told = error_of(http.get(route, headers={"host": "evil.example:7602"}), 403, "FOREIGN_HOST")
    assert "--http-hosts evil.example" in told["message"]
    assert told["details"] == {"setting": "http_hosts", "actual": "evil.example"}


def test_a_node_is_asked_by_its_address_and_its_names(http: httpx.Client) -> None:
    """A probe or a client that may not come in takes a healthy node out of service."""
    port = http.base_url.port
    hosts = [
        "localhost",
        f"LocalHost.:{port}",
        "db.localhost",
        "10.0.0.7:80",
        "[::1]",
        f"[fe80::1]:{port}",
    ]
    for host in [*hosts, socket.gethostname()]:
        assert http.get("/healthz", headers={"host": host}).status_code == 200, host
    for host in (
        "",
        "[evil.example]",
        "1.2.3.4.evil.example",
        "localhost.evil.example",
        "elocalhost",
    ):
        error_of(http.get("/healthz", headers={"host": host}), 403, "FOREIGN_HOST")


async def test_names_of_hosts_are_told_or_are_all() -> None:
    """A node behind a name of its owner's would answer nobody, or, asked for one, everybody."""
    served: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(dict(scope["headers"]).get(b"host", b"none"))

    async def send(message: MutableMapping[str, Any]) -> None:
        answers.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    answers: list[MutableMapping[str, Any]] = []
    hosts = [b"db.example.org:7602", b"DB.Example.Org", b"n1.kv.local", b"kv.local", b"other.org"]
    scope = {"type": "http", "method": "GET", "raw_path": b"/", "query_string": b""}
    for names, taken in (
        (("db.example.org.", "*.kv.local", ""), hosts[:3]),
        (("*",), hosts),
        ((), []),
    ):
        guard = HostGuard(app, names)
        served.clear()
        for host in hosts * 2:
            await guard(scope | {"headers": [(b"host", host)]}, receive, send)
        assert served == taken * 2
        await guard(scope | {"headers": []}, receive, send)
        assert served[-1] == b"none", "browsers name whom they ask: this is none"
    assert {m["status"] for m in answers if "status" in m} == {403}


def test_a_trailing_slash_is_another_path(http: httpx.Client) -> None:
    """A redirect without a body is an answer that no client of ours understands."""
    error_of(http.get("/v1/namespaces/"), 404, "ROUTE_NOT_FOUND")


@pytest.mark.parametrize(
    "request_",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"BREW /pot HTTP/1.1\r\n\r\n",
        b"PUT /v1/kv/default/web/k HTTP/1.1\r\nContent-Length: minus\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nX: " + b"x" * HTTP_HEAD_BYTES_MAX + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * (HTTP_HEAD_BYTES_MAX // 32) + b"\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["ssh", "method", "length", "long header", "many headers", "url"],
)
def test_what_is_no_request_is_refused(served: Served, http: httpx.Client, request_: bytes) -> None:
    """Whatever is wrong, the error has the one shape, and the node does not keep what it was
    sent."""
    head, body = spoken(served.base + 2, request_)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head
    error = json.loads(body)["error"]
    assert (error["code"], error["retry"]) == ("MALFORMED_REQUEST", "no")
    assert http.get("/healthz").status_code == 200


def test_a_client_that_leaves_is_no_error(
    served: Served, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients leave all the time: a stack trace for each of them buries those of real bugs."""
    http.put("/v1/kv/default/web/large", content=bytes(VALUE_BYTES_MAX))
    request = b"GET /v1/kv/default/web/large HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", served.base + 2), timeout=10) as s:
            s.sendall(request * 20)
            s.recv(1)
    for _ in range(20):  # their replies are tried while these are served
        assert http.get("/healthz").status_code == 200
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


def test_docs_page_shows_shapes_as_people_write_them(http: httpx.Client) -> None:
    """A page of JSON schemas is read by nobody, and one that hides what is optional misleads."""
    page = html.unescape(http.get("/docs").text)
    assert '"ttl_ms"?: 1 to' in page
    assert '[{"version": decimal string} or {' in page.replace("\n", "").replace("  ", "")
    assert "restart_txn or reroute or unknown_outcome" in page
    assert "None" not in page


@pytest.mark.parametrize("route", ["/v1/batch", "/v1/multi-write"])
def test_too_many_ops_are_too_large(http: httpx.Client, route: str) -> None:
    """413 with the limit and the actual number, so that a client can cut its request."""
    op = {"op": "put", **WEB, "key": "many", "value": ""}
    error = error_of(http.post(route, json={"ops": [op] * (BATCH_OPS_MAX + 1)}), 413, "TOO_LARGE")
    assert error["details"]["limit"] == BATCH_OPS_MAX
    assert error["details"]["actual"] == BATCH_OPS_MAX + 1


def test_snapshot_zero_is_refused(http: httpx.Client) -> None:
    """No version is 0: reading the newest instead would answer a question that nobody asked."""
    for url in ("/v1/kv/default/web/k?at=0", "/v1/kv/default/web?at=0"):
        error_of(http.get(url), 400, "INVALID_ARGUMENT")
    body = {"keys": [{**WEB, "key": "k"}], "at": "0"}
    error_of(http.post("/v1/multi-get", json=body), 400, "INVALID_ARGUMENT")


def test_b9_multi_write_does_what_can_be_done(http: httpx.Client) -> None:
    """A table that is gone refuses its own ops, and errors name the place of their op."""
    put: dict[str, Any] = {"op": "put", **WEB, "value": "v"}
    ops = [
        {**put, "table": "gone", "key": "a"},
        {**put, "key": "b9a"},
        {**put, "key": "b9b", "if_version": "7"},
        {**put, "ns": "gone", "key": "c"},
    ]
    gone, done, refused, gone_too = http.post("/v1/multi-write", json={"ops": ops}).json()[
        "results"
    ]
    assert gone["error"]["code"] == "TABLE_NOT_FOUND"
    assert gone_too["error"]["code"] == "NAMESPACE_NOT_FOUND"
    assert http.get("/v1/kv/default/web/b9a").headers["etag"] == f'"{done["version"]}"'
    assert refused["error"]["details"]["op"] == 2
    assert refused["error"]["message"].startswith("operation 2: ")


def test_timestamps_in_errors_are_decimal_strings(http: httpx.Client) -> None:
    """64 bits do not fit a JavaScript number."""
    error = error_of(http.get(f"/v1/kv/default/web/k?at={2**64 - 1}"), 400, "INVALID_ARGUMENT")
    assert all(type(error["details"][name]) is str for name in ("at", "now"))
    error = error_of(http.get("/v1/txn/1"), 404, "TXN_NOT_FOUND")
    assert error["details"]["txn"] == "1"
