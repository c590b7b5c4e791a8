"""A watch is a request that lasts: it ends with the right, the credential, or the first user."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import kvorum
from tests.kit.machine import free_port_base


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    base = free_port_base()
    with kvorum.open(tmp_path / "data", port=base) as db:
        db.create_table("default", "t")
        yield f"http://127.0.0.1:{base + 2}"


@contextlib.contextmanager
def watching(url: str, headers: dict[str, str]) -> Iterator[Iterator[str]]:
    """The lines of a watch that has begun."""
    with httpx.stream(
        "GET", f"{url}/v1/watch/default/t?from=0", headers=headers, timeout=30
    ) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        next(lines)
        yield lines


def error_of(lines: Iterator[str]) -> dict[str, Any]:
    """What the last event says; the stream ends then."""
    told = [line for line in lines if line.startswith("data:")]
    error: dict[str, Any] = json.loads(told[-1].removeprefix("data:"))["error"]
    return error


@pytest.mark.few(1)
@pytest.mark.parametrize("ends", ["right", "token", "user"])
def test_a_watch_ends_with_what_it_was_let_in_by(url: str, ends: str) -> None:
    """Who lost a right would see every change for as long as the connection lives."""
    admin = {"authorization": "Bearer " + httpx.post(f"{url}/v1/init").json()["token"]}

    def done(method: str, path: str, body: object = None) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        answer = httpx.request(method, url + path, content=content, headers=admin, timeout=20)
        assert answer.is_success, answer.text
        return answer.json()

    grant: dict[str, object] = {"role": "ann", "actions": ["read"], "kind": "table", "name": "t"}
    grant["namespace"] = "default"
    done("POST", "/v1/users", {"name": "ann"})
    done("POST", "/v1/grants", grant)
    token = done("POST", "/v1/tokens", {"user": "ann", "name": "w"})["token"]
    with watching(url, {"authorization": f"Bearer {token}"}) as lines:
        match ends:
            case "right":
                done("POST", "/v1/grants/take", grant)
            case "token":
                done("DELETE", "/v1/tokens/ann/w")
            case _:
                done("DELETE", "/v1/users/ann")
        done("PUT", "/v1/kv/default/t/k", "v")  # something to tell
        assert error_of(lines)["code"] == {"right": "FORBIDDEN"}.get(ends, "UNAUTHENTICATED")


def test_a_watch_from_before_the_first_user_ends(url: str) -> None:
    """Whoever came before would stay the owner."""
    with watching(url, {}) as lines:
        made = httpx.post(f"{url}/v1/init").json()
        headers = {"authorization": f"Bearer {made['token']}"}
        assert httpx.put(f"{url}/v1/kv/default/t/k", content=b"v", headers=headers).is_success
        assert error_of(lines)["code"] == "UNAUTHENTICATED"
