"""What users of transactions stumbled over: conditions, ends, outcomes, many keys at once (D4, D8,
P10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

import kvorum
from kv.base.adapters import SystemRng
from kvorum.http.client.http_backend import HttpBackend
from kvorum.http.client.transport import HttpTransport, Lost
from tests.kit.commands import run, told
from tests.kit.waiting import poll
from tests.kvorum.surfaces.conftest import Served, error_of
from tests.kvorum.surfaces.test_waits import Holder, held, of_table


def error(act: Callable[[], Any]) -> kvorum.KvorumError:
    with pytest.raises(kvorum.KvorumError) as refused:
        act()
    return refused.value


# ------------------------------------------------------------------------------------- conditions


def test_b2_conditions_of_a_transaction(db: kvorum.Database, table: kvorum.Table) -> None:
    """What a batch can ask for, a transaction must be able to: else people write races."""
    version = table.put("k", b"1")
    with db.transaction() as t:
        mine = t.table(table.ns, table.name)
        mine.put("new", b"v", if_absent=True)
        mine.put("k", b"2", if_version=version, ttl_ms=600_000)
        mine.put("z", b"elsewhere")
    found = table.get("k")
    assert found is not None
    assert (found.value, found.version) == (b"2", t.version)
    with db.transaction() as t:
        t.table(table.ns, table.name).delete("k", if_version=found.version)
    assert table.get("k") is None


@pytest.mark.parametrize("what", ["if_absent", "if_version", "delete"])
def test_b2_a_condition_that_fails_names_its_key(
    db: kvorum.Database, table: kvorum.Table, what: str
) -> None:
    """Nothing of it may be written, and the user must see which of his keys it was."""
    version = table.put("k", b"1")
    t = db.transaction()
    mine = t.table(table.ns, table.name)
    mine.put("z", b"with it")
    if what == "if_absent":
        mine.put("k", b"2", if_absent=True)
    elif what == "if_version":
        mine.put("k", b"2", if_version=version - 1)
    else:
        mine.delete("k", if_version=version - 1)
    refused = error(t.commit)
    assert isinstance(refused, kvorum.ConditionFailed)
    assert refused.details["key"] == b"k"
    assert refused.details["table"] == table.name
    assert refused.details["version"] == str(version)
    assert f"b'k' of {table.ns}.{table.name}" in refused.message
    assert table.get("z") is None


def test_b2_a_condition_that_cannot_hold_is_told_at_once(
    db: kvorum.Database, table: kvorum.Table
) -> None:
    """A condition is about the store, and its own write has no version."""
    t = db.transaction()
    mine = t.table(table.ns, table.name)
    mine.put("k", b"1")
    refused = error(lambda: mine.put("k", b"2", if_absent=True))
    assert isinstance(refused, kvorum.ConditionFailed)
    assert refused.details["key"] == b"k"
    bad = error(lambda: mine.put("k", b"3", if_absent=True, if_version=7))
    assert bad.code == "INVALID_ARGUMENT"
    t.commit()
    found = table.get("k")
    assert found is not None
    assert found.value == b"1"


class _Losing(HttpTransport):
    """Executes a request whose answer is lost."""

    lose = ""

    async def request(self, method: str, target: str, *rest: Any) -> Any:
        answer = await super().request(method, target, *rest)
        if self.lose and target.endswith(self.lose):
            self.lose = ""
            raise Lost("the connection was closed", sent=True)
        return answer


def test_b2_a_lost_answer_to_a_condition_ends_the_transaction(served: Served) -> None:
    """Sent again it would meet itself, and "it is there already" would be a lie."""
    db = served.by_name["embedded"]
    db.create_table("default", "losing")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        transport = _Losing("127.0.0.1", served.base + 2, loop)
        http = kvorum.AsyncDatabase(HttpBackend(transport, 10_000), SystemRng())
        t = await http.transaction()
        transport.lose = "/put"
        await t.table("default", "losing").put("plain", b"1")
        transport.lose = "/put"
        with pytest.raises(kvorum.TxnAborted, match="was lost"):
            await t.table("default", "losing").put("k", b"1", if_absent=True)
        with pytest.raises(kvorum.TxnAborted, match="was lost"):
            await t.commit()
        t = await http.transaction()
        transport.lose = "/put"
        with pytest.raises(kvorum.TxnAborted):
            await t.table("default", "losing").put("k", b"1", if_absent=True)
        await t.abort()
        assert (await http.status(t.id)).status == "aborted"
        await http.close()

    asyncio.run(run())
    assert db.table("default", "losing").get("k") is None
    assert db.table("default", "losing").get("plain") is None


# ------------------------------------------------------------------------------------- many keys


def test_p10_multi_get_of_a_transaction(db: kvorum.Database, table: kvorum.Table) -> None:
    """Own writes and deletes on top of one snapshot, in the order that was asked for."""
    version = table.put("a", b"1")
    table.put("q", b"2")
    t = db.transaction()
    mine = t.table(table.ns, table.name)
    mine.put("k", b"own")
    mine.delete("q")
    table.put("b", b"too late")
    assert mine.multi_get(["q", "k", "a", "b", "k"]) == [
        None,
        (b"own", 0),
        (b"1", version),
        None,
        (b"own", 0),
    ]
    t.abort()


def test_p10_multi_get_over_http_is_one_request(http: httpx.Client, served: Served) -> None:
    """A request per key: a thousand keys took a second."""
    with kvorum.connect(f"http://127.0.0.1:{served.base + 2}") as db:
        table = db.table("default", "web")
        for i in range(20):
            table.put(f"mg{i:02}", str(i))

        def requests() -> int:
            lines = http.get("/metrics").text.splitlines()
            wanted = 'kvorum_http_requests_total{route="/v1/txn",status="200"}'
            return int(float(next(x for x in lines if x.startswith(wanted)).split()[-1]))

        with db.transaction() as t:
            before = requests()
            found = t.table("default", "web").multi_get([f"mg{i:02}" for i in range(20)])
            assert [int(r.value) for r in found if r] == list(range(20))
            assert requests() == before + 1
    body = {"keys": [{"ns": "default", "table": "web", "key": "mg00"}]}
    txn = http.post("/v1/txn", json={}).json()["txn"]
    (row,) = http.post(f"/v1/txn/{txn}/multi-get", json=body).json()["items"]
    assert row["value"] == "0"
    refused = http.post(f"/v1/txn/{txn}/multi-get", json={**body, "at": "1"})
    error_of(refused, 400, "INVALID_ARGUMENT")
    http.post(f"/v1/txn/{txn}/abort")


# ------------------------------------------------------------------------------------------- ends


def test_d4_what_has_ended_says_so_alike(served: Served, table: kvorum.Table) -> None:
    """One text and one code: else every caller needs two branches."""
    said: dict[str, list[Any]] = {}
    for name, db in served.by_name.items():
        seen = []

        def told_by(t: kvorum.Transaction, act: Callable[[], Any]) -> tuple[str, str, str, int]:
            e = error(act)
            assert e.details["txn"] == str(t.id)
            return e.code, e.disposition, e.message.replace(str(t.id), "T"), e.status

        for end in ("commit", "abort", "conflict"):
            t = db.transaction()
            mine = t.table(table.ns, table.name)
            mine.put("k", name.encode())
            if end == "commit":
                version = str(t.commit())
                assert t.commit() == int(version), "the same answer"
            elif end == "abort":
                t.abort()
                version = "-"
            else:
                version = str(table.put("k", b"other"))
                assert error(t.commit).code == "WRITE_CONFLICT"
            for act in (
                partial(mine.put, "k", b"v"),
                partial(mine.get, "k"),
                partial(mine.multi_get, ["k"]),
                mine.scan,
                t.heartbeat,
                *((t.commit,) if end != "commit" else ()),
            ):
                code, how, message, status = told_by(t, act)
                seen.append((end, code, how, message.replace(version, "V"), status))
        said[name] = seen
    assert said["embedded"] == said["sdk"]
    assert said["http"][:-6] == said["embedded"][:-6]
    # a conflict's text has the key's version; all but that is the same
    assert [row[:3] for row in said["http"][-6:]] == [row[:3] for row in said["embedded"][-6:]]
    assert {row[1] for row in said["http"]} == {"TXN_COMMITTED", "TXN_ABORTED"}
    assert ("abort", "TXN_ABORTED", "restart_txn") in {row[:3] for row in said["http"]}
    assert any("it was aborted by its owner" in row[3] for row in said["http"])
    assert any("its commit failed: " in row[3] for row in said["http"])


def test_d4_pending_is_said_of_what_may_commit(served: Served, db: kvorum.Database) -> None:
    """ "unknown" of a transaction that is open in this very process is not much of an answer."""
    t = db.transaction()
    assert db.status(t.id).status == "pending"
    t.abort()
    assert db.status(t.id).status == "aborted"
    never = db.timestamp()
    for surface in served.by_name.values():
        assert surface.status(never).status == "unknown", "it holds nothing and was never begun"
    for wrong in (1, 1 << 20):
        refused = error(lambda wrong=wrong: db.status(wrong))
        assert (refused.code, refused.status) == ("TXN_NOT_FOUND", 404)
        assert "nothing is known" in refused.message
    assert error(lambda: db.status(never + 10**15)).code == "INVALID_ARGUMENT"


def test_d8_abort_ends_who_stands_in_the_way(
    served: Served, db: kvorum.Database, table: kvorum.Table
) -> None:
    """KEY_LOCKED says "abort that one": whoever is told so must be able to."""
    holder = Holder(served, table, "nightly import")
    holder.lock("a")
    holder.lock("q")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(table.put, "q", b"mine")
        poll(lambda: of_table(db.locks(), "waits", table))
        db.abort_transaction(str(holder.txn))
        assert waiting.result(5) > holder.txn
    assert db.status(holder.txn).status == "aborted"
    db.abort_transaction(holder.txn)  # again: nothing to be done
    assert table.put("a", b"free") > 0


def test_d8_abort_of_what_cannot_be(
    served: Served, db: kvorum.Database, table: kvorum.Table
) -> None:
    """Committed is committed; and "done" for what nobody knows would be a lie."""
    with db.transaction() as t:
        t.table(table.ns, table.name).put("k", b"v")
    refused = error(lambda: db.abort_transaction(t.id))
    assert isinstance(refused, kvorum.Refused)
    assert refused.code == "TXN_COMMITTED"
    assert refused.details == {"txn": str(t.id), "commit_ts": str(t.version)}
    unknown = error(lambda: db.abort_transaction(db.timestamp()))
    assert unknown.code == "TXN_NOT_FOUND"
    assert error(lambda: db.abort_transaction(1 << 62)).code == "INVALID_ARGUMENT"
    assert error(lambda: db.abort_transaction("x")).code == "INVALID_ARGUMENT"
    found = table.get("k")
    assert found is not None


@pytest.mark.parametrize("where", ["embedded", "http"])
def test_d8_abort_of_one_that_a_node_holds_open(
    served: Served, db: kvorum.Database, table: kvorum.Table, where: str
) -> None:
    """Its writes are in a node's memory: there is no record that could be rolled back."""
    t = served.by_name[where].transaction()
    mine = t.table(table.ns, table.name)
    mine.put("k", b"v")
    assert db.status(t.id).status in ("pending", "unknown")
    db.abort_transaction(t.id)
    refused = error(t.commit)
    assert refused.code == "TXN_ABORTED"
    assert "on request" in refused.message or "by its owner" in refused.message
    assert table.get("k") is None


