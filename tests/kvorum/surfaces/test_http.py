"""The HTTP contract, route by route: status, body, headers; and what bad input gets."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

import kvorum
from kv.base import limits
from kvorum.http.routes import docs_page
from kvorum.http.routes.openapi import ROUTES
from kvorum.http.wire import codec
from tests.kit.each import each
from tests.kvorum.surfaces.conftest import Served, error_of

PACKED = {"content-type": "application/msgpack", "accept": "application/msgpack"}


# --------------------------------------------------------------------------------------------- kv


def test_kv_put_get_delete(http: httpx.Client) -> None:
    """Raw bytes in, raw bytes out, the version as the ETag: what every HTTP client relies on."""
    put = http.put("/v1/kv/default/web/k1", content=b"\x00\xffraw")
    assert put.status_code == 200
    version = put.json()["version"]
    assert put.json() == {"version": str(int(version))}
    got = http.get("/v1/kv/default/web/k1")
    assert (got.status_code, got.content) == (200, b"\x00\xffraw")
    assert got.headers["etag"] == f'"{version}"'
    assert got.headers["content-type"] == "application/octet-stream"
    head = http.head("/v1/kv/default/web/k1")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", f'"{version}"')
    gone = http.delete("/v1/kv/default/web/k1")
    assert int(gone.json()["version"]) > int(version)
    error = error_of(http.get("/v1/kv/default/web/k1"), 404, "KEY_NOT_FOUND")
    assert error["retry"] == "no"
    assert http.get(f"/v1/kv/default/web/k1?at={version}").content == b"\x00\xffraw"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.b", "a/b", "../web", 'say "it"', "-x", " é ", "%2F", "."])
def test_a_table_of_any_name_has_an_address(http: httpx.Client, name: str) -> None:
    """SQL makes tables of such names: here they would be cut, or be another table."""
    tables, part = "/v1/namespaces/default/tables", quote(name, safe="").replace(".", "%2E")
    made = http.post(tables, json={"name": name})
    assert made.status_code < 300, made.text
    assert http.put(f"/v1/kv/default/{part}/a/k", content=b"v").status_code == 200
    assert http.get(f"/v1/kv/default/{part}/a/k").content == b"v"
    assert [one["key"] for one in http.get(f"/v1/kv/default/{part}").json()["items"]] == ["a/k"]
    listed = {one["name"] for one in http.get(tables).json()["items"]}
    assert {name, "web"} <= listed
    assert http.post(f"{tables}/{part}/disable").status_code == 200
    assert http.delete(f"{tables}/{part}").status_code < 300
    assert name not in {one["name"] for one in http.get(tables).json()["items"]}


def test_kv_conditions(http: httpx.Client) -> None:
    """412 must carry the version that is there, or the client cannot decide what to do."""
    url = "/v1/kv/default/web/cond"
    error = error_of(http.put(f"{url}?if_version=7", content=b"x"), 412, "CONDITION_FAILED")
    assert error["details"]["version"] is None
    version = http.put(f"{url}?if_absent=true", content=b"1").json()["version"]
    error = error_of(http.put(f"{url}?if_absent=true", content=b"2"), 412, "CONDITION_FAILED")
    assert error["details"]["version"] == version
    assert http.put(f"{url}?if_version={version}&ttl_ms=60000", content=b"3").status_code == 200
    error_of(http.delete(f"{url}?if_version={version}"), 412, "CONDITION_FAILED")
    assert http.get(url).content == b"3"


@pytest.mark.parametrize(
    ("encoded", "key"),
    [
        ("a%2Fb", b"a/b"),
        ("a/b/c", b"a/b/c"),
        ("%00%FF", b"\x00\xff"),
        ("a%20b+c", b"a b+c"),
        ("%E2%82%AC", "€".encode()),
        ("AP8_-g?enc=b64", b"\x00\xff\x3f\xfa"),
        ("AP8_-g==?enc=b64", b"\x00\xff\x3f\xfa"),
    ],
)
def test_kv_key_encodings(http: httpx.Client, served: Served, encoded: str, key: bytes) -> None:
    """A key that two encodings read differently is two records."""
    assert http.put(f"/v1/kv/default/web/{encoded}", content=b"v").status_code == 200
    table = served.by_name["embedded"].table("default", "web")
    found = table.get(key)
    assert found is not None
    assert found.value == b"v"
    table.delete(key)


def test_kv_scan(http: httpx.Client) -> None:
    """Text as text, other bytes as b64, a cursor only when there is more, and the snapshot."""
    for key in ("s/a", "s/b", "s/%FF"):
        http.put(f"/v1/kv/default/web/{key}", content=b"\xff" if key == "s/b" else b"v")
    got = http.get("/v1/kv/default/web?prefix=s/&limit=2").json()
    assert set(got) == {"items", "cursor", "at"}
    assert [i["key"] for i in got["items"]] == ["s/a", "s/b"]
    assert [i["value"] for i in got["items"]] == ["v", {"b64": "/w=="}]
    rest = http.get("/v1/kv/default/web", params={"cursor": got["cursor"]}).json()
    assert [i["key"] for i in rest["items"]] == [{"b64": "cy//"}]
    assert "cursor" not in rest
    assert rest["at"] == got["at"]
    back = http.get("/v1/kv/default/web?start=s/a&end=s/b0&reverse=true").json()
    assert [i["key"] for i in back["items"]] == ["s/b", "s/a"]
    coded = http.get("/v1/kv/default/web?enc=b64&prefix=cy__").json()
    assert len(coded["items"]) == 1


def test_msgpack_both_ways(http: httpx.Client) -> None:
    """The same routes in msgpack, with bytes as bytes."""
    body = {
        "ops": [{"op": "put", "ns": "default", "table": "web", "key": b"\xfe", "value": b"\xfd"}]
    }
    answer = http.post("/v1/batch", content=msgspec.msgpack.encode(body), headers=PACKED)
    assert answer.headers["content-type"] == "application/msgpack"
    version = msgspec.msgpack.decode(answer.content)["version"]
    wanted = {"keys": [{"ns": "default", "table": "web", "key": b"\xfe"}]}
    answer = http.post("/v1/multi-get", content=msgspec.msgpack.encode(wanted), headers=PACKED)
    told = msgspec.msgpack.decode(answer.content)
    assert told["items"] == [{"value": b"\xfd", "version": version}]
    answer = http.get("/v1/namespaces", headers={"accept": "application/msgpack"})
    items = msgspec.msgpack.decode(answer.content)["items"]
    assert "default" in [one["name"] for one in items]
    answer = http.get("/v1/kv/default/web/none", headers={"accept": "application/msgpack"})
    assert msgspec.msgpack.decode(answer.content)["error"]["code"] == "KEY_NOT_FOUND"


# -------------------------------------------------------------------------------------- many keys


def test_batch_multi_get_and_multi_write(http: httpx.Client) -> None:
    """Shapes of the routes that carry many keys."""
    key = {"ns": "default", "table": "web"}
    ops = [
        {"op": "put", **key, "key": "m1", "value": "1"},
        {"op": "put", **key, "key": {"b64": "/21u"}, "value": {"b64": "AA=="}, "ttl_ms": 60000},
        {"op": "delete", **key, "key": "m2"},
    ]
    version = http.post("/v1/batch", json={"ops": ops}).json()["version"]
    keys = [{**key, "key": "m1"}, {**key, "key": "m2"}, {**key, "key": {"b64": "/21u"}}]
    got = http.post("/v1/multi-get", json={"keys": keys}).json()
    assert got["items"] == [
        {"value": "1", "version": version},
        None,
        {"value": "\x00", "version": version},
    ]
    assert int(got["at"]) >= int(version)
    old = http.post("/v1/multi-get", json={"keys": keys, "at": str(int(version) - 1)}).json()
    assert old["items"] == [None, None, None]
    ops = [
        {"op": "put", **key, "key": "m1", "value": "2", "if_absent": True},
        {"op": "put", **key, "key": "m3", "value": "3"},
    ]
    results = http.post("/v1/multi-write", json={"ops": ops}).json()["results"]
    assert results[0]["error"]["code"] == "CONDITION_FAILED"
    assert results[0]["error"]["details"]["version"] == version
    assert set(results[1]) == {"version"}
    error = error_of(http.post("/v1/batch", json={"ops": ops}), 412, "CONDITION_FAILED")
    assert error["details"]["key"] == "m1"
    assert error["details"]["op"] == 0


# ----------------------------------------------------------------------------------- transactions


def test_txn_routes(http: httpx.Client) -> None:
    """The whole life of a transaction, and that its id answers for ever."""
    begun = http.post("/v1/txn", json={"ttl_ms": 20_000}).json()
    assert set(begun) == {"txn", "start_ts"}
    txn = f"/v1/txn/{begun['txn']}"
    key = {"ns": "default", "table": "web", "key": "life1"}
    assert http.post(f"{txn}/get", json=key).json() == {"value": None, "version": None}
    assert http.post(f"{txn}/put", json={**key, "value": "v"}).status_code == 200
    assert http.post(f"{txn}/get", json=key).json() == {"value": "v", "version": None}
    scanned = http.post(f"{txn}/scan", json={"ns": "default", "table": "web", "prefix": "life"})
    assert scanned.json()["items"] == [{"key": "life1", "value": "v", "version": None}]
    assert http.post(f"{txn}/heartbeat", json={}).status_code == 200
    assert http.get(txn).json() == {"status": "pending"}
    assert http.get("/v1/kv/default/web/life1").status_code == 404
    version = http.post(f"{txn}/commit", json={}).json()["version"]
    assert http.post(f"{txn}/commit").json() == {"version": version}
    assert http.get(txn).json() == {"status": "committed", "commit_ts": version}
    assert http.get("/v1/kv/default/web/life1").headers["etag"] == f'"{version}"'
    error = error_of(http.post(f"{txn}/put", json={**key, "value": "w"}), 409, "TXN_COMMITTED")
    assert error["details"]["commit_ts"] == version


def test_txn_abort_conflict_and_expiry(http: httpx.Client) -> None:
    """A client must be able to tell "again, from the start" from "never"."""
    key = {"ns": "default", "table": "web", "key": "x2"}
    first = f"/v1/txn/{http.post('/v1/txn', json={}).json()['txn']}"
    http.post(f"{first}/put", json={**key, "value": "v"})
    assert http.post(f"{first}/abort", json={}).status_code == 200
    assert http.post(f"{first}/abort", json={}).status_code == 200
    assert http.get(first).json() == {"status": "aborted"}
    error = error_of(http.post(f"{first}/commit", json={}), 409, "TXN_ABORTED")
    assert error["retry"] == "restart_txn"
    second = f"/v1/txn/{http.post('/v1/txn', json={}).json()['txn']}"
    http.post(f"{second}/put", json={**key, "value": "v"})
    http.put("/v1/kv/default/web/x2", content=b"other")
    error = error_of(http.post(f"{second}/commit", json={}), 409, "WRITE_CONFLICT")
    assert error["retry"] == "restart_txn"
    third = f"/v1/txn/{http.post('/v1/txn', json={'ttl_ms': 1}).json()['txn']}"
    threading.Event().wait(0.01)
    error_of(http.post(f"{third}/get", json=key), 409, "TXN_ABORTED")
    assert http.get(third).json() == {"status": "aborted"}
    assert http.get("/v1/kv/default/web/x2").content == b"other"


def test_tso(http: httpx.Client) -> None:
    """Ranges that overlap hand out one timestamp twice."""
    one = http.post("/v1/tso", json={"count": 10}).json()
    two = http.post("/v1/tso", json={"count": 1}).json()
    assert one["count"] == 10
    assert int(two["first"]) >= int(one["first"]) + 10


# -------------------------------------------------------------- tables, procedures, the node itself


def test_namespaces_and_tables(http: httpx.Client) -> None:
    """201 with what was made, 409 for a second one, 404 for what is gone."""
    assert http.post("/v1/namespaces", json={"name": "web"}).status_code == 201
    error_of(http.post("/v1/namespaces", json={"name": "web"}), 409, "ALREADY_EXISTS")
    body = {
        "name": "t",
        "split_keys": ["b", {"b64": "/w=="}],
        "columns": [{"name": "id", "type": "int8", "nullable": False}],
        "primary_key": ["id"],
    }
    made = http.post("/v1/namespaces/web/tables", json=body)
    assert made.status_code == 201
    assert made.json()["columns"] == [{"name": "id", "type": "int8", "nullable": False}]
    assert [t["name"] for t in http.get("/v1/namespaces/web/tables").json()["items"]] == ["t"]
    assert http.delete("/v1/namespaces/web").status_code == 409
    assert http.delete("/v1/namespaces/web/tables/t").status_code == 200
    error_of(http.delete("/v1/namespaces/web/tables/t"), 404, "TABLE_NOT_FOUND")
    assert http.delete("/v1/namespaces/web").status_code == 200
    error_of(http.get("/v1/namespaces/web/tables"), 404, "NAMESPACE_NOT_FOUND")


def test_procedures(http: httpx.Client) -> None:
    """202 with the id, the same id for the same Idempotency-Key, the result by waiting."""
    http.put("/v1/kv/default/web/p-from", content=b"5")
    args = {"table": "web", "from": "p-from", "to": "p-to", "amount": 2}
    headers = {"Idempotency-Key": "web-1"}
    first = http.post("/v1/procedures/sample.transfer", json=args, headers=headers)
    assert first.status_code == 202
    assert http.post("/v1/procedures/sample.transfer", json=args, headers=headers).json() == (
        first.json()
    )
    info = http.get(f"/v1/procedures/{first.json()['id']}?wait_ms=10000").json()
    assert (info["state"], info["result"]) == ("SUCCESS", {"moved": 2})
    assert {"id", "name", "state", "step", "steps", "locks"} <= set(info)
    assert "error" not in info
    failed = http.post("/v1/procedures/sample.transfer", json={**args, "refuse": True}).json()["id"]
    info = http.get(f"/v1/procedures/{failed}?wait_ms=10000").json()
    assert (info["state"], info["error"]["code"]) == ("ROLLED_BACK", "NO_SUCH_ACCOUNT")
    assert "result" not in info
    listed = http.get("/v1/procedures?state=ROLLED_BACK&name=sample.transfer").json()["items"]
    assert failed in [p["id"] for p in listed]
    waiting = http.post("/v1/procedures/sample.wait").json()["id"]
    assert http.post(f"/v1/procedures/{waiting}/abort", json={"reason": "x"}).status_code == 202
    error_of(http.get("/v1/procedures/123456789"), 404, "PROCEDURE_NOT_FOUND")
    assert http.post("/v1/procedures/sample.none", json={}).status_code == 404


@pytest.mark.slow
def test_node_routes(http: httpx.Client, served: Served) -> None:
    """What monitoring and load balancers look at."""
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ready"}
    (node,) = http.get("/v1/nodes").json()["items"]
    assert {"id", "address", "state", "leaders", "replicas"} <= set(node)
    assert node["address"] == f"127.0.0.1:{served.base}"
    partitions = http.get("/v1/partitions").json()["items"]
    wanted = {"id", "start", "end", "leader", "replicas", "learners", "witnesses", "epoch"}
    assert all(wanted | {"size", "load"} <= set(p) for p in partitions)
    page = http.get("/metrics").text
    for name in (
        'kvorum_http_requests_total{route="/v1/kv"',
        'kvorum_http_request_seconds_bucket{le="+Inf",route="/v1/kv"}',
        "kvorum_raft_syncs_total",
        "kvorum_partition_writes_total",
        "kvorum_tso_handed_out_total",
        "kvorum_storage_file_bytes",
        "process_resident_memory_bytes",
    ):
        assert name in page, name


def test_openapi_describes_every_route(http: httpx.Client) -> None:
    """An undocumented route is one that only its author can use."""
    schema = http.get("/openapi.json").json()
    described = {(m.upper(), path) for path, ms in schema["paths"].items() for m in ms}
    assert described == {(r.method, r.path) for r in ROUTES}
    for methods in schema["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert "400" in operation["responses"]
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for route in ROUTES:
        assert route.path in page.text
    assert "http://" not in page.text.replace("http-equiv", "")


@each("path", ["/docs", "/openapi.json"])
def test_pages_for_whoever_asks_are_made_once(
    http: httpx.Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers would have the node make a large page as often as they like."""
    first = http.get(path)
    with monkeypatch.context() as broken:  # the other page is made after this
        broken.setattr(docs_page, "escape", None)
        broken.setattr(codec, "_json_encode", None)
        again = http.get(path)
    assert (again.status_code, again.content) == (200, first.content)


