"""A database that was closed opens again in the same process, whoever holds the closed one."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvorum


@pytest.mark.slow
def test_a_closed_database_that_is_still_held_opens_again(tmp_path: Path) -> None:
    """Its directory stayed open for as long as somebody had the closed database, a table of it, or
    a transaction.
    """
    held: list[object] = []
    for n in range(3):
        db = kvorum.open(tmp_path / "data")
        if not n:
            db.create_table("default", "t", split_keys=["m"])
        table, t = db.table("default", "t"), db.transaction()
        held += [db, table, t]
        t.table("default", "t").put("open", "never committed")
        table.put(f"k{n}", str(n))
        db.close()
    with kvorum.open(tmp_path / "data") as db:
        assert [row.key for row in db.table("default", "t").scan().items] == [b"k0", b"k1", b"k2"]
    with pytest.raises(kvorum.KvorumError):
        table.put("k", "v")