def test_d8_abort_over_plain_http(http: httpx.Client, served: Served) -> None:
    """The route that the guide names, with its refusals."""
    table = served.by_name["embedded"].table("default", "web")
    with held(served, table, "ab", "nightly import") as holder:
        assert http.get(f"/v1/txn/{holder}").json() == {"status": "pending"}
        assert http.post(f"/v1/txn/{holder}/abort", json={}).status_code == 200
        assert http.get(f"/v1/txn/{holder}").json() == {"status": "aborted"}
    txn = http.post("/v1/txn", json={}).json()["txn"]
    http.post(f"/v1/txn/{txn}/commit", json={})
    error_of(http.post(f"/v1/txn/{txn}/abort", json={}), 409, "TXN_COMMITTED")
    never = http.post("/v1/tso", json={"count": 1}).json()["first"]
    error_of(http.post(f"/v1/txn/{never}/abort", json={}), 404, "TXN_NOT_FOUND")


def test_d8_kvorum_txn_abort(served: Served) -> None:
    """The command that KEY_LOCKED's advice needs."""
    db = served.by_name["embedded"]
    db.create_table("default", "abortcli")
    table = db.table("default", "abortcli")
    with held(served, table, "k", "nightly import") as holder:
        assert told("txn", str(holder), connect=served.address) == {"status": "pending"}
        assert run("txn", "abort", str(holder), connect=served.address).out == b"aborted\n"
        assert told("txn", str(holder), connect=served.address) == {"status": "aborted"}
    with db.transaction() as t:
        t.table("default", "abortcli").put("k", b"v")
    error = run("txn", "abort", str(t.id), connect=served.address, code=1).err
    assert error.startswith(b"kvorum: TXN_COMMITTED: ")
    run("txn", "abort", connect=served.address, code=2)
    run("txn", "end", str(t.id), connect=served.address, code=2)