@each("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_every_documented_route_is_served(http: httpx.Client, route: Any) -> None:
    """A documented route that answers "no such route" is a promise that nobody keeps."""
    path = re.sub(r"\{\w+\}", "no-such", route.path.replace("{id}", "1"))
    if path == "/v1/init":
        path += "?no=such"  # else the node would want a credential from then on
    answer = http.request(route.method, path)
    if answer.headers["content-type"] == "application/json" and "error" in answer.json():
        code = answer.json()["error"]["code"]
        assert code not in ("ROUTE_NOT_FOUND", "METHOD_NOT_ALLOWED", "INTERNAL"), answer.text


# ---------------------------------------------------------------------------------------- bad input

KEY = {"ns": "default", "table": "web", "key": "bad"}
OP = {"op": "put", **KEY, "value": "v"}
BATCH = "/v1/batch"
BAD: list[tuple[str, str, object, int]] = [
    ("POST", BATCH, b"{", 400),
    ("POST", BATCH, b"\xff\xfe", 400),
    ("POST", BATCH, b"[]", 400),
    ("POST", BATCH, b"null", 400),
    ("POST", BATCH, b"[" * 70_000, 400),
    ("POST", BATCH, b"[" * 100_000, 413),
    ("POST", BATCH, b'{"ops": NaN}', 400),
    ("POST", BATCH, b'{"ops": [{"op": "put", "ns": "\\ud800"}]}', 400),
    ("POST", BATCH, {}, 400),
    ("POST", BATCH, {"ops": {}}, 400),
    ("POST", BATCH, {"ops": [1]}, 400),
    ("POST", BATCH, {"ops": [{}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "op": "increment"}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "value": 1}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "value": {"b64": "!"}}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "value": {"b64": "AA==", "x": 1}}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "if_version": 7}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "if_version": "-7"}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "if_version": "99999999999999999999999"}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "if_absent": "yes"}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "ttl_ms": 0}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "ttl_ms": 1.5}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "if_abent": True}]}, 400),
    ("POST", BATCH, {"ops": [{"op": "put", **KEY}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "op": "delete"}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "key": ""}]}, 400),
    ("POST", BATCH, {"ops": [{**OP, "key": "k" * (limits.KEY_BYTES_MAX + 1)}]}, 413),
    ("POST", BATCH, {"ops": [{**OP, "table": "none"}]}, 404),
    ("POST", BATCH, {"ops": [{**OP, "ns": "none"}]}, 404),
    ("POST", f"{BATCH}?x=1", {"ops": [OP]}, 400),
    ("POST", "/v1/multi-get", {"keys": [KEY], "at": "x"}, 400),
    ("POST", "/v1/multi-get", {"keys": [KEY], "at": str(1 << 63)}, 400),
    ("POST", "/v1/multi-get", {"keys": "k"}, 400),
    ("POST", "/v1/multi-get", {"keys": [OP]}, 400),
    ("PUT", "/v1/kv/default/web/bad?if_absent=1", b"v", 400),
    ("PUT", "/v1/kv/default/web/bad?if_absent=true&if_version=1", b"v", 400),
    ("PUT", "/v1/kv/default/web/bad?if_version=0", b"v", 400),
    ("PUT", "/v1/kv/default/web/bad?if_absent=true&if_absent=true", b"v", 400),
    ("PUT", "/v1/kv/default/web/bad?if_absnt=true", b"v", 400),
    ("PUT", "/v1/kv/default/web/bad?ttl_ms=-1", b"v", 400),
    ("PUT", "/v1/kv/default/web/bad?enc=hex", b"v", 400),
    ("PUT", "/v1/kv/default/web/b!d?enc=b64", b"v", 400),
    ("PUT", "/v1/kv/default/web/", b"v", 400),
    ("PUT", "/v1/kv/default/none/bad", b"v", 404),
    ("PUT", "/v1/kv/default/w%FFb/bad", b"v", 400),
    ("PUT", f"/v1/kv/default/web/{'k' * (limits.KEY_BYTES_MAX + 1)}", b"v", 413),
    ("PUT", "/v1/kv/default/web/bad", bytes(limits.VALUE_BYTES_MAX + 1), 413),
    ("POST", "/v1/kv/default/web/bad", b"v", 405),
    ("PUT", "/v1/kv/default/web", b"v", 405),
    ("GET", "/v1/kv/default", b"", 404),
    ("GET", "/v1/kv/default/web/bad?at=-1", b"", 400),
    ("GET", "/v1/kv/default/web/bad?at=9223372036854775808", b"", 400),
    ("GET", "/v1/kv/default/web?limit=0", b"", 400),
    ("GET", "/v1/kv/default/web?limit=1000000", b"", 400),
    ("GET", "/v1/kv/default/web?cursor=abc", b"", 400),
    ("GET", "/v1/kv/default/web?revers=true", b"", 400),
    ("GET", "/v1/kv/default/web?enc=b64&prefix=!", b"", 400),
    ("POST", "/v1/txn", {"ttl_ms": 0}, 400),
    ("POST", "/v1/txn", {"ttl_ms": limits.TXN_TTL_MS_MAX + 1}, 400),
    ("POST", "/v1/txn", {"isolation": "dirty"}, 400),
    ("GET", "/v1/txn", b"", 405),
    ("GET", "/v1/txn/abc", b"", 400),
    ("GET", f"/v1/txn/{1 << 63}", b"", 400),
    ("POST", "/v1/txn/1/increment", {}, 404),
    ("GET", "/v1/txn/1/get", b"", 405),
    ("POST", "/v1/tso", {"count": 0}, 400),
    ("POST", "/v1/tso", {"count": "1"}, 400),
    ("POST", "/v1/tso", {"count": 2, "above": "1"}, 400),
    ("POST", "/v1/namespaces", {"name": ""}, 400),
    ("POST", "/v1/namespaces", {"name": "a b"}, 400),
    ("POST", "/v1/namespaces", {"name": 1}, 400),
    ("POST", "/v1/namespaces", {"name": "n" * 65}, 400),
    ("POST", "/v1/namespaces/default/tables", {"name": "t", "columns": [{"name": "a"}]}, 400),
    ("POST", "/v1/namespaces/default/tables", {"name": "t", "split_keys": ["b", "a"]}, 400),
    ("POST", "/v1/namespaces/none/tables", {"name": "t"}, 404),
    ("DELETE", "/v1/namespaces/none", b"", 404),
    ("POST", "/v1/procedures/sample.transfer", b"{", 400),
    ("GET", "/v1/procedures/abc", b"", 400),
    ("GET", "/v1/procedures/1?wait_ms=-1", b"", 400),
    ("GET", "/v1/procedures?state=NONE", b"", 400),
    ("GET", "/v1/none", b"", 404),
    ("DELETE", "/healthz", b"", 405),
]


