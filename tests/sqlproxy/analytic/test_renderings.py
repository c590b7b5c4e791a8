"""What was rendered of a query serves its next run, and only one that it is right for."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from sqlproxy.analytic.renderings import Rendering
from sqlproxy.front.bound.env import Env
from sqlproxy.pg.answers import Row
from sqlproxy.pg.style import Style
from tests.sqlproxy.pgcatalog import sample
from tests.sqlproxy.pgcatalog.asking import NOW, Ours

JOIN = "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'public'"


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    found = Ours()
    yield found
    found.close()


class Plan:
    """One bound statement, run by several runs."""

    def __init__(self, ours: Ours, text: str, *types: int) -> None:
        self._ours, self.found = ours, ours.bound(text, types)
        self.kept: list[Any] = []

    def __call__(self, *values: object) -> list[Row]:
        return self._ours.loop.run_until_complete(self._ours.answer(self.found, values, self.kept))


def test_a_query_is_rendered_once(ours: Ours, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rendering it costs more than asking DuckDB."""
    rendered = 0
    render = Rendering.render

    def counted(self: Rendering, make: Any) -> None:
        nonlocal rendered
        rendered += 1
        render(self, make)

    monkeypatch.setattr(Rendering, "render", counted)
    plan = Plan(ours, f"SELECT relname, pg_table_is_visible(c.oid) {JOIN} ORDER BY 1")
    first = plan()
    assert first
    assert plan() == plan() == first
    assert rendered == 1


def test_rows_are_those_of_the_run(ours: Ours) -> None:
    """Who keeps what was rendered shows a catalog of yesterday."""
    plan = Plan(ours, f"SELECT relname {JOIN} AND relkind = 'r' ORDER BY 1")
    before = plan()
    relations = list(sample.relations())
    gone = next(one for one in relations if (one.name,) in before)
    try:
        ours.show(one for one in relations if one is not gone)
        assert plan() == [row for row in before if row != (gone.name,)]
    finally:
        ours.show(relations)
    assert plan() == before


def test_values_are_those_of_the_run(ours: Ours) -> None:
    """What stands in DuckDB's text is another run's parameter, or one that only equals it."""
    plan = Plan(ours, f"SELECT $1 || relname {JOIN} AND relname < $2 ORDER BY 1", 25, 25)
    both = [plan("a", "m"), plan("b", "m"), plan("b", "p")]
    assert both == [
        Plan(ours, f"SELECT $1 || relname {JOIN} AND relname < $2 ORDER BY 1", 25, 25)(*one)
        for one in (("a", "m"), ("b", "m"), ("b", "p"))
    ]
    assert both[0] != both[1]
    plan = Plan(ours, f"SELECT count(*), $1::text {JOIN} GROUP BY 2", 1700)
    assert [plan(Decimal(one))[0][1] for one in ("1", "1.0", "1.00")] == ["1", "1.0", "1.00"]


def test_what_a_session_says_is_asked_of_it(ours: Ours) -> None:
    """Another user's name, or another zone's hour, stands in the text."""
    plan = Plan(ours, f"SELECT count(*), current_user, current_setting('TimeZone') {JOIN}")
    try:
        assert plan()[0][1:] == ("postgres", "UTC")
        ours.user = "somebody"
        assert plan()[0][1:] == ("somebody", "UTC")
        ours.user = "postgres"
        assert plan()[0][1:] == ("postgres", "UTC")
    finally:
        ours.user = "postgres"


@pytest.mark.parametrize("asked", ["now()", "'today'::text::date", "statement_timestamp()"])
def test_a_moment_is_not_kept(ours: Ours, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time stands still for whoever asks twice."""
    own = ours._env

    def env() -> Env:
        found = own()
        found.style = Style(now=lambda: NOW)
        return found

    monkeypatch.setattr(ours, "_env", env)
    plan = Plan(ours, f"SELECT relname {JOIN} AND {asked} > '2001-01-01' ORDER BY 1")
    assert plan() == plan()
    assert plan.kept == []


def test_what_is_kept_keeps_no_run_alive(ours: Ours, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared plan held the last run's session, its catalog and its parameters, however long ago
    that was closed.
    """

    class Held(dict[str, str]):
        """A session's settings."""

    class Clock:
        def now(self) -> datetime:
            return NOW

    own, alive = ours._env, list[weakref.ref[Any]]()

    def env() -> Env:
        found = own()
        found.session, clock = Held(found.session), Clock()
        found.style = Style(now=clock.now)
        alive.extend(map(weakref.ref, (found.session, clock)))
        return found

    monkeypatch.setattr(ours, "_env", env)
    snapshot = ours.catalog.snapshot

    async def watched(*asked: Any) -> Any:
        found = await snapshot(*asked)
        alive.append(weakref.ref(found))
        return found

    monkeypatch.setattr(ours.catalog, "snapshot", watched)
    asked = f"SELECT relname, relname::regclass, current_user, $1::text {JOIN} AND relname >= $1"
    plan = Plan(ours, asked, 25)
    assert plan("a") == plan("a")
    assert len(plan.kept) == 1
    gc.collect()
    assert [one() for one in alive] == [None] * len(alive) != []


def test_what_a_function_found_is_looked_for_again(ours: Ours) -> None:
    """A constant that is made of the catalog outlives what it was made of."""
    plan = Plan(ours, f"SELECT relname {JOIN} AND has_schema_privilege('public', 'usage')")
    first = plan()
    (kept,) = plan.kept
    assert plan() == first
    assert plan.kept == [kept]
    ours.show(sample.relations())  # declared anew: another moment
    assert plan() == first
    assert plan.kept[-1] is not kept


def test_two_runs_at_once_have_one_each(ours: Ours) -> None:
    """Functions in DuckDB ask the environment of the other one's run."""
    plan = Plan(ours, f"SELECT relname, current_setting($1 || relname, true) {JOIN} ORDER BY 1", 25)

    async def both() -> list[list[Row]]:
        found = plan.found
        return list(
            await asyncio.gather(
                *(ours.answer(found, (one,), plan.kept) for one in ("x.", "y.", "x."))
            )
        )

    answers = ours.loop.run_until_complete(both())
    assert answers[0] == answers[1] == answers[2]
    assert len({id(one) for one in plan.kept}) == 3
