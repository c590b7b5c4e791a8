"""MERGE on one node in virtual time."""

from __future__ import annotations

import pytest

from kvorum import testing


@pytest.mark.slow
def test_p1_a_row_of_defaults_alone_is_inserted() -> None:
    """The source's values were taken for those of the row: an internal error."""

    async def story(cluster: testing.Cluster) -> None:
        await cluster.sql("create table made (id serial primary key, v text default 'none')")
        for given in (
            "default values",
            "(v) values (default)",
            "(v, id) values (default, default)",
        ):
            await cluster.sql(
                "merge into made m using (values (101), (102)) s(x) on m.id = s.x "
                f"when not matched then insert {given}"
            )
        rows = await cluster.sql("select id, v from made order by id")
        assert [tuple(row) for row in rows] == [(n, "none") for n in range(1, 7)]
        await cluster.sql(
            "merge into made m using generate_series(1001, 1400) s(x) on m.id = s.x "
            "when not matched then insert default values"
        )
        (row,) = await cluster.sql("select count(*), max(v) from made")
        assert tuple(row) == (406, "none")

    testing.simulate(story, nodes=1)
