"""What the log of requests says of who asked over the native port, and of what was refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import kvorum
from kv.base.adapters import LoopTimers, SystemRng
from kv.base.credentials import Credential
from kv.base.errors import Forbidden, KvorumError, Unauthenticated
from kv.client.client import connect
from procedures.verbs import DROP_PARTITION
from tests.kvorum.surfaces.test_stamps import audited, rows


def test_the_log_says_who_asked_by_what_and_what_was_refused(tmp_path: Path) -> None:
    """What was refused left no trace, and what was not said an address alone."""
    with audited(tmp_path) as (db, base, file):
        db.access("init")
        db.create_namespace("shop")
        db.create_table("shop", "orders")
        db.access("user.create", {"name": "reader"})
        grant = {"actions": ["read"], "kind": "table", "namespace": "shop", "name": "orders"}
        db.access("grant.give", {"role": "reader", **grant})
        token = db.access("token.create", {"user": "reader", "name": "ci"})["token"]
        with kvorum.connect(f"127.0.0.1:{base}", token=token) as mine:
            orders = mine.table("shop", "orders")
            assert orders.get(b"k") is None
            with pytest.raises(Forbidden):
                orders.put(b"k", b"v")

        async def order() -> str:
            timers, shown = LoopTimers(asyncio.get_running_loop()), Credential(token=token)
            address = ("127.0.0.1", base)
            kv = await connect([address], timers=timers, rng=SystemRng(), credential=shown)
            try:
                await kv.call_node(DROP_PARTITION, [1])
            except KvorumError as error:
                return error.code
            finally:
                kv.close()
            return "done"

        assert asyncio.run(order()) == "FORBIDDEN"
    told = [row for row in rows(file) if row["surface"] == "native"]
    assert {(row["user"], row["credential"]) for row in told} == {("reader", "token ci")}
    by_method = {row["method"]: row for row in told}
    assert by_method["GET"]["allowed"]
    for method in ("PUT", "DROP_PARTITION"):
        row = by_method[method]
        assert not row["allowed"], row
        assert row["denied"], row
        assert row["code"] == "FORBIDDEN", row


def test_the_log_says_who_logged_in_and_whose_login_failed(tmp_path: Path) -> None:
    """Guesses at the native port left no trace in the log of requests, and who came in only with
    his first request; a password must not be in it.
    """
    with audited(tmp_path) as (db, base, file):
        db.access("init")
        db.access("user.create", {"name": "ann", "password": "correct horse"})
        url = f"127.0.0.1:{base}"
        with pytest.raises(Unauthenticated):
            kvorum.connect(url, user="ann", password="wrong horse")
        with pytest.raises(Unauthenticated):
            kvorum.connect(url, token="kvt_secret")
        with pytest.raises(Unauthenticated):
            kvorum.connect(url)
        kvorum.connect(url, user="ann", password="correct horse").close()
    logins = [row for row in rows(file) if row["method"] == "login"]
    failed, let_in = logins[:3], logins[3:]
    assert let_in, "a line for each of its connections"
    for row in let_in:
        assert (row["user"], row["credential"], row["allowed"]) == ("ann", "password", True)
        assert (row["surface"], row["code"]) == ("native", "OK")
        assert row["client"].startswith("127.0.0.1:")
    assert [row.get("user", "") for row in failed] == ["ann", "", ""]
    for row in failed:
        assert (row["surface"], row["allowed"], row["code"]) == ("native", False, "UNAUTHENTICATED")
        assert row["client"].startswith("127.0.0.1:")
        assert row["denied"]
    for secret in ("horse", "kvt_secret"):
        assert secret not in file.read_text()