# ------------------------------------------------------------------------------------------ locks


def test_d15_a_lock_gives_what_it_locked(db: kvorum.Database, table: kvorum.Table) -> None:
    """Whoever locks a record to change it would have to read it by another request."""
    version = table.put("k", b"1")
    with db.transaction() as t:
        mine = t.table(table.ns, table.name)
        assert mine.lock("k") == (b"1", version)
        assert mine.lock("none") is None
        mine.put("k", b"2")
        assert mine.lock("k") == (b"2", 0)
    assert [r and r.value for r in table.multi_get(["k", "none"])] == [b"2", None]


def test_d15_who_locks_first_is_waited_for(db: kvorum.Database, table: kvorum.Table) -> None:
    """Two counters that were read at once would be written over each other, or have to begin
    again.
    """
    table.put("n", b"0")

    def add() -> None:
        for _ in range(5):
            with db.transaction(isolation="read_committed") as t:
                mine = t.table(table.ns, table.name)
                found = mine.lock("n")
                assert found is not None
                mine.put("n", b"%d" % (int(found.value) + 1))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(add) for _ in range(4)]:
            done.result()
    last = table.get("n")
    assert last is not None
    assert last.value == b"20"


def test_d15_what_others_have_locked(db: kvorum.Database, table: kvorum.Table) -> None:
    """A worker that must not wait would wait, or would take another's work."""
    table.put("k", b"1")
    table.put("free", b"1")
    first, second = db.transaction(), db.transaction()
    one, two = (t.table(table.ns, table.name) for t in (first, second))
    one.lock("k")
    refused = error(lambda: two.lock("k", wait="nowait"))
    assert isinstance(refused, kvorum.KeyLocked)
    assert refused.details["key"] in (b"k", "k")
    assert two.lock("k", wait="skip") is None
    assert two.lock("free", wait="skip") is not None
    assert table.get("k") is not None, "readers pass"
    bad = error(lambda: two.lock("k", wait="perhaps"))
    assert isinstance(bad, kvorum.InvalidArgument)
    second.abort()
    first.abort()
    table.put("k", b"2")


