"""What clients set and ask for, and plans as JSON."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from kv.base.limits import SQL_SETTINGS_OWN_MAX
from sqlproxy.session.explain.plan_trees import written
from sqlproxy.session.state.settings import Settings
from sqlproxy.values.errors import SqlError


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("transaction_timeout", "0", "0"),  # pg_dump 17's preamble
        ("default_toast_compression", "pglz", "pglz"),
        ("restrict_nonsystem_relation_kind", "view, foreign-table", "view, foreign-table"),
        ("maintenance_work_mem", "65536", "65536kB"),
        ("work_mem", "64MB", "64MB"),
        ("enable_seqscan", "false", "off"),
        ("random_page_cost", "1.1", "1.1"),
        ("plan_cache_mode", "force_custom_plan", "force_custom_plan"),
        ("synchronous_commit", "off", "off"),
        ("lc_messages", "C", "C"),
        ("ROLE", "none", "none"),
    ],
)
def test_p10_clients_set_what_decides_nothing(name: str, value: str, shown: str) -> None:
    """A program whose first statement is refused does not start."""
    settings = Settings({})
    settings.set(name, value)
    assert settings.get(name) == shown


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("array_nulls", "off", "22023"),
        ("transaction_timeout", "5s", "22023"),
        ("work_mem", "many", "22023"),
        ("random_page_cost", "-1", "22023"),
        ("fsync", "off", "55P02"),
        ("nosuch", "1", "42704"),
        ("statement_timeout", "9" * 400, "22023"),
        ("statement_memory_bytes", "9" * 400 + " TB", "22023"),
        ("my.own", "x" * 10_001, "22023"),
        ("my." + "x" * 10_001, "own", "22023"),
    ],
)
def test_p10_what_would_not_be_kept_is_refused(name: str, value: str, state: str) -> None:
    """A setting that is taken and not kept is a promise broken."""
    with pytest.raises(SqlError) as caught:
        Settings({}).set(name, value)
    assert caught.value.sqlstate == state


def test_p10_a_session_has_not_any_number_of_settings() -> None:
    """`select set_config('my.' || n, …) from generate_series(1, 100000000) n` filled a node."""
    settings = Settings({})

    def add(first: int) -> None:
        for n in range(first, first + SQL_SETTINGS_OWN_MAX):
            settings.set(f"my.own{n}", "x", local=n % 2 == 0)

    add(0)
    for value in ("x", None):
        with pytest.raises(SqlError) as caught:
            settings.set("my.other", value)
        assert caught.value.sqlstate == "53400"
    settings.set("my.own7", "y")
    settings.reset_all()
    with pytest.raises(SqlError):  # what a rollback brings back counts, too
        add(SQL_SETTINGS_OWN_MAX)
    settings.end(committed=False)
    assert len(settings.all()) == len(Settings({}).all())
    add(0)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("psql", "psql"),
        ("a\nb\u00e9\x7f", "a?b???"),
        ("\u00e9" * 40, "?" * 62),
        ("x" * 99, "x" * 63),
    ],
)
def test_p10_a_client_calls_itself_something_short(said: str, kept: str) -> None:
    """Each statement's line in the log of requests had 10,000 characters of it: 10,000 statements,
    and what was in the log before was rotated away. As in PostgreSQL 15, which was asked.
    """
    settings = Settings({"application_name": said})
    assert settings.get("application_name") == kept


def test_p10_a_role_outlives_reset_all() -> None:
    """A pool that resets a connection would give its next user the login's rights."""
    settings = Settings({})
    settings.set("role", "app")
    settings.set("work_mem", "1MB")
    settings.reset_all()
    assert (settings.get("role"), settings.get("work_mem")) == ("app", "4MB")


def test_p1_plans_are_trees_in_json() -> None:
    """Tools that draw plans look for "Node Type" and "Plans"."""
    lines = [
        "Update on t",
        "  Index Scan Backward using t_a_idx on t",
        "    Key Range: [01, 02)",
        "    Key Range: [03, 04)",
        "    Filter: the whole WHERE",
    ]
    (told,) = json.loads(written("json", lines, ["Rows: 3", "Execution Time: 1.500 ms"]))
    (inner,) = told["Plan"].pop("Plans")
    assert told == {
        "Plan": {
            "Node Type": "ModifyTable",
            "Operation": "Update",
            "Relation Name": "t",
            "Alias": "t",
            "Actual Rows": 3,
        },
        "Execution Time": 1.5,
    }
    assert inner == {
        "Node Type": "Index Scan",
        "Scan Direction": "Backward",
        "Index Name": "t_a_idx",
        "Relation Name": "t",
        "Alias": "t",
        "Key Range": ["[01, 02)", "[03, 04)"],
        "Filter": "the whole WHERE",
    }
    (told,) = json.loads(written("json", ["DuckDB (Select)", "  Seq Scan on a", "  Seq Scan on b"]))
    assert [one["Relation Name"] for one in told["Plan"]["Plans"]] == ["a", "b"]


def test_p1_plans_are_trees_in_xml_and_yaml() -> None:
    """Django asks in each format that PostgreSQL has."""
    lines = [
        "DuckDB (Select)",
        "  Seq Scan on a&b",
        "    Keys: 1",
        "    Keys: 2",
        "  Seq Scan on c",
    ]
    assert written("yaml", lines, ["Rows: 3", "Execution Time: 1.500 ms"]).splitlines() == [
        "- Plan: ",
        '    Node Type: "DuckDB (Select)"',
        "    Plans: ",
        '      - Node Type: "Seq Scan"',
        '        Relation Name: "a&b"',
        '        Alias: "a&b"',
        "        Keys: ",
        '          - "1"',
        '          - "2"',
        '      - Node Type: "Seq Scan"',
        '        Relation Name: "c"',
        '        Alias: "c"',
        "    Actual Rows: 3",
        "  Execution Time: 1.5",
    ]
    told = written("xml", lines, ["Execution Time: 1.500 ms"])
    root = ElementTree.fromstring(told)
    names = {"e": "http://www.postgresql.org/2009/explain"}
    inner = root.findall("e:Query/e:Plan/e:Plans/e:Plan", names)
    assert [one.findtext("e:Relation-Name", "", names) for one in inner] == ["a&b", "c"]
    assert [one.text for one in inner[0].findall("e:Keys/e:Item", names)] == ["1", "2"]
    assert root.findtext("e:Query/e:Execution-Time", "", names) == "1.5"
    assert told.splitlines()[2] == "    <Plan>"
