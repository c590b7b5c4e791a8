"""A table that somebody else dropped and made anew, for clients that remember the old one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kvorum
from kvorum import Put
from tests.kvorum.surfaces.conftest import Served


def test_p8_multi_write_follows_a_table_that_was_made_anew(served: Served) -> None:
    """Its ops were Unavailable for as long as the client remembered the old table's id, though a
    put looked the name up again; and those beside them must not be done twice.
    """
    name, other = "anew_written", "anew_beside"
    owner, client = served.by_name["embedded"], served.by_name["sdk"]
    for table in (name, other):
        owner.create_table("default", table)
        client.table("default", table).put("old", "v")
    owner.drop_table("default", name)
    owner.create_table("default", name)
    ops = [
        Put("default", name, "a", "1", if_absent=True),
        Put("default", other, "b", "2", if_absent=True),
        Put("default", name, "c", "3", if_absent=True),
    ]
    results = client.multi_write(ops)
    assert all(isinstance(result, int) for result in results), results
    for op in ops:
        assert client.table("default", op.table).get(op.key) is not None
    assert client.table("default", name).get("old") is None


def test_p8_multi_write_tells_of_a_table_that_is_gone(served: Served) -> None:
    """One dropped table hid what became of the ops beside it."""
    name, other = "gone_written", "gone_beside"
    owner, client = served.by_name["embedded"], served.by_name["sdk"]
    for table in (name, other):
        owner.create_table("default", table)
        client.table("default", table).put("old", "v")
    owner.drop_table("default", name)
    gone, written = client.multi_write(
        [Put("default", name, "a", "1"), Put("default", other, "b", "2")]
    )
    assert isinstance(gone, kvorum.KvorumError)
    assert gone.code == "TABLE_NOT_FOUND"
    assert isinstance(written, int)


def remade(served: Served, name: str) -> kvorum.Database:
    """A client that knows the table, and one beside it, as they were before they were made anew."""
    owner, client = served.by_name["embedded"], served.by_name["sdk"]
    for table in (name, f"{name}_beside"):
        owner.create_table("default", table)
        client.table("default", table).put("old", "v")
    owner.drop_table("default", name)
    owner.create_table("default", name)
    return client


WAYS: dict[str, Callable[[kvorum.Database, str], Any]] = {
    "scan": lambda db, t: db.table("default", t).scan().items,
    "multi_get": lambda db, t: db.multi_get([("default", t, "old"), ("default", t, "k")]),
    "batch": lambda db, t: db.batch(
        [Put("default", t, "k", "v"), Put("default", f"{t}_beside", "k", "v")]
    ),
}
FOUND = {"scan": [], "multi_get": [None, None]}


@pytest.mark.parametrize("way", WAYS)
def test_p8_others_follow_a_table_that_was_made_anew(served: Served, way: str) -> None:
    """A scan and a multi_get failed though a get went through; a batch over two partitions was told
    after ten seconds that it may be committed.
    """
    name = f"anew_{way}"
    client = remade(served, name)
    result = WAYS[way](client, name)
    if way in FOUND:
        assert result == FOUND[way]
        return
    for table in (name, f"{name}_beside"):
        record = client.table("default", table).get("k")
        assert record is not None
        assert record.version == result


def second_write(t: kvorum.Transaction, name: str) -> None:
    t.table("default", f"{name}_beside").put("k", "v")
    t.table("default", name).put("k", "v")


DOINGS: dict[str, Callable[[kvorum.Transaction, str], Any]] = {
    "a read": lambda t, name: t.table("default", name).get("old"),
    "a scan": lambda t, name: t.table("default", name).scan(),
    "a write": lambda t, name: t.table("default", name).put("k", "v"),
    "its second write": second_write,
}


@pytest.mark.parametrize("doing", DOINGS)
def test_p8_transactions_run_again_for_a_table_that_was_made_anew(
    served: Served, doing: str
) -> None:
    """It ended with an unknown outcome after ten seconds, or with "try again" that did not help:
    nothing was written, and run again it works.
    """
    name = f"anew_{doing.replace(' ', '_')}"
    client = remade(served, name)
    with pytest.raises(kvorum.RestartTxn) as restart, client.transaction() as t:
        DOINGS[doing](t, name)
    assert restart.value.code == "TABLE_CHANGED"
    assert restart.value.details["table"] == name
    assert client.table("default", f"{name}_beside").get("k") is None
    client.run(lambda t: DOINGS[doing](t, name))
    written = served.by_name["embedded"].table("default", name).get("k")
    assert (written is not None) == ("write" in doing)
