"""Conversions that are made while binding: literals to values, and the nodes that casts become."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import UTC
from typing import Final

from sqlproxy.front.binding.scope import Parameters
from sqlproxy.front.bound.exprs import ArrayExpr, Call, CaseValue, Cast, Const, Expr, Length, Param
from sqlproxy.front.functions import object_names
from sqlproxy.front.functions.f_catalog import CATALOG
from sqlproxy.front.functions.object_names import HELD_AS_OIDS
from sqlproxy.front.functions.regclass import Relations, as_oid, name_parts, of_oid, of_text
from sqlproxy.front.syntax.syntax import Node, at, find
from sqlproxy.front.types.quoting import held_relation
from sqlproxy.front.types.registry import POLYMORPHIC, Proc, element_of, format_type
from sqlproxy.front.types.resolve import ASSIGNMENT, EXPLICIT, IMPLICIT, length_function, pathway
from sqlproxy.front.types.value_texts import Reader, reader, writer
from sqlproxy.pg import oids
from sqlproxy.pg.style import DEFAULT, Style
from sqlproxy.values.errors import (
    CANNOT_COERCE,
    DATATYPE_MISMATCH,
    SqlError,
    unsupported,
)

MOMENTS: Final = frozenset({oids.DATE, oids.TIME, oids.TIMESTAMP, oids.TIMESTAMPTZ})
"""Types of which a literal may mean the time when it is read."""
_REGS: Final = frozenset((oids.REGCLASS, oids.REGTYPE))
_MOMENTS: Final = frozenset(("now", "today", "tomorrow", "yesterday"))


class Coercer:
    """Makes the nodes of casts; decides the types of parameters on the way."""

    def __init__(
        self,
        parameters: Parameters,
        style: Style,
        relations: Callable[[], Relations] | None = None,
        named: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`relations`: those that a regclass may mean; None: of none. `named`: is told of each that
        a statement names as a text.
        """
        self.parameters = parameters
        self.style = style
        self._relations = relations or (lambda: Relations("", ()))
        self._named: Final = named
        self.known_relations = False  # whether a regclass that is written has to be there
        self.asked: set[str] = set()  # what the statement wants of the system's relations
        self.meant: dict[int, str] = {}  # by literals, by their places, in this zone, on this path

    def coerce(self, expr: Expr, target: int, context: str = IMPLICIT, pos: int = 0) -> Expr | None:
        """The expression as one of the type, without regard to modifiers; None: there is no way."""
        if expr.oid == target or target == oids.ANY or target in POLYMORPHIC:
            return expr
        if expr.oid == oids.UNKNOWN:
            if isinstance(expr, Param):
                return self._parameter(expr, target, pos)
            if isinstance(expr, Const):
                return self._literal(expr, target, pos)
        row = pathway(expr.oid, target, context)
        if row is None:
            return None
        explicit = context == EXPLICIT
        if not _REGS.isdisjoint((expr.oid, target, element_of(expr.oid))):
            return self._by_name(expr, target, row.method, context)
        if HELD_AS_OIDS & {expr.oid, target}:
            self.asked.add(CATALOG)  # its name is shown in the end
            if row.method == "i":
                return self._of_text(expr, target)
        match row.method:
            case "b":
                return Cast(oid=target, arg=expr, how="relabel", explicit=explicit, pos=expr.pos)
            case "i":
                return Cast(oid=target, arg=expr, how="text", explicit=explicit, pos=expr.pos)
            case "a":
                inner = self.coerce(
                    CaseValue(oid=element_of(expr.oid)), element_of(target), context
                )
                return Cast(
                    oid=target,
                    arg=expr,
                    how="array",
                    explicit=explicit,
                    element=inner,
                    pos=expr.pos,
                )
            case _:
                pass
        proc = Proc(row.source, (expr.oid,), target, row.source)
        return Call(
            oid=target,
            proc=proc,
            args=(expr,),
            cast="explicit" if explicit else "implicit",
            pos=expr.pos,
        )

    def _parameter(self, expr: Param, target: int, pos: int) -> Expr:
        """A parameter whose type is decided now; names of objects come as their texts."""
        param = self.parameters.decide(expr, target, pos)
        if target in HELD_AS_OIDS:
            return self._asking(object_names.of_text(param, target))
        return of_text(param, self._relations()) if target == oids.REGCLASS else param

    def _asking(self, call: Call) -> Call:
        """What asks the catalog when it is computed."""
        self.asked.add(CATALOG)
        return call

    def named_type(self, oid: int, pos: int) -> Expr:
        """A type of users' as a regtype: its name depends on the schemas that are searched."""
        return self._asking(object_names.as_type(Const(oid=oids.OID, value=oid, pos=pos)))

    def _of_text(self, expr: Expr, target: int) -> Expr | None:
        """From or to the text of what is held as an OID."""
        if target in HELD_AS_OIDS:
            text = self.coerce(expr, oids.TEXT, EXPLICIT)
            return None if text is None else self._asking(object_names.of_text(text, target))
        return self.coerce(self._asking(object_names.as_text(expr)), target, EXPLICIT)

    def _by_name(self, expr: Expr, target: int, method: str, context: str) -> Expr | None:
        """From or to what is held as a name."""
        if expr.oid in _REGS:
            return self._of_reg(expr, target)
        if target == oids.REGCLASS:
            return self._regclass(expr, method, context)
        if target != oids.REGTYPE:
            return self._of_regs(expr, target, context)
        if method != "i":
            oid = self.coerce(expr, oids.OID, context)
            return None if oid is None else self._asking(object_names.as_type(oid))
        text = self.coerce(expr, oids.TEXT, EXPLICIT)
        return None if text is None else self._asking(object_names.of_text(text, target))

    def _of_reg(self, expr: Expr, target: int) -> Expr:
        """A name as what it stands for: of a type its OID, known when it is bound."""
        found: int | None = None
        if target in (oids.TEXT, oids.VARCHAR):  # it is held as a name
            return Cast(oid=target, arg=expr, how="relabel", explicit=True, pos=expr.pos)
        if isinstance(expr, Call) and expr.proc.source == "row_constant":  # tableoid::regclass
            return self.must(expr.args[1], target, EXPLICIT)
        if isinstance(expr, Call) and expr.proc.source == "pg_typeof":
            found = expr.args[0].oid
        elif expr.oid == oids.REGCLASS:
            oid = as_oid(expr, self._relations())
            return oid if target == oids.OID else self.must(oid, target, EXPLICIT)
        if found is not None:
            return Const(oid=target, value=found, pos=expr.pos)
        number = self._asking(object_names.oid_of_type(expr))
        return number if target == oids.OID else self.must(number, target, EXPLICIT)

    def _regclass(self, expr: Expr, method: str, context: str) -> Expr | None:
        """What is no constant as a regclass."""
        if method != "b":
            text = self.coerce(expr, oids.TEXT, EXPLICIT)
            return None if text is None else of_text(text, self._relations())
        oid = self.coerce(expr, oids.OID, context)
        return None if oid is None else of_oid(oid, self._relations())

    def _of_regs(self, expr: Expr, target: int, context: str) -> Expr:
        """An array of names: each of ARRAY[…] by itself."""
        if target in (oids.TEXT, oids.VARCHAR):
            return Cast(oid=target, arg=expr, how="text", explicit=True, pos=expr.pos)
        if not isinstance(expr, ArrayExpr) or expr.nested:
            raise _needs_constant(expr.oid, target)
        args = tuple(self.must(one, element_of(target), context) for one in expr.args)
        return replace(expr, oid=target, args=args)

    def _literal(self, expr: Const, target: int, pos: int, typmod: int = -1) -> Expr:
        if expr.value is None:
            return Const(oid=target, value=None, pos=expr.pos)
        if target in HELD_AS_OIDS or target == oids.REGTYPE:
            text = Const(oid=oids.TEXT, value=expr.value, pos=expr.pos)
            return self._asking(object_names.of_text(text, target))
        if is_moment(expr.value, target):
            return Cast(
                oid=target,
                arg=Const(oid=25, value=expr.value),
                how="text",
                explicit=True,
                pos=expr.pos,
            )
        try:
            value = read(target, self.style, typmod)(expr.value)
        except SqlError as error:
            if error.position == 0 and expr.pos >= 0:
                error.position = expr.pos + 1
            raise
        if target == oids.REGCLASS:
            value = self.relation(expr.value, expr.pos)
        zoned = (element_of(target) or target) == oids.TIMESTAMPTZ and self.style.zone is not UTC
        if zoned and read(target, DEFAULT, typmod)(expr.value) != value:
            self.meant[expr.pos] = writer(target, self.style)(value)
        return Const(oid=target, value=value, pos=expr.pos)

    def relation(self, text: str, pos: int) -> str:
        """What a text that is written at a place names, as a regclass holds it: if only the path
        leads to it, it is kept with its schema. Raises SqlError (42P01, 3F000).
        """
        relations = self._relations()
        if self.known_relations:
            held = relations.must(text)
            self._named(text)
        else:
            held = (None if relations.plain else relations.find(text)) or held_relation(text)
        if "." in held and len(name_parts(text)) == 1:
            self.meant[pos] = held
        return held

    def settled(self, node: Node) -> Node:
        """The tree of a declaration, which others read in other zones and on other paths, with what
        its literals mean here.
        """
        if not self.meant:
            return node
        found = deepcopy(node)
        for literal in find(found, "A_Const"):
            if (text := self.meant.get(at(literal) - 1)) is not None and "sval" in literal:
                literal["sval"] = {"sval": text}
        return found

    def must(
        self, expr: Expr, target: int, context: str = IMPLICIT, pos: int = 0, what: str = ""
    ) -> Expr:
        """`coerce` that raises: 42846 or, with `what` (its name and `must be type`), 42804."""
        found = self.coerce(expr, target, context, pos)
        if found is not None:
            return found
        if what:
            raise SqlError(
                DATATYPE_MISMATCH,
                f"argument of {what} must be type {format_type(target)}, not type "
                f"{format_type(expr.oid)}",
                position=expr.pos + 1,
            )
        raise SqlError(
            CANNOT_COERCE,
            f"cannot cast type {format_type(expr.oid)} to {format_type(target)}",
            position=pos,
        )

    def to(self, expr: Expr, target: int, typmod: int, context: str, pos: int = 0) -> Expr | None:
        """With its modifier: what `CAST` and assignment to a column do."""
        if (
            isinstance(expr, Const)
            and expr.oid == oids.UNKNOWN
            and expr.value is not None
            and target == oids.INTERVAL
            and typmod >= 0
        ):
            return self.fit(self._literal(expr, target, pos, typmod), typmod, context == EXPLICIT)
        found = self.coerce(expr, target, context, pos)
        return None if found is None else self.fit(found, typmod, context == EXPLICIT)

    @staticmethod
    def fit(expr: Expr, typmod: int, explicit: bool) -> Expr:
        if typmod < 0 or typmod == expr.typmod:
            return expr
        if length_function(element_of(expr.oid) or expr.oid):
            return Length(oid=expr.oid, typmod=typmod, arg=expr, explicit=explicit, pos=expr.pos)
        return expr

    def assign(self, expr: Expr, target: int, typmod: int, column: str, pos: int) -> Expr:
        """What INSERT and UPDATE do with a value. Raises 42804."""
        found = self.to(expr, target, typmod, ASSIGNMENT, pos)
        if found is None:
            raise SqlError(
                DATATYPE_MISMATCH,
                f'column "{column}" is of type {format_type(target)} but expression is of type '
                f"{format_type(expr.oid)}",
                hint="You will need to rewrite or cast the expression.",
                position=pos,
            )
        return found


def _needs_constant(source: int, target: int) -> SqlError:
    kinds = f"{format_type(source)} to {format_type(target)}"
    return unsupported(f"a cast from {kinds} of what is no constant")


def as_json(expr: Expr) -> Expr:
    """to_json of it."""
    return Call(
        oid=oids.JSON, proc=Proc("to_json", (expr.oid,), oids.JSON, "to_json"), args=(expr,)
    )


def is_moment(text: str, oid: int) -> bool:
    """Whether a literal means the time when it is read: `now`, `today`, …"""
    return oid in MOMENTS and text.strip().lower() in _MOMENTS


def read(oid: int, style: Style, typmod: int = -1) -> Reader:
    """What reads a literal of a type. Raises 0A000: literals of that type are not known here."""
    return reader(oid, style, typmod)
