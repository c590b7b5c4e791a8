"""Isolation levels through every surface, and the guide's examples as they are printed."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import kvorum
from tests.kit.machine import ROOT
from tests.kvorum.surfaces.conftest import Served, error_of

GUIDE = ROOT / "docs" / "guides" / "transactions.md"
PLACES = pytest.mark.parametrize("places", ["ab", "az"], ids=["one partition", "two partitions"])


@PLACES
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_serializable_is_offered_by_every_surface(
    db: kvorum.Database, table: kvorum.Table, places: str, isolation: str
) -> None:
    """A surface that ignores the wish would permit write skew to somebody who ruled it out."""
    first, second = (db.transaction(isolation=isolation) for _ in range(2))
    for t, me, other in ((first, *places), (second, *places[::-1])):
        assert t.table(table.ns, table.name).get(other) is None
        assert t.table(table.ns, table.name).scan(start="m", end="n").items == []
        t.table(table.ns, table.name).put(me, b"x")
    first.commit()
    if isolation == "snapshot":
        second.commit()
        assert len(list(table.rows())) == 2
        return
    with pytest.raises(kvorum.WriteConflict) as conflict:
        second.commit()
    assert conflict.value.details["read"] is True
    assert len(list(table.rows())) == 1


def test_serializable_run_counts_rows_right(db: kvorum.Database, table: kvorum.Table) -> None:
    """Two of four threads would take the same number, or more rows than allowed be added."""

    def add(_: int) -> int:
        def work(t: kvorum.Transaction) -> int:
            there = len(t.table(table.ns, table.name).scan().items)
            t.table(table.ns, table.name).put("amz"[there % 3] + str(there), b"")
            return there

        return db.run(work, isolation="serializable")

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(add, range(8))) == list(range(8))


async def test_serializable_async(served: Served, table: kvorum.Table) -> None:
    """The asynchronous SDK has a `run` of its own."""
    async with await kvorum.aconnect(f"kvorum://127.0.0.1:{served.base}") as db:
        runs = 0

        async def work(t: kvorum.AsyncTransaction) -> int:
            nonlocal runs
            runs += 1
            rows = await t.table(table.ns, table.name).scan(prefix="k")
            if runs == 1:  # somebody else is faster
                await db.table(table.ns, table.name).put("kz", b"phantom")
            await t.table(table.ns, table.name).put("sum", str(len(rows.items)))
            return len(rows.items)

        assert await db.run(work, isolation="serializable") == 1
        assert runs == 2
        with pytest.raises(kvorum.InvalidArgument):
            await db.run(work, isolation="dirty")


def test_serializable_over_http(http: httpx.Client) -> None:
    """The API says what level was asked for by its own words, and the conflict by its code."""
    txns = []
    for _ in range(2):
        begun = http.post("/v1/txn", json={"isolation": "serializable"})
        assert begun.status_code == 200, begun.text
        txns.append(begun.json()["txn"])
    where = {"ns": "default", "table": "web"}
    for txn, me, other in ((txns[0], "ser-a", "ser-z"), (txns[1], "ser-z", "ser-a")):
        seen = http.post(f"/v1/txn/{txn}/get", json={**where, "key": other}).json()
        assert seen["value"] is None
        http.post(f"/v1/txn/{txn}/put", json={**where, "key": me, "value": "x"})
    assert http.post(f"/v1/txn/{txns[0]}/commit", json={}).status_code == 200
    refused = http.post(f"/v1/txn/{txns[1]}/commit", json={})
    error = error_of(refused, 409, "WRITE_CONFLICT")
    assert error["retry"] == "restart_txn"
    assert error["details"]["read"] is True
    assert http.get(f"/v1/txn/{txns[1]}").json()["status"] == "aborted"
    error_of(http.post("/v1/txn", json={"isolation": "dirty"}), 400, "INVALID_ARGUMENT")


def test_d1_the_guide_tells_the_truth_about_isolation(served: Served) -> None:
    """Examples that show another outcome than the text are worse than none."""
    db = served.by_name["embedded"]
    for name in ("ward", "rooms"):
        db.create_table("default", name, split_keys=["m"])
    text = GUIDE.read_text()
    section = text[text.index("## Isolation:") :].split("\n## ")[0:1][0]
    programs = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    shown, *runnable = programs
    assert 'isolation="serializable"' in shown
    assert len(runnable) == 3
    names: dict[str, object] = {
        "db": db,
        "kvorum": kvorum,
        "ThreadPoolExecutor": ThreadPoolExecutor,
    }
    for program in runnable:
        exec(compile(program, str(GUIDE), "exec"), names)
