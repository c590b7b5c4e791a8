"""Who holds, who waits, and how a transaction wants to wait, through every surface (D8, U2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import kvorum
from kv.base.adapters import LoopTimers, SystemRng
from kv.base.ids import TableId
from kv.base.keys import table_prefix
from kv.base.limits import DEADLINE_MS_MAX
from kv.base.methods import BLIND, OP_PUT, PREWRITE, RESOLVE, ROLLBACK
from kv.client.client import connect
from tests.kit.commands import run, told
from tests.kit.waiting import poll
from tests.kvorum.surfaces.conftest import Served, error_of

TTL_MS = 60_000


def storage_key(db: kvorum.Database, table: kvorum.Table, key: str) -> bytes:
    (id_,) = [info.id for info in db.tables(table.ns) if info.name == table.name]
    return table_prefix(TableId(id_)) + key.encode()


class Holder:
    """A transaction by hand, whose coordinator stays away."""

    def __init__(self, served: Served, table: kvorum.Table, owner: str) -> None:
        self._served, self._table, self._owner = served, table, owner
        self._db = served.by_name["embedded"]
        self.txn = self._db.timestamp()
        self._keys: list[bytes] = []

    def _send(self, method: int, stored: bytes, *args: Any) -> None:
        async def call() -> None:
            timers = LoopTimers(asyncio.get_running_loop())
            address = "127.0.0.1", self._served.base
            kv = await connect([address], timers=timers, rng=SystemRng())
            await kv.call(method, stored, *args, budget_ms=10_000)
            kv.close()

        asyncio.run(call())

    def lock(self, key: str) -> None:
        stored = storage_key(self._db, self._table, key)
        self._keys.append(stored)
        ops = [[OP_PUT, stored, b"held", None, 0]]
        options = {"owner": self._owner}
        self._send(PREWRITE, stored, self.txn, self._keys[0], TTL_MS, ops, BLIND, options)

    def end(self) -> None:
        self._send(ROLLBACK, self._keys[0], self._keys[0], self.txn)
        for stored in self._keys:
            self._send(RESOLVE, stored, self.txn, 0, [stored])


@contextmanager
def held(served: Served, table: kvorum.Table, key: str, owner: str) -> Iterator[int]:
    """Somebody holds the key; his transaction."""
    holder = Holder(served, table, owner)
    holder.lock(key)
    try:
        yield holder.txn
    finally:
        holder.end()


def of_table(found: dict[str, Any], what: str, table: kvorum.Table) -> list[dict[str, Any]]:
    return [row for row in found[what] if row.get("table") == table.name]


def test_u2_locks_and_waits_are_told_alike(
    served: Served, db: kvorum.Database, table: kvorum.Table
) -> None:
    """Somebody who waits needs to see for whom, since when, and whose it is, wherever he looks."""
    with ThreadPoolExecutor(1) as pool:
        with held(served, table, "k", "nightly import") as holder:

            def write() -> int:
                with db.transaction(owner="ada", priority="low") as t:
                    t.table(table.ns, table.name).put("k", b"later")
                return t.version or 0

            waiting: Future[int] = pool.submit(write)
            poll(lambda: of_table(db.locks(), "waits", table))
            found = db.locks()
            (lock,) = of_table(found, "locks", table)
            assert lock["key"] == b"k"
            assert (lock["kind"], lock["ns"], lock["txn"]) == ("intent", table.ns, str(holder))
            assert (lock["owner"], lock["waiting"]) == ("nightly import", 1)
            assert TTL_MS <= lock["ttl_ms"] < TTL_MS + 5_000, "from its start"
            assert 0 <= lock["age_ms"] < 20_000
            (wait,) = of_table(found, "waits", table)
            assert (wait["kind"], wait["key"]) == ("intent", b"k")
            assert (wait["owner"], wait["priority"]) == ("ada", "low")
            assert (wait["holder"], wait["holder_owner"]) == (str(holder), "nightly import")
            assert wait["node"] == lock["node"] == 1
            assert int(wait["txn"]) > holder
            assert found["missing"] == []
            assert found["more"] is False
        assert waiting.result(10) > holder
    assert of_table(db.locks(), "locks", table) == []
    assert of_table(db.locks(), "waits", table) == []


@pytest.mark.parametrize("wait_ms", [0, 150])
def test_d8_nowait_and_lock_timeout(
    served: Served, db: kvorum.Database, table: kvorum.Table, wait_ms: int
) -> None:
    """A surface that forgets the wish would wait for the whole deadline."""
    with held(served, table, "k", "nightly import") as holder:
        t = db.transaction(lock_wait_ms=wait_ms)
        t.table(table.ns, table.name).put("k", b"mine")
        with pytest.raises(kvorum.KeyLocked) as refused:
            t.commit()
    error = refused.value
    assert (error.code, error.disposition) == ("KEY_LOCKED", "retry")
    assert error.details["txn"] == str(holder)
    assert error.details["key"] == b"k"
    assert error.details["table"] == table.name
    assert error.details["waited_ms"] >= wait_ms
    assert f"b'k' of {table.ns}.{table.name}" in error.message


def test_d8_deadlock_names_the_circle_in_the_users_terms(
    served: Served, db: kvorum.Database, table: kvorum.Table
) -> None:
    """A circle of numbers and storage keys helps nobody."""
    holder = Holder(served, table, "nightly import")
    holder.lock("a")
    t = db.transaction(owner="ada")
    for key in "az":
        t.table(table.ns, table.name).put(key, b"mine")
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(t.commit)
        poll(lambda: of_table(db.locks(), "waits", table))
        holder.lock("z")
        with pytest.raises(kvorum.TxnAborted) as victim:
            committing.result(10)
    holder.end()
    error = victim.value
    assert (error.code, error.disposition) == ("DEADLOCK", "restart_txn")
    assert error.details["txn"] == str(t.id)
    circle = error.details["cycle"]
    assert [(step["owner"], step["key"]) for step in circle] == [
        ("ada", b"a"),
        ("nightly import", b"z"),
    ]
    assert {(step["ns"], step["table"]) for step in circle} == {(table.ns, table.name)}
    assert [step["waits_for"] for step in circle] == [str(holder.txn), str(t.id)]
    for what in ("of ada", "of nightly import", f"b'a' of {table.ns}.{table.name}"):
        assert what in error.message


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": "urgent"},
        {"priority": 1},
        {"lock_wait_ms": -1},
        {"lock_wait_ms": DEADLINE_MS_MAX + 1},
        {"owner": "x" * 65},
    ],
)
def test_d8_wrong_wishes_are_refused(db: kvorum.Database, wrong: dict[str, Any]) -> None:
    """A misspelt priority that is ignored is found out when it matters."""
    (name,) = wrong
    with pytest.raises(kvorum.InvalidArgument, match=name):
        db.transaction(**wrong)


def test_d8_wishes_over_plain_http(served: Served, http: httpx.Client) -> None:
    """Any client may say how it waits."""
    table = served.by_name["embedded"].table("default", "web")
    for wrong in ({"priority": 2}, {"lock_wait_ms": -1}, {"owner": 7}, {"patience": 1}):
        error = error_of(http.post("/v1/txn", json=wrong), 400, "INVALID_ARGUMENT")
        assert next(iter(wrong)) in error["message"]
    with held(served, table, "k", "nightly import") as holder:
        body = {"priority": "high", "lock_wait_ms": 0, "owner": "curl"}
        txn = http.post("/v1/txn", json=body).json()["txn"]
        http.post(
            f"/v1/txn/{txn}/put", json={"ns": "default", "table": "web", "key": "k", "value": "v"}
        )
        error = error_of(http.post(f"/v1/txn/{txn}/commit", json={}), 409, "KEY_LOCKED")
        assert error["retry"] == "retry"
        assert error["details"]["txn"] == str(holder)
        found = http.get("/v1/locks").json()
        assert [row["key"] for row in found["locks"] if row["txn"] == str(holder)] == ["k"]
    error_of(http.get("/v1/locks?what=1"), 400, "INVALID_ARGUMENT")


def test_u2_waiting_procedures_are_in_the_same_list(db: kvorum.Database) -> None:
    """Whoever looks for what stands still would have to look in two places."""
    procedure = db.submit("sample.wait")
    try:

        def mine() -> list[dict[str, Any]]:
            return [w for w in db.locks()["waits"] if w.get("procedure") == str(procedure)]

        poll(lambda: bool(mine()))
        (wait,) = mine()
        assert wait["kind"] == "procedure"
        assert wait["resource"] == "event never"
        assert wait["owner"] == "user"
        assert wait["node"] == 1
        assert wait["waited_ms"] >= 0
    finally:
        db.abort_procedure(procedure, "the test is over")


def test_u2_kvorum_locks(served: Served) -> None:
    """The operator's first question when something hangs."""
    db = served.by_name["embedded"]
    if "locksweb" not in [t.name for t in db.tables("default")]:
        db.create_table("default", "locksweb")
    table = db.table("default", "locksweb")
    with ThreadPoolExecutor(1) as pool:
        with held(served, table, "k", "nightly import") as holder:
            waiting = pool.submit(table.put, "k", b"v")
            poll(lambda: of_table(db.locks(), "waits", table))
            found = told("locks", connect=served.address)
            (lock,) = of_table(found, "locks", table)
            assert (lock["key"], lock["txn"], lock["owner"]) == ("k", str(holder), "nightly import")
            text = run("locks", connect=served.address).out.decode()
            first, second = text.split("\n\n")
            assert first.startswith("HELD ")
            assert f"default/locksweb k  intent  {holder}" in first
            assert "WAITS FOR" in second
            assert "a single write" in second
            assert "nightly import" in second
        assert waiting.result(10)
