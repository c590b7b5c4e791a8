"""Privileges of SQL and grants of every surface are one matter."""

from __future__ import annotations

import pytest

from kv.base.rights import CLUSTER, PUBLIC, Action, Grant, Kind, Resource, Role, Roles
from sqlproxy.catalog.privileges import ACTIONS, ALL, Place, Rights
from sqlproxy.rows.schema import View
from tests.kit.each import each

VIEW = View(2000, "shop", "v", "SELECT 1", owner="boss")


def _rights(granted: Grant, role: str) -> Rights:
    roles = Roles({"ann": Role(member_of=("staff",)), "staff": Role()}, {role: (granted,)})
    return Rights(roles, {VIEW.id: VIEW}, Place("shop", "boss"))


@pytest.mark.parametrize("role", ["ann", "staff", PUBLIC])
@pytest.mark.parametrize(
    "resource",
    [CLUSTER, Resource(Kind.NAMESPACE, "shop"), Resource(Kind.TABLE, "v", "shop")],
    ids=str,
)
@each("letter", [one for one in ALL["view"] if one in ACTIONS])
def test_grants_of_other_surfaces_count_in_sql(letter: str, resource: Resource, role: str) -> None:
    """Who may read a table over HTTP would be refused in SQL, or get more than was granted."""
    rights = _rights(Grant(frozenset({ACTIONS[letter]}), resource), role)
    allowed = {one for one in ALL["view"] if rights.allows("ann", VIEW, one)}
    assert allowed == {letter}
    assert not rights.allows("eve", VIEW, letter) or role == PUBLIC


def test_grants_of_a_namespace_are_of_its_database() -> None:
    """Who may define there could make no table, or a grant elsewhere would open it."""
    here = Grant(frozenset({Action.DEFINE}), Resource(Kind.NAMESPACE, "shop"))
    assert _rights(here, "ann").allows_in_schema("ann", "C")
    there = Grant(frozenset({Action.DEFINE}), Resource(Kind.NAMESPACE, "other"))
    assert not _rights(there, "ann").allows_in_schema("ann", "C")
