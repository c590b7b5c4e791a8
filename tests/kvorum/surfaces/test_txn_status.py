"""What became of an HTTP transaction is known after its node has restarted (D4)."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import kvorum
from tests.kit.machine import free_port_base

pytestmark = pytest.mark.slow


def ask(http: httpx.Client, method: str, path: str, body: object = None) -> dict[str, str]:
    answer = http.request(method, path, json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, str] = answer.json()
    return told


def test_d4_http_transactions_are_answered_after_a_restart(tmp_path: Path) -> None:
    """A client that asks again after a restart would be told "pending" of what is long over."""
    base = free_port_base()
    url = f"http://127.0.0.1:{base + 2}"
    row = {"ns": "default", "table": "t", "key": "k"}
    with kvorum.open(tmp_path / "data", port=base) as db, httpx.Client(base_url=url) as http:
        db.create_table("default", "t")

        def begin(**more: object) -> str:
            return ask(http, "POST", "/v1/txn", more)["txn"]

        written, empty, aborted, wrote_nothing, refused, left_open = (begin() for _ in range(6))
        for txn in (written, aborted, refused):
            ask(http, "POST", f"/v1/txn/{txn}/put", {**row, "value": txn})
        versions = [ask(http, "POST", f"/v1/txn/{t}/commit")["version"] for t in (written, empty)]
        for txn in (aborted, wrote_nothing):
            ask(http, "POST", f"/v1/txn/{txn}/abort")
        assert http.post(f"/v1/txn/{refused}/commit").status_code == 409
    ended = {
        **{key: {"status": "aborted"} for key in (aborted, wrote_nothing, refused, left_open)},
        written: {"status": "committed", "commit_ts": versions[0]},
        empty: {"status": "committed", "commit_ts": versions[1]},
    }
    with kvorum.open(tmp_path / "data", port=base) as db, httpx.Client(base_url=url) as http:
        assert {txn: ask(http, "GET", f"/v1/txn/{txn}") for txn in ended} == ended
        assert ask(http, "POST", f"/v1/txn/{empty}/commit")["version"] == versions[1]
        assert http.post(f"/v1/txn/{aborted}/commit").status_code == 409
        value = db.table("default", "t").get("k")
        assert value is not None
        assert value.value == written.encode()
