"""Random expressions over a small table: all operators that texts for DuckDB are printed for, with
NULLs, and with divisions that something around may guard.
"""

from __future__ import annotations

import random
import re
from typing import Final

COLUMNS: Final = ("id int", "x bool", "y bool", "i int", "j int", "s text", "t text")
ROWS: Final = (
    "(1, true, false, 1, 0, 'a', 'a%')",
    "(2, false, null, 0, 7, '', '%')",
    "(3, null, true, null, -3, 'b_c', null)",
    "(4, true, true, -5, null, null, 'x')",
    "(5, false, false, 2, 2, 'ab', 'ab')",
    "(6, null, null, null, null, null, null)",
    "(7, true, null, 9, -1, 'true', 'b')",
)
NAMES: Final = ", ".join(one.split()[0] for one in COLUMNS)
VALUES: Final = f"(values {', '.join(ROWS)}) m({NAMES})"
DEPTH_MAX: Final = 6
LENGTH_MAX: Final = 700
SEED: Final = 6


def made(count: int, seed: int = SEED) -> list[str]:
    """So many expressions, each of another text."""
    chance = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        kind = chance.choice(("bool", "bool", "bool", "int", "text"))
        text = _Maker(chance).make(kind, chance.randint(2, DEPTH_MAX))
        if len(text) <= LENGTH_MAX:
            found[text] = None
    return list(found)


class _Maker:
    """Every operand has its own parentheses: what they mean must be the same to all."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def make(self, kind: str, depth: int) -> str:
        if depth == 0 or self._chance.random() < 0.08:
            return self._leaf(kind)
        return {"bool": self._bool, "int": self._int, "text": self._text}[kind](depth - 1)

    def _leaf(self, kind: str) -> str:
        leaves = {
            "bool": ("m.x", "m.y", "m.x", "m.y", "true", "false", "null::bool"),
            "int": ("m.i", "m.j", "m.i", "m.j", "m.id", "2", "-1", "null::int"),
            "text": ("m.s", "m.t", "m.s", "m.t", "'a'", "''", "null::text"),
        }
        return self._chance.choice(leaves[kind])

    def _some(self, ways: tuple[str, ...], kind: str, depth: int) -> str:
        """One of these patterns: `{b}`, `{i}`, `{s}`, `{v}` are operands, the last one of `kind`;
        small letters behind them are leaves.
        """
        kinds = {"b": "bool", "i": "int", "s": "text", "v": kind}

        def filled(match: re.Match[str]) -> str:
            wanted = kinds[match[1]]
            return self._leaf(wanted) if match[2] else f"({self.make(wanted, depth)})"

        text = self._chance.choice(ways)
        text = text.replace("{no}", self._chance.choice(("", "not ")))
        text = text.replace("{truth}", self._chance.choice(("true", "false", "unknown")))
        text = text.replace("{op}", self._chance.choice(("=", "<>", "<", "<=", ">", ">=")))
        text = text.replace("{column}", self._chance.choice(("m.i", "m.j")))
        return re.sub(r"\{([bisv])(_?)\}", filled, text)

    def _bool(self, depth: int) -> str:
        return self._some(_BOOL, self._chance.choice(("bool", "int", "text")), depth)

    def _int(self, depth: int) -> str:
        return self._some(_INT, "int", depth)

    def _text(self, depth: int) -> str:
        return self._some(_TEXT, "text", depth)


_CHOICE: Final = (
    "case when {b} then {v} else {v} end",
    "case when not {b} then {v} when {b} is null then {v} end",
    "case {i} when {i_} then {v} when 1 then {v} else {v} end",
    "coalesce({v}, {v}, {v})",
    "nullif({v}, {v})",
    "greatest({v}, {v})",
)
_BOOL: Final = (
    "{no}{b}",
    "not {b}",
    "{b} and {b} and not {b}",
    "{b} and {b} or {b}",
    "not {b} or {b}",
    "{b} or {b} or {b}",
    "{column} <> 0 and 10 / {column} > {i_} and {b}",
    "{v} is {no}null",
    "{b} is {no}{truth}",
    "{v} is {no}distinct from {v}",
    "{v} {op} {v}",
    "{v} {no}between {v} and {v}",
    "{v} {no}between symmetric {v_} and {v}",
    "{v} {no}in ({v}, {v})",
    "{v} {no}in ({v_}, {v_}, {v_})",
    "{s} {no}like {s_}",
    "{s} {no}ilike '%A%'",
    "({v}, {b_}) < ({v}, {b})",
    *(one.replace("{v}", "{b}") for one in _CHOICE),
)
_INT: Final = (
    "{i} + {i}",
    "{i} - {i}",
    "{i} * {i_}",
    "- {i}",
    "{i} / {column}",
    "{i} % ({column} - 1)",
    "length({s})",
    *_CHOICE,
)
_TEXT: Final = ("{s} || {s}", "{b}::text", "{i}::text", "upper({s})", *_CHOICE)
