"""Bound statements with what was compiled for them, shared by all sessions of a node."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kv.base.limits import SQL_PLANS_CHARS_MAX, SQL_PLANS_MAX
from kv.base.rights import Roles
from sqlproxy.catalog.privileges import Need
from sqlproxy.declared.database import Declared
from sqlproxy.front.bound import statements as s
from sqlproxy.front.bound.trees import has
from sqlproxy.front.functions.f_catalog import RELATIONS
from sqlproxy.pg.answers import Field
from sqlproxy.tables.ends import EndsPlan, ends_plan
from sqlproxy.tables.select_values import ListingPlan
from sqlproxy.tables.selecting import ConstantPlan, SelectPlan, select_plan
from sqlproxy.tables.short_statements import Short
from sqlproxy.tables.writing import DeletePlan, InsertPlan, UpdatePlan

Plan = (
    SelectPlan | EndsPlan | ConstantPlan | ListingPlan | InsertPlan | UpdatePlan | DeletePlan | None
)
PlanKey = tuple[str, tuple[int, ...], Declared, str]
"""Text, OIDs of the parameters, what is declared, the time zone."""


@dataclass(slots=True, eq=False)
class Prepared:
    """`bound`: of `front.bound.statements` or `declarations`. `plan`: how it runs without DuckDB;
    None: it cannot, or it is no query and no change.
    """

    text: str
    oids: tuple[int, ...]
    bound: Any
    declared: Declared | None
    fields: Sequence[Field] | None
    parameters: Sequence[int]
    plan: Plan = None
    wire: Any = None
    short: Short | bool | None = None  # True: it is to be looked at whether there is one
    needs: tuple[Need, ...] = ()
    asks: frozenset[str] = frozenset()  # of the system's relations (front.front.BoundWith)
    permitted: dict[str, Roles] = field(default_factory=dict)  # user → roles that it was by
    kept: list[Any] = field(default_factory=list, init=False)  # by analytic, of this `bound` alone
    noted: bool = False  # `needs` and `asks` are all of it; of a part nothing was noted

    def __post_init__(self) -> None:
        self.short = (self.plan is not None and not self.asks) or None

    @property
    def reads_tables(self) -> bool:
        """Whether a query needs a snapshot of what users have stored."""
        if isinstance(self.plan, ConstantPlan | ListingPlan):
            return False
        if RELATIONS not in self.asks:
            return True
        return bool(self.needs) if self.noted else has(self.bound, s.TableItem)

    def part(
        self,
        bound: object,
        fields: Sequence[Field] | None = None,
        needs: tuple[Need, ...] = (),
    ) -> Prepared:
        """A statement inside this one."""
        plan = plan_of(bound)
        return Prepared(
            *(self.text, self.oids, bound, self.declared, fields, self.parameters),
            plan=plan,
            needs=needs,
            asks=self.asks,
        )


def plan_of(bound: object) -> Plan:
    """How a query or a change runs without DuckDB; None if it cannot."""
    match bound:
        case s.Select():
            return ends_plan(bound) or select_plan(bound)
        case s.Insert() if not (bound.ctes or bound.subqueries):
            return InsertPlan(bound)
        case s.Update() | s.Delete() if _alone(bound):
            return UpdatePlan(bound) if isinstance(bound, s.Update) else DeletePlan(bound)
        case _:
            return None


def _alone(bound: s.Update | s.Delete) -> bool:
    """Whether its own table is all that it reads."""
    return not (bound.ctes or bound.subqueries or bound.current_of) and len(bound.items) == 1


def described_alike(one: Prepared, other: Prepared) -> bool:
    """Whether a client that knows the one's columns reads the other's rows. Which table they are
    of does not matter: it has another OID when it was emptied, or made anew.
    """
    if one.fields is other.fields or one.fields is None or other.fields is None:
        return one.fields is other.fields
    result, now = ([(f.name, f.oid, f.typmod) for f in p.fields or ()] for p in (one, other))
    return result == now


class Plans:
    """Bound statements with what was compiled for them, by text and everything that they depend on;
    the least used ones go, when they are too many or their texts are too long together.
    """

    def __init__(self, most: int = SQL_PLANS_MAX, chars_max: int = SQL_PLANS_CHARS_MAX) -> None:
        self._known: OrderedDict[PlanKey, tuple[Prepared, int]] = OrderedDict()
        self._most, self._chars_max = most, chars_max
        self._chars = 0

    def get(self, key: PlanKey) -> Prepared | None:
        found = self._known.get(key)
        if found is None:
            return None
        self._known.move_to_end(key)
        return found[0]

    def put(self, key: PlanKey, plan: Prepared, chars: int) -> None:
        """`chars`: of its text."""
        if (old := self._known.pop(key, None)) is not None:
            self._chars -= old[1]
        self._known[key] = plan, chars
        self._chars += chars
        while len(self._known) > self._most or self._chars > self._chars_max:
            _, (_, gone) = self._known.popitem(last=False)
            self._chars -= gone
