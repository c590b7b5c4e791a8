"""Paths of jsonpath as PostgreSQL 15 prints and follows them: recorded by
scripts/record_sql_jsonpaths.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from scripts.record_sql_jsonpaths import CALLS, MANY, TARGET, ZONE, asked, random_paths
from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions import f_jsonpath
from sqlproxy.pg import jsonpaths
from sqlproxy.pg.style import DEFAULT
from sqlproxy.values.breaks import set_breaks
from sqlproxy.values.errors import SqlError
from sqlproxy.values.memory import Budget, Share, spending

RECORDED: list[list[Any]] = json.loads(TARGET.read_text("utf-8"))
ENV = Env(style=replace(DEFAULT, zone=ZoneInfo(ZONE)))
FUNCTIONS = {
    name: partial(one.call, ENV) if one.with_env else one.call
    for name, one in f_jsonpath.FUNCTIONS.items()
}
FUNCTIONS["jsonb_path_query"] = f_jsonpath.query
FUNCTIONS["jsonb_path_query_tz"] = partial(f_jsonpath.query_tz, ENV)


def answer(call: Callable[..., Any], *args: object) -> Any:
    """A list of texts, or the error, as they are recorded."""
    try:
        found = call(*args)
    except SqlError as error:
        return {"error": error.sqlstate, "message": error.message}
    if isinstance(found, list):
        return found
    return [{True: "t", False: "f"}.get(found, found)]


@pytest.mark.slow
def test_p1_paths_find_what_postgresql_finds() -> None:
    """Another answer, or an error where PostgreSQL has none."""
    wrong = []
    for path, text, variables, printed, *answers in RECORDED:
        if isinstance(printed, dict):
            if printed["error"] == "2201B":
                continue  # here a pattern is read when it is looked for
            found = answer(jsonpaths.canonical, path)
            if not isinstance(found, dict) or found["error"] != printed["error"]:
                wrong.append(f"{path} is {found}, not {printed}")
            continue
        held = jsonpaths.canonical(path)
        for (name, sql), expected in zip(CALLS.items(), answers, strict=True):
            args = [text, held, variables, *([True] if "true" in sql else [])]
            found = answer(FUNCTIONS[sql.partition("(")[0]], *args)
            if found != expected:
                wrong.append(f"{name} of {path} in {text} is {found}, not {expected}")
    assert not wrong, "\n".join(wrong)


def test_p1_paths_are_printed_as_postgresql_prints_them() -> None:
    """The text of a jsonpath differs, where PostgreSQL's means the same as what was written."""
    differ = 0
    for path, _, _, printed, *_ in RECORDED:
        if isinstance(printed, dict):
            continue
        held = jsonpaths.canonical(path)
        if held == printed:
            continue
        differ += 1
        # PostgreSQL leaves out brackets before an accessor, and reads its own text otherwise
        assert held.replace("(", "").replace(")", "") == printed.replace("(", "").replace(")", "")
    assert differ * 20 < len(RECORDED)


def test_p1_a_printed_path_is_the_same_path() -> None:
    """What is stored for a path means something else."""
    read = 0
    for path, _, _ in islice(random_paths(1), MANY):
        try:
            first = jsonpaths.parse(path)
        except SqlError:
            continue
        held = jsonpaths.canonical(path)
        assert jsonpaths.parse(held) == first, path
        read += 1
    assert read > MANY // 2


def test_p1_recorded_is_what_the_script_makes() -> None:
    """The generator changed, and nothing was recorded again."""
    assert [row[:3] for row in RECORDED] == [list(one) for one in asked()]


def test_p1_operators_are_silent() -> None:
    """`@?` and `@@` raise for a path that does not fit, or know variables."""
    exists, match = (FUNCTIONS[f"jsonb_path_{name}_opr"] for name in ("exists", "match"))
    assert exists('{"a": 1}', "strict $.b") is None
    assert match('{"a": 1}', "$.a") is None
    assert match('{"a": 1}', "$.a == 1") is True
    assert exists("1", "$x") is True  # a variable is null there


def test_p1_a_path_that_finds_too_much_is_refused() -> None:
    """A client's path fills the memory of the process."""
    deep = "[" * 40 + "1" + "]" * 40
    with spending(Budget(Share(), 1 << 20)), pytest.raises(SqlError) as found:
        f_jsonpath.query(deep, "$.**.**.**.**.**")
    assert found.value.sqlstate == "53200"


def test_p1_a_path_takes_breaks() -> None:
    """A path of a client keeps all others waiting, and cannot be cancelled."""

    class Cancelled(Exception):
        pass

    def cancel() -> None:
        raise Cancelled

    set_breaks(cancel)
    try:
        with pytest.raises(Cancelled):
            f_jsonpath.query("[1, 2]", "$[*] ? (@ > 1)")
    finally:
        set_breaks(lambda: None)


@pytest.mark.parametrize(
    ("path", "sqlstate"),
    [
        ("(" * 3_000 + "$" + ")" * 3_000, "54001"),
        ("$" + ".a" * 100_000, "54000"),
        ("$.a.datetime($v)", "42601"),
        ("", "22P02"),
    ],
)
def test_p1_paths_that_are_not_taken(path: str, sqlstate: str) -> None:
    """A path that is too long or too deep is an internal error, or ends the process."""
    with pytest.raises(SqlError) as found:
        jsonpaths.canonical(path)
    assert found.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    ("path", "text", "sqlstate", "words"),
    [
        ('$.datetime("IYYY-IW")', "2017-10", "0A000", 'the field "IYYY"'),
        ('$.datetime("TMMonth")', "March", "0A000", 'the field "TMMonth"'),
        ("$.datetime()", "12017-10-01", "0A000", "the year of"),
        ('$.datetime("MM-DD")', "10-01", "0A000", "the year of"),
        (f'$.datetime("{"-" * 100_000}")', "-", "54000", "a jsonpath of"),
        (f'$.datetime("{"-" * 10_000}")', "-", "54000", "a format of"),
    ],
)
def test_p1_dates_that_are_not_read_are_refused(
    path: str, text: str, sqlstate: str, words: str
) -> None:
    """Something else is found, or nothing, where PostgreSQL finds a date."""
    with pytest.raises(SqlError, match=words) as found:
        f_jsonpath.query(f'"{text}"', path, "{}", True)
    assert found.value.sqlstate == sqlstate
