"""Lean clients of the HTTP API: raw HTTP/1.1 with keep-alive over a socket.

A full HTTP library costs several times what the server does, and would be what is measured.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from bench.closed_loop import Connection, Failed, Script
from bench.spec import Spec

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_GOOD = b"HTTP/1.1 2"


def request(method: str, target: bytes, body: bytes = b"", kind: bytes = b"") -> bytes:
    head = b"%s %s HTTP/1.1\r\nhost: 127.0.0.1\r\n" % (method.encode(), target)
    if body:
        head += b"content-type: %s\r\ncontent-length: %d\r\n" % (kind, len(body))
    return head + b"\r\n" + body


def json_request(target: bytes, message: Any) -> bytes:
    return request("POST", target, json.dumps(message).encode(), b"application/json")


def body_of(data: bytes | bytearray) -> bytes:
    """The body of a complete response. Raises Failed for a status that is not 2xx."""
    head, _, body = bytes(data).partition(_HEAD_END)
    if not head.startswith(_GOOD):
        status = head.split(b"\r\n", 1)[0].decode(errors="replace")
        raise Failed(f"{status} {body[:200].decode(errors='replace')}")
    return body


class HttpConnection(Connection):
    def missing(self, data: bytes | bytearray) -> int:
        end = data.find(_HEAD_END)
        if end < 0:
            return 1
        head = bytes(data[:end]).lower()
        at = head.find(_LENGTH)
        if at < 0:
            raise Failed("a response without content-length: chunked replies are not read here")
        length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        return max(0, end + len(_HEAD_END) + length - len(data))


class Simple:
    """put, get by URL."""

    def __init__(self, spec: Spec, keys: Sequence[bytes], rng: Random, value: bytes) -> None:
        self._target = f"/v1/kv/{spec.namespace}/{spec.table}/".encode()
        self._put = spec.op == "put"
        self._value, self._keys, self._choose = value, keys, rng.random

    def begin(self) -> bytes:
        target = self._target + self._keys[int(self._choose() * len(self._keys))]
        if self._put:
            return request("PUT", target, self._value, b"application/octet-stream")
        return request("GET", target)

    def reply(self, data: bytes | bytearray) -> None:
        if not data.startswith(_GOOD):
            body_of(data)


class Scan:
    def __init__(self, spec: Spec, keys: Sequence[bytes], rng: Random, value: bytes) -> None:
        self._spec, self._keys, self._choose = spec, keys, rng.random

    def begin(self) -> bytes:
        last = max(1, len(self._keys) - self._spec.rows_per_op)
        start = self._keys[int(self._choose() * last)]
        where = f"/v1/kv/{self._spec.namespace}/{self._spec.table}?limit={self._spec.rows_per_op}"
        return request("GET", where.encode() + b"&start=" + start)

    def reply(self, data: bytes | bytearray) -> None:
        found = len(json.loads(body_of(data))["items"])
        if found != self._spec.rows_per_op:
            raise Failed(f"a page of {found} rows instead of {self._spec.rows_per_op}")


class Batch:
    def __init__(self, spec: Spec, keys: Sequence[bytes], rng: Random, value: bytes) -> None:
        self._rng, self._keys, self._rows = rng, keys, spec.rows_per_op
        value64 = {"b64": base64.b64encode(value).decode()}
        self._op = {"op": "put", "ns": spec.namespace, "table": spec.table, "value": value64}

    def begin(self) -> bytes:
        keys = self._rng.sample(self._keys, self._rows)
        return json_request(b"/v1/batch", {"ops": [{**self._op, "key": k.decode()} for k in keys]})

    def reply(self, data: bytes | bytearray) -> None:
        body_of(data)


class Txn:
    """begin, get, put, commit: four requests."""

    def __init__(self, spec: Spec, keys: Sequence[bytes], rng: Random, value: bytes) -> None:
        self._rng, self._keys = rng, keys
        self._row = {"ns": spec.namespace, "table": spec.table}
        self._value = {"b64": base64.b64encode(value).decode()}
        self._txn, self._todo = b"", [""]

    def begin(self) -> bytes:
        self._todo = ["commit", "put", "get"]
        self._row["key"] = self._rng.choice(self._keys).decode()
        return json_request(b"/v1/txn", {"ttl_ms": 5000})

    def reply(self, data: bytes | bytearray) -> bytes | None:
        body = body_of(data)
        if not self._todo:
            return None
        verb = self._todo.pop()
        if verb == "get":
            self._txn = str(json.loads(body)["txn"]).encode()
        row: dict[str, Any] = {} if verb == "commit" else dict(self._row)
        if verb == "put":
            row["value"] = self._value
        return json_request(b"/v1/txn/%s/%s" % (self._txn, verb.encode()), row)


SCRIPTS: dict[str, Callable[[Spec, Sequence[bytes], Random, bytes], Script]] = {
    "put": Simple,
    "get": Simple,
    "scan": Scan,
    "batch": Batch,
    "txn": Txn,
}
