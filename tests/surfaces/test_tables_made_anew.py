"""A table that somebody else dropped and made anew, for clients that remember the old one."""

from __future__ import annotations

import kvorum
from kvorum import Put
from tests.surfaces.conftest import Served


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
