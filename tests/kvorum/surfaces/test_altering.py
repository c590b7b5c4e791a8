"""Tables are disabled, enabled and modified from every surface (J19). Disabling takes as long as
nodes may remember a table, so it is done once.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import kvorum
from kvorum.cli.main import app
from tests.kvorum.surfaces.conftest import SURFACES, Served


@pytest.mark.slow
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


def test_h1_a_table_has_a_size_for_its_partitions(
    db: kvorum.Database, request: pytest.FixtureRequest
) -> None:
    """A surface dropped `partition_bytes`, or took one that no partition can have."""
    name = f"size_{request.node.callspec.params['db']}"
    assert db.create_table("default", name, partition_bytes=1 << 20).partition_bytes == 1 << 20
    assert db.modify_table("default", name, tags=[]).partition_bytes == 1 << 20
    assert db.modify_table("default", name, partition_bytes=1 << 21).partition_bytes == 1 << 21
    with pytest.raises(kvorum.InvalidArgument, match="partition_bytes"):
        db.modify_table("default", name, partition_bytes=17)
    assert [t.partition_bytes for t in db.tables("default") if t.name == name] == [1 << 21]
    assert db.modify_table("default", name, partition_bytes=0).partition_bytes is None
    db.drop_table("default", name)


def test_j19_a_namespace_says_what_its_tables_have(
    db: kvorum.Database, request: pytest.FixtureRequest
) -> None:
    """A surface dropped a part of a namespace, or of a change of it."""
    name = f"ns_{request.node.callspec.params['db']}"
    db.create_namespace(name, replicas=1)
    assert db.namespace(name) == kvorum.NamespaceInfo(name, replicas=1)
    db.create_table(name, "t")
    changed = db.modify_namespace(name, replicas=0)
    assert (changed.replicas, changed.tags, changed.state) == (None, (), "public")
    with pytest.raises(kvorum.Refused) as refused:
        db.modify_namespace(name, tags=["tape"])
    assert refused.value.code == "NO_NODE_WITH_TAGS"
    assert db.namespace(name).tags == ()
    with pytest.raises(kvorum.NotFound) as unknown:
        db.namespace("nowhere")
    assert unknown.value.code == "NAMESPACE_NOT_FOUND"
    db.drop_table(name, "t")
    db.drop_namespace(name)


@pytest.mark.slow
def test_j19_a_disabled_namespace_stays_so(served: Served) -> None:
    """A table was made in it, or enabled alone; or enabling it left one of them shut."""
    db = served.by_name["http"]
    db.create_namespace("shut")
    db.create_table("shut", "t")
    assert db.disable_namespace("shut").state == "disabled"
    for work in (
        lambda: db.create_table("shut", "late"),
        lambda: db.enable_table("shut", "t"),
    ):
        with pytest.raises(kvorum.Refused) as refused:
            work()
        assert refused.value.code == "NAMESPACE_DISABLED"
    assert [(t.name, t.state) for t in db.tables("shut")] == [("t", "disabled")]
    assert served.by_name["sdk"].enable_namespace("shut").state == "public"
    assert [(t.name, t.state) for t in db.tables("shut")] == [("t", "public")]
    db.drop_table("shut", "t")
    db.drop_namespace("shut")


def test_n8_settings_over_every_surface(
    db: kvorum.Database, request: pytest.FixtureRequest
) -> None:
    """A surface does not tell the settings, or changes some of a request that is refused."""
    value = {"embedded": 7}.get(request.node.callspec.params["db"], 8)
    (told,) = db.set_settings({"maintenance.pause_ms": value})
    assert (told["name"], told["value"], told["missing"]) == ("maintenance.pause_ms", value, [])
    for wrong in (
        {"maintenance.pause_ms": 9, "no.such": 1},
        {"maintenance.pause_ms": 9, "balance.moves": -1},
        {"maintenance.pause_ms": "9"},
        {},
    ):
        with pytest.raises(kvorum.InvalidArgument):
            db.set_settings(wrong)
    found = db.cluster()
    rows = {row["name"]: row for row in found["settings"]}
    assert rows["maintenance.pause_ms"]["value"] == value
    assert found["nodes"] == 1
    assert found["partitions"] >= 1
    assert found["master"] == 1
    assert len(found["cluster"]) >= 8


@pytest.mark.slow
def test_j19_namespaces_and_sizes_by_command(served: Served) -> None:
    """A command dropped an option, or said that all is well when it was refused."""
    url = f"kvorum://127.0.0.1:{served.base}"

    def told(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*words, "--connect", url])
        assert result.exit_code == code, result.output
        return result.output

    told("namespace", "create", "cmd", "--replicas", "2")
    assert "replicas  2" in told("namespace", "show", "cmd")
    told("table", "create", "cmd/t", "--partition-bytes", "4194304")
    assert '"partition_bytes": 4194304' in told("table", "list", "cmd", "--json")
    told("table", "modify", "cmd/t", "--partition-bytes", "0")
    told("namespace", "modify", "cmd", "--replicas", "0")
    assert "at every node" in told("namespace", "show", "cmd")
    told("namespace", "modify", "cmd", "--tags", "tape", code=1)
    told("namespace", "show", "nowhere", code=1)
    told("table", "drop", "cmd/t")
    told("namespace", "drop", "cmd")
