"""Splitting and merging by hand, through every surface (H2, H4, G13, A3, A6)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import kvorum
from tests.kit.commands import told
from tests.kvorum.surfaces.conftest import Served, error_of

KEYS = [f"{letter}{i}" for letter in "abcdefghijklmnopqrstuvwxyz" for i in range(5)]


def ids(db: kvorum.Database, table: kvorum.Table) -> list[int]:
    """The partitions of a table, in key order."""
    number = next(t.id for t in db.tables("default") if t.name == table.name)
    rows = [row for row in db.partitions() if _bytes(row["start"])[:4] == number.to_bytes(4, "big")]
    return [int(row["id"]) for row in rows]


def _bytes(start: Any) -> bytes:
    return start if isinstance(start, bytes) else str(start).encode("latin1")


def test_h2_h4_a_table_is_split_and_merged_by_hand(
    served: Served, db: kvorum.Database, table: kvorum.Table
) -> None:
    """A6, A3: nobody notices, through whichever surface: the rows are there, in order, and a write
    that follows finds its partition.
    """
    for key in KEYS:
        table.put(key, key)
    before = ids(served.by_name["embedded"], table)
    assert len(before) == 3
    made = db.split(before[0], at="c3")
    assert made["partition"] == before[0]
    assert ids(served.by_name["embedded"], table) == [before[0], made["new"], *before[1:]]
    table.put("c2", "below")
    table.put("c3", "at")
    page = table.scan()
    assert [item.key.decode() for item in page.items] == KEYS
    assert [table.get(key).value for key in ("c2", "c3")] == [b"below", b"at"]  # type: ignore[union-attr]
    assert db.merge(before[0], made["new"]) == {"partition": before[0], "gone": made["new"]}
    assert ids(served.by_name["embedded"], table) == before
    assert [item.key.decode() for item in table.scan().items] == KEYS
    db.merge(before[0], before[1])
    assert len(ids(served.by_name["embedded"], table)) == 2
    assert [item.key.decode() for item in table.scan(reverse=True).items] == KEYS[::-1]


def test_h2_h4_what_cannot_be_split_or_merged_is_refused(
    served: Served, db: kvorum.Database, table: kvorum.Table
) -> None:
    """Each refusal says why, and nothing changes."""
    before = ids(served.by_name["embedded"], table)
    with pytest.raises(kvorum.Refused, match="does not lie inside") as outside:
        db.split(before[0], at="z")
    assert outside.value.code == "CANNOT_SPLIT"
    with pytest.raises(kvorum.Refused, match="meta partition"):
        db.split(1)
    with pytest.raises(kvorum.NotFound):
        db.split(999_999, at="a")
    with pytest.raises(kvorum.Refused, match="too little in it"):
        db.split(before[0])
    with pytest.raises(kvorum.Refused, match="no neighbours") as apart:
        db.merge(before[0], before[2])
    assert apart.value.code == "CANNOT_MERGE"
    with pytest.raises(kvorum.Refused, match="no neighbours"):
        db.merge(before[1], before[0])
    assert ids(served.by_name["embedded"], table) == before


def test_h2_h4_over_plain_http(served: Served, http: httpx.Client) -> None:
    """What the API promises: 202 with the procedure's id; bad input is refused at once."""
    db = served.by_name["embedded"]
    table = db.table("default", "web")
    first, *_ = ids(db, table)
    answer = http.post(f"/v1/partitions/{first}/split", json={"key": "g"})
    assert answer.status_code == 202
    made: Any = db.wait(int(answer.json()["id"]))
    answer = http.post(f"/v1/partitions/{first}/merge", json={"with": made["new"]})
    assert answer.status_code == 202
    db.wait(int(answer.json()["id"]))
    error_of(http.post(f"/v1/partitions/{first}/merge", json={}), 400, "INVALID_ARGUMENT")
    error_of(http.post(f"/v1/partitions/{first}/split", json={"at": 1}), 400, "INVALID_ARGUMENT")


def test_h2_h4_from_the_command_line(served: Served) -> None:
    """As an operator does it."""
    db = served.by_name["embedded"]
    db.create_table("default", "by_hand")
    (only,) = ids(db, db.table("default", "by_hand"))
    made = told("partition", "split", str(only), "--at", "m", connect=served.address)["result"]
    assert made["partition"] == only
    gone = told("partition", "merge", str(only), str(made["new"]), connect=served.address)["result"]
    assert gone == {"partition": only, "gone": made["new"]}
