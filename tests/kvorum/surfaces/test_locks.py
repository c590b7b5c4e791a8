"""The list of who holds what, when it is long, old or hostile (U2, D8)."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from typing import Any

import pytest

import kvorum
from kv.base.ops import put
from kv.base.timestamps import physical_ms
from kv.base.waits import INTENT, Held, Wait
from kvorum.cli import output
from kvorum.storage.cluster_waits import Found, shown
from tests.kit.commands import run
from tests.kit.waiting import poll
from tests.kvorum.surfaces.conftest import Served
from tests.kvorum.surfaces.test_waits import Holder, held, of_table
from txn.shared.wait_terms import Terms

NASTY = "evil\x1b[31m\x9b2J\r\n\u202eowner"


def test_u2_many_keys_of_one_holder_are_one_row(
    served: Served, db: kvorum.Database, table: kvorum.Table
) -> None:
    """A bulk load's million keys pushed what mattered off the screen."""
    holder = Holder(served, table, "bulk load")
    keys = ["b", "a", "c", "q", "z"]  # in two of three partitions
    for key in keys:
        holder.lock(key)
    (row,) = of_table(db.locks(), "locks", table)
    assert (row["key"], row["keys"], row["waiting"]) == (b"a", 5, 0)
    assert (row["txn"], row["owner"]) == (str(holder.txn), "bulk load")
    each = of_table(db.locks(every=True), "locks", table)
    assert sorted((r["key"], r["keys"]) for r in each) == [(k.encode(), 1) for k in sorted(keys)]
    assert {r["owner"] for r in each} == {"bulk load"}, "its record is in one partition alone"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(table.put, "q", b"mine")
        poll(lambda: of_table(db.locks(), "waits", table))
        first, rest = of_table(db.locks(), "locks", table)
        assert (first["key"], first["keys"], first["waiting"]) == (b"q", 1, 1)
        assert (rest["key"], rest["keys"], rest["waiting"]) == (b"a", 4, 0)
        assert db.locks()["locks"][0]["waiting"] == 1, "what is waited for comes first"
        holder.end()
        assert waiting.result(10)


def test_u2_folding_joins_what_nodes_tell() -> None:
    """Each node tells of its own partitions; and an older one does not count at all."""

    def row(node: int, key: bytes, txn: int, keys: int = 1) -> Held:
        return Held(node, node, INTENT, b"tabl" + key, None, txn, "", 5, 6, keys)

    wait = Wait(
        node=1,
        source=1,
        id=1,
        kind=INTENT,
        resource=b"tablk",
        waiter=0,
        waiter_owner="",
        holder=9,
        holder_owner="",
        held=b"tablk",
        anchor=b"a",
        ttl_ms=1,
        waited_ms=1,
        priority=0,
        holding=False,
    )
    found = Found([wait], [row(1, b"m", 7, 3), row(2, b"c", 7, 2), row(1, b"k", 9)])
    old = Held.from_wire(row(3, b"x", 7).to_wire()[:-1])
    found.held.append(old)
    told = shown(found, {}, physical_ms(1 << 40))["locks"]
    assert [(r["key"], r["keys"], r["node"]) for r in told] == [
        (b"tablk", 1, 1),
        (b"tablc", 6, 2),
    ]
    assert len(shown(found, {}, 0, every=True)["locks"]) == 4


