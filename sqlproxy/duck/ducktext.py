"""DuckDB's SQL of expressions, printed. Pure; for both translators (analytic/, pgcatalog/).

A text knows how tightly it binds (`LEVELS`), and an operator puts parentheses around whatever does
not bind more tightly than it wants. A text that came about in another way (a plain `str`) is always
in doubt, so it gets them too: forgetting this module costs two characters, never the meaning.

Deliberately no finer levels than these: DuckDB's table of operators is not PostgreSQL's, and one
that is never relied upon cannot be wrong. Operators of the level OPERATOR are never mixed without
parentheses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final


class Level(IntEnum):
    """How tightly a text binds, the loosest first."""

    OR = 1
    AND = 2
    NOT = 3
    OPERATOR = 4  # all others: comparisons, IS, IN, BETWEEN, LIKE, arithmetic, ||
    PRIMARY = 5  # a name, a literal, a call, CAST, CASE, or what stands in parentheses


WANTED: Final = {
    Level.OR: Level.AND,
    Level.AND: Level.NOT,
    Level.NOT: Level.PRIMARY,
    Level.OPERATOR: Level.PRIMARY,
}
"""By the level of an operator: the loosest operand that it takes without parentheses."""


class Text(str):
    """SQL of one expression."""

    __slots__ = ("level",)
    level: Level

    def __new__(cls, text: str, level: Level) -> Text:
        made = super().__new__(cls, text)
        made.level = level
        return made


def operand(text: str, of: Level) -> str:
    """The text as an operand of an operator of this level."""
    level = text.level if isinstance(text, Text) else None
    return text if level is not None and level >= WANTED[of] else f"({text})"


def primary(text: str) -> Text:
    """A text that nothing around it can tear apart: the caller knows that."""
    return Text(text, Level.PRIMARY)


def inner(text: str) -> Text:
    """In parentheses, if it needs them to be a primary."""
    return primary(operand(text, Level.OPERATOR))


# -- operators


def infix(left: str, operator: str, right: str) -> Text:
    """left operator right."""
    a, b = operand(left, Level.OPERATOR), operand(right, Level.OPERATOR)
    return Text(f"{a} {operator} {b}", Level.OPERATOR)


def prefix(operator: str, arg: str) -> Text:
    """A sign; the blank keeps two of them from being a comment."""
    return Text(f"{operator} {operand(arg, Level.OPERATOR)}", Level.OPERATOR)


def test(arg: str, words: str) -> Text:
    """arg IS NULL and its like."""
    return Text(f"{operand(arg, Level.OPERATOR)} {words}", Level.OPERATOR)


def between(arg: str, low: str, high: str, *, negated: bool = False) -> Text:
    a, b, c = (operand(one, Level.OPERATOR) for one in (arg, low, high))
    return Text(f"{a} {'NOT ' if negated else ''}BETWEEN {b} AND {c}", Level.OPERATOR)


def member(arg: str, listed: str, *, negated: bool = False) -> Text:
    """`listed`: values with commas between, or a query."""
    word = "NOT IN" if negated else "IN"
    return Text(f"{operand(arg, Level.OPERATOR)} {word} ({listed})", Level.OPERATOR)


def like(arg: str, words: str, pattern: str, escape: str) -> Text:
    a, b, c = (operand(one, Level.OPERATOR) for one in (arg, pattern, escape))
    return Text(f"{a} {words} {b} ESCAPE {c}", Level.OPERATOR)


def negation(arg: str) -> Text:
    return Text(f"NOT {operand(arg, Level.NOT)}", Level.NOT)


def conjunction(args: Sequence[str]) -> Text:
    return _joined(args, "AND", Level.AND)


def disjunction(args: Sequence[str]) -> Text:
    return _joined(args, "OR", Level.OR)


def _joined(args: Sequence[str], word: str, level: Level) -> Text:
    if len(args) == 1:
        return inner(args[0])
    return Text(f" {word} ".join(operand(one, level) for one in args), level)


def compared_rows(operator: str, pairs: Sequence[tuple[str, str]]) -> Text:
    """Two rows column by column, as PostgreSQL does it: the first pair that is not equal says the
    order, and NULL decides nothing.
    """
    if operator in ("=", "<>", "!="):
        joined = conjunction if operator == "=" else disjunction
        return joined([infix(a, operator, b) for a, b in pairs])
    *first, last = pairs
    made = infix(last[0], operator, last[1])
    for a, b in reversed(first):
        made = case([(infix(a, "=", b), made)], infix(a, operator[0], b))
    return made


# -- primaries


def call(name: str, *args: str) -> Text:
    return primary(f"{name}({', '.join(args)})")


def cast(arg: str, kind: str) -> Text:
    return primary(f"CAST({arg} AS {kind})")


def case(whens: Iterable[tuple[str, str]], default: str | None = None) -> Text:
    arms = " ".join(f"WHEN {condition} THEN {result}" for condition, result in whens)
    return primary(f"CASE {arms}{'' if default is None else f' ELSE {default}'} END")


def null(kind: str) -> Text:
    return cast("NULL", kind)


TRUE: Final = primary("true")
FALSE: Final = primary("false")
