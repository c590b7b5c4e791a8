"""Tables are disabled, enabled and modified from every surface (J19). Disabling takes as long as
nodes may remember a table, so it is done once.
"""

from __future__ import annotations

import pytest

import kvorum
from tests.surfaces.conftest import SURFACES, Served


def test_j19_disabled_over_http_refused_everywhere(served: Served) -> None:
    """One surface did not hear of it, or lost the state of a table."""
    http = served.by_name["http"]
    http.create_table("default", "shut")
    http.table("default", "shut").put("k", "v")
    assert http.disable_table("default", "shut").state == "disabled"
    for name in SURFACES:
        db = served.by_name[name]
        with pytest.raises(kvorum.Refused, match="is disabled") as refused:
            db.table("default", "shut").get("k")
        assert refused.value.code == "TABLE_DISABLED", name
        assert [t.state for t in db.tables("default") if t.name == "shut"] == ["disabled"]
    assert served.by_name["sdk"].enable_table("default", "shut").state == "public"
    for name in SURFACES:
        found = served.by_name[name].table("default", "shut").get("k")
        assert found is not None, name
    http.drop_table("default", "shut")


def test_j19_columns_are_added(db: kvorum.Database, request: pytest.FixtureRequest) -> None:
    """A surface dropped a part of the change."""
    name = f"cols_{request.node.callspec.params['db']}"
    first = [kvorum.Column("id", "bigint")]
    db.create_table("default", name, columns=first, primary_key=["id"])
    changed = db.modify_table(
        "default", name, replicas=1, add_columns=[kvorum.Column("note", "text")]
    )
    assert [(c.name, c.nullable) for c in changed.columns] == [("id", False), ("note", True)]
    assert changed.replicas == 1
    assert db.modify_table("default", name, replicas=0).replicas is None
    db.drop_table("default", name)