def test_d17_locks_of_every_strength(db: kvorum.Database, table: kvorum.Table) -> None:
    """Those who only read a record, or refer to it, would go one after the other."""
    version = table.put("k", b"1")
    first, second = (db.transaction(isolation="read_committed") for _ in range(2))
    one, two = (t.table(table.ns, table.name) for t in (first, second))
    assert one.lock("k", strength="share") == (b"1", version)
    assert two.lock("k", wait="nowait", strength="key share") == (b"1", version)
    for how in ("no key update", "update"):
        refused = error(lambda how=how: two.lock("k", wait="nowait", strength=how))
        assert isinstance(refused, kvorum.KeyLocked)
    first.abort()
    assert two.lock("none", strength="key share") is None
    newer = table.put("k", b"2")
    assert two.lock("k", strength="key share") == (b"2", newer)
    bad = error(lambda: two.lock("k", strength="exclusive"))
    assert isinstance(bad, kvorum.InvalidArgument)
    assert "key share" in str(bad)
    second.commit()


def test_d15_a_lock_of_what_is_newer(db: kvorum.Database, table: kvorum.Table) -> None:
    """A transaction that reads one moment would compute from another one."""
    table.put("k", b"1")
    old = db.transaction()
    fresh = db.transaction(isolation="read_committed")
    assert fresh.table(table.ns, table.name).get("k") is not None
    version = table.put("k", b"2")
    refused = error(lambda: old.table(table.ns, table.name).lock("k"))
    assert isinstance(refused, kvorum.WriteConflict)
    mine = fresh.table(table.ns, table.name)
    assert mine.get("k") == (b"2", version)
    assert [item.value for item in mine.scan().items] == [b"2"]
    assert mine.multi_get(["k"]) == [(b"2", version)]
    assert mine.lock("k") == (b"2", version)
    fresh.commit()
    old.abort()