def test_u2_owner_of_a_large_transaction_and_of_an_ended_one(
    served: Served, db: kvorum.Database, table: kvorum.Table
) -> None:
    """Whose the keys are is asked most when the transaction is long, or its owner is gone."""

    node = served.by_name["embedded"]
    txn = node._portal.call(_large(node._async.backend, table))
    row = next(r for r in of_table(db.locks(), "locks", table) if r["txn"] == str(txn))
    assert (row["keys"], row["owner"]) == (3_000, "large load")
    t = db.transaction(lock_wait_ms=0)
    t.table(table.ns, table.name).put("a00002500", b"mine")
    with pytest.raises(kvorum.KeyLocked) as refused:
        t.commit()
    assert refused.value.details["owner"] == "large load"
    assert "of large load" in refused.value.message
    db.abort_transaction(txn)
    left = of_table(db.locks(), "locks", table)
    assert {r["owner"] for r in left} == {"large load"}, "ended, and not cleaned up yet"
    t = db.transaction(lock_wait_ms=0, owner="me")
    t.table(table.ns, table.name).put("a00002501", b"mine")
    try:
        t.commit()
    except kvorum.KeyLocked as e:
        assert e.details["owner"] == "large load"  # noqa: PT017 - or it was cleaned up meanwhile
    assert [i for i in table.rows() if i.value != b"mine"] == []
    poll(lambda: list(table.rows()) is not None and not of_table(db.locks(), "locks", table))


async def _large(backend: Any, table: kvorum.Table) -> int:
    """Lays down the intents of a spilled transaction, whose client then stops; its id."""
    client = backend._txn
    prefix = await backend._names.prefix(table.ns, table.name)
    keys = [prefix + b"a%08d" % i for i in range(3_000)]
    start_ts = await client.now()
    txn = client.bulk.begin(start_ts, keys[0], checked=True, terms=Terms(owner="large load"))
    await txn.prewrite([put(keys[0], b"v")])
    for at in range(1, len(keys), 1_000):
        part = keys[at : at + 1_000]
        await txn.send_rows(part, [b"v"] * len(part))
    await txn.close()
    return int(start_ts)


def test_d8_deadlock_speaks_of_priorities_as_users_do(
    served: Served, db: kvorum.Database, table: kvorum.Table
) -> None:
    """They say "low"; a circle of -1 and 0 is a riddle."""
    holder = Holder(served, table, "nightly import")
    holder.lock("a")
    t = db.transaction(owner="ada", priority="low")
    for key in "az":
        t.table(table.ns, table.name).put(key, b"mine")
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(t.commit)
        poll(lambda: of_table(db.locks(), "waits", table))
        holder.lock("z")
        with pytest.raises(kvorum.TxnAborted) as victim:
            committing.result(10)
    holder.end()
    assert [s["priority"] for s in victim.value.details["cycle"]] == ["low", "normal"]


@pytest.mark.parametrize("text", [NASTY, "ok", "tab\tand line\nend"])
def test_u2_what_a_user_wrote_does_not_reach_the_terminal_raw(text: str) -> None:
    """An owner could redraw the operator's screen, or hide a row of the list."""
    for show in (
        lambda: output.table(("OWNER",), [(text,)]),
        lambda: output.lines([f"by {text}"]),
        lambda: output.emit({"owner": text}),
    ):
        out = io.StringIO()
        with redirect_stdout(out):
            show()
        raw = set(out.getvalue()) - {"\n", "\t"}
        assert all(c.isprintable() for c in raw), out.getvalue()
    out = io.StringIO()
    with redirect_stdout(out):
        output.table(("OWNER",), [(text,)])
    assert out.getvalue().count("\n") == 2, "a row is a line"


def test_u2_lists_of_a_hostile_owner(served: Served) -> None:
    """The commands that show owners, as an operator runs them."""
    db = served.by_name["embedded"]
    assert b"holds a key" in run("locks", connect=served.address).out
    db.create_table("default", "hostile")
    table = db.table("default", "hostile")
    snapshot = db.snapshot(owner=NASTY)
    with held(served, table, "k\x1b[0m", NASTY) as holder:
        for args in (("locks",), ("locks", "--all"), ("snapshot", "list"), ("locks", "--json")):
            shown_text = run(*args, connect=served.address).out.decode()
            assert "evil\\x1b[31m" in shown_text or "evil\\u001b[31m" in shown_text, args
            assert all(c.isprintable() or c == "\n" for c in shown_text), args
        assert str(holder) in shown_text
    snapshot.close()
