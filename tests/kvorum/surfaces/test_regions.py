"""What tables survive and where they are led, through every surface (docs/decisions/1495)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

import kvorum
from kv.base.limits import EXPLAIN_MAX
from kvorum.cli.main import app
from tests.kvorum.surfaces.conftest import Served


def explained(db: kvorum.Database, what: str, args: dict[str, Any]) -> Any:
    return db.wait(db.submit(f"kvorum.explain_{what}", args))


def test_i12_tables_and_namespaces_say_where_they_are_led_and_what_they_survive(
    db: kvorum.Database, request: pytest.FixtureRequest
) -> None:
    """A surface dropped an option, or a table did not have what its namespace says."""
    name = f"regions_{request.node.callspec.params['db']}"
    db.create_namespace(name, leaders=" rack=r1, dc=eu")
    assert (db.namespace(name).leaders, db.namespace(name).survive) == ("dc=eu,rack=r1", "")
    made = db.create_table(name, "t", leaders="dc=us")
    assert (made.leaders, made.survive) == ("dc=us", "")
    told = explained(db, "table", {"namespace": name, "name": "t"})
    assert (told["leaders"], told["preferred"], told["holds"]) == ("dc=us", [], True)
    assert db.modify_table(name, "t", leaders="").leaders == ""
    told = explained(db, "table", {"namespace": name, "name": "t"})
    assert told["leaders"] == "dc=eu,rack=r1", "its namespace's"
    db.table(name, "t").put("k", "v")
    for change in (
        lambda: db.modify_table(name, "t", survive="datacenter"),
        lambda: db.modify_namespace(name, survive="server"),
        lambda: db.create_table(name, "u", survive="rack"),
    ):
        with pytest.raises(kvorum.Refused, match="loss of a") as refused:
            change()
        assert refused.value.code == "CANNOT_SURVIVE"
    assert [(t.name, t.survive, t.leaders) for t in db.tables(name)] == [("t", "", "")]
    for bad, why in (({"survive": "city"}, "survive must be"), ({"leaders": "eu"}, "leaders must")):
        with pytest.raises(kvorum.InvalidArgument, match=why):
            db.create_table(name, "u", **bad)
        with pytest.raises(kvorum.InvalidArgument, match=why):
            db.modify_table(name, "t", **bad)
        with pytest.raises(kvorum.InvalidArgument, match=why):
            db.modify_namespace(name, **bad)
    loss = explained(
        db, "loss", {"lost": ["node=1"], "rows": EXPLAIN_MAX}
    )  # others' tables are there
    assert loss["meta"] == "lost", "there is one node"
    hit = [row for row in loss["tables"] if row["namespace"] == name]
    assert [(row["name"], row["lost"], row["serves"]) for row in hit] == [("t", 1, 0)]
    for bad_loss in ({"lost": []}, {"lost": ["dc=mars"]}, {"lost": ["eu"]}, {"lost": "dc=a"}):
        with pytest.raises(kvorum.InvalidArgument):
            explained(db, "loss", bad_loss)
    db.drop_table(name, "t")
    assert db.modify_namespace(name, survive="server", leaders="").survive == "server"
    with pytest.raises(kvorum.Refused, match="loss of a server"):
        db.create_table(name, "t")
    assert db.modify_namespace(name, survive="").survive == ""
    db.drop_namespace(name)


@pytest.mark.slow
def test_i12_sql_and_the_command_line_say_it_too(served: Served) -> None:
    """WITH, SET, RESET, CREATE DATABASE and TRUNCATE; flags, and `kvorum explain`."""
    address = f"host=127.0.0.1 port={served.base + 3} user=kvorum dbname=default"
    shown = "SELECT survive, leaders FROM kvorum.tables WHERE name = 'sited' AND kind = 'table'"
    with psycopg.connect(address, autocommit=True) as sql:
        sql.execute("CREATE TABLE sited (id int PRIMARY KEY, v text) WITH (leaders = 'dc=eu')")
        sql.execute("CREATE INDEX ON sited (v)")
        assert sql.execute(shown).fetchall() == [("", "dc=eu")]
        sql.execute("TRUNCATE sited")
        assert sql.execute(shown).fetchall() == [("", "dc=eu")]
        for bad, why in (
            ("survive = 'rack'", "loss of a rack"),
            ("survive = 'town'", "survive must be"),
            ("leaders = 'x'", "leaders must be"),
        ):
            with pytest.raises(psycopg.Error, match=why):
                sql.execute(f"CREATE TABLE bad (id int PRIMARY KEY) WITH ({bad})")
            with pytest.raises(psycopg.Error, match=why):
                sql.execute(f"ALTER TABLE sited SET ({bad})")
        for change in ("SET (leaders = 'dc=us')", "RESET (leaders)"):
            sql.execute(f"ALTER TABLE sited {change}")
        assert sql.execute(shown).fetchall() == [("", "")]
        sql.execute("DROP TABLE sited")
        sql.execute("CREATE DATABASE sitedb WITH leaders = 'dc=eu' tags = ''")

    def told(*words: str) -> str:
        found = CliRunner().invoke(app, [*words, "--connect", served.address])
        assert found.exit_code == 0, found.output
        return found.output

    assert "leaders   dc=eu" in told("namespace", "show", "sitedb")
    told("namespace", "modify", "sitedb", "--leaders", "dc=us", "--survive", "server")
    assert "survives  server" in told("namespace", "show", "sitedb")
    told("namespace", "modify", "sitedb", "--survive", "")
    told("table", "create", "sitedb/t", "--leaders", "dc=ap")
    assert '"leaders": "dc=ap"' in told("table", "list", "sitedb", "--json")
    told("table", "modify", "sitedb/t", "--leaders", "")
    explains = told("explain", "table", "sitedb.t")
    assert "leaders    dc=us" in explains
    assert "stops without" in explains
    loss = told("explain", "loss", "node=1", "--rows", str(EXPLAIN_MAX))
    assert "sitedb.t" in loss
    assert "the master and the catalog: no copy is left" in loss
    served.by_name["embedded"].drop_table("sitedb", "t")
    served.by_name["embedded"].drop_namespace("sitedb")