@each(("method", "url", "body", "status"), BAD, ids=[f"{i}-{b[1][:40]}" for i, b in enumerate(BAD)])
def test_bad_input(http: httpx.Client, method: str, url: str, body: object, status: int) -> None:
    """The right status, a complete error, and nothing done."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = http.request(method, url, content=content)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["retry"] == "no"
    assert error["code"] != "INTERNAL"
    if status == 413:  # what is refused while it is read has no actual size yet
        limit = error["details"]["limit"]
        assert limit < error["details"].get("actual", limit + 1)
    got = http.post("/v1/multi-get", json={"keys": [KEY]}).json()
    assert got["items"] == [None]


@pytest.mark.parametrize(
    "content",
    [b"\xc1", b"\x81", b"\x81\x80\x01", b"\xd4\x01\x00", b"\x91" * 5_000, b"\xa1\xff", b"\x80\x80"],
    ids=range(7),
)
def test_malformed_msgpack(http: httpx.Client, content: bytes) -> None:
    """Bytes that no encoder made must be refused, not crash the route."""
    answer = http.post("/v1/batch", content=content, headers={"content-type": PACKED["accept"]})
    assert answer.status_code == 400
    told = msgspec.msgpack.decode(answer.content)
    assert told["error"]["code"] in ("MALFORMED_BODY", "INVALID_ARGUMENT")


def test_a_body_that_is_too_large_is_not_kept(http: httpx.Client) -> None:
    """The limit must hold while the body arrives, also when nobody said how long it will be."""

    def chunks() -> Iterator[bytes]:
        for _ in range(limits.VALUE_BYTES_MAX // (1 << 20) + 1):
            yield bytes(1 << 20)

    answer = http.put("/v1/kv/default/web/bad", content=chunks())
    error = error_of(answer, 413, "TOO_LARGE")
    assert error["details"]["limit"] == limits.VALUE_BYTES_MAX


def test_reads_below_the_safepoint(served: Served, http: httpx.Client) -> None:
    """A read of versions that may be gone must say so, never show what is left."""
    answer = http.get("/v1/kv/default/web/k1?at=1")
    assert answer.status_code in (404, 410)
    with pytest.raises(kvorum.KvorumError):
        served.by_name["http"].status((1 << 40) << 18)
