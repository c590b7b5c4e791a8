"""regclass within a statement over users' tables: names of relations and their OIDs. Pure.

A regclass is held as the name that it is shown as. What is no constant is looked up when it is
computed, among the relations that the statement was bound with (`Relations`, a constant of the
call): a plan is bound anew when they change.

    text → regclass        regclass_of       raises 42P01; a number is an OID
    text → regclass        regclass_or_null  to_regclass: NULL
    regclass → oid         regclass_oid
    oid → regclass         regclass_at       the number, if there is none
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sqlproxy.front.bound.exprs import Call, Const, Expr
from sqlproxy.front.functions.function import declared
from sqlproxy.front.types.quoting import quote_ident
from sqlproxy.front.types.registry import Proc
from sqlproxy.pg import numbers, oids
from sqlproxy.rows.naming import PUBLIC, TEMPORARY, is_temporary
from sqlproxy.values.errors import UNDEFINED_TABLE, UNSUPPORTED, WRONG_OBJECT_TYPE, SqlError

_PART: Final = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\s."]+))\s*')
_SHORT: Final = ("pg_catalog", PUBLIC)  # schemas whose names stand alone
_WRITTEN_MAX: Final = 4_000  # characters: a function's name with the types of 100 arguments


class Relations:
    """`listed`: schema, name, OID; `sequences`: which of them are. `path`: the schemas that are
    searched; `schemas`: all others that are there.
    """

    def __init__(
        self,
        database: str,
        listed: Iterable[tuple[str, str, int]],
        path: Iterable[str] = (PUBLIC,),
        schemas: Iterable[str] = (),
        sequences: Iterable[int] = (),
    ) -> None:
        self._database = database
        self._searched = (_SHORT[0], *path)
        self.sequences: Final = frozenset(sequences)
        self._oids: dict[tuple[str, str], int] = {}
        for schema, name, oid in listed:
            self._oids[schema, name] = oid
        self._schemas = {schema for schema, _ in self._oids} | {*_SHORT, *schemas}
        self._names = {oid: self._shown(*key) for key, oid in self._oids.items()}
        self._held = {name: oid for oid, name in self._names.items()}

    def _shown(self, schema: str, name: str) -> str:
        if schema not in _SHORT or (schema == "public" and (_SHORT[0], name) in self._oids):
            return f"{quote_ident(schema)}.{quote_ident(name)}"
        return quote_ident(name)

    def find(self, text: str) -> str | None:
        """What a text names, as it is shown; None: no such relation. Raises SqlError."""
        if text == "-":
            return text
        if (number := written_number(text)) is not None:
            return self.at(number)
        parts = name_parts(text)
        if len(parts) > 3:
            raise SqlError(
                "42601", f"improper relation name (too many dotted names): {'.'.join(parts)}"
            )
        if len(parts) == 3 and parts[0] != self._database:
            raise SqlError(
                UNSUPPORTED,
                f'cross-database references are not implemented: "{".".join(parts)}"',
            )
        schemas = (parts[-2],) if len(parts) > 1 else self._searched
        if schemas == (TEMPORARY,):
            schemas = tuple(one for one in self._schemas if is_temporary(one))
        for schema in schemas:
            if (oid := self._oids.get((schema, parts[-1]))) is not None:
                return self._names[oid]
        return None

    def must(self, text: str) -> str:
        """The same. Raises SqlError (42P01, 3F000): there is none."""
        found = self.find(text)
        if found is None:
            parts = name_parts(text)
            if len(parts) > 1 and parts[-2] not in self._schemas:
                raise SqlError("3F000", f'schema "{parts[-2]}" does not exist')
            raise SqlError(UNDEFINED_TABLE, f'relation "{".".join(parts)}" does not exist')
        return found

    def oid(self, held: str) -> int:
        """Of what is held. Raises SqlError (42P01)."""
        if held == "-":
            return 0
        if (number := written_number(held)) is not None:
            return number
        if (found := self._held.get(held)) is None:  # a text that came as a parameter
            found = self._held[self.must(held)]
        return found

    def sequence(self, held: str) -> int:
        """The OID of what is held, a sequence. Raises SqlError (42P01, 42809)."""
        oid = self.oid(held)
        if oid not in self.sequences:
            raise SqlError(WRONG_OBJECT_TYPE, f'"{name_parts(held)[-1]}" is not a sequence')
        return oid

    @property
    def plain(self) -> bool:
        """Whether a name without a schema is one in public, as it is held."""
        return self._searched == _SHORT

    def at(self, oid: int) -> str:
        """The name of what has an OID."""
        return self._names.get(oid) or (str(oid) if oid else "-")


def bounded(text: str) -> str:
    """A name as it is written. Raises SqlError (42602): it is longer than any."""
    if len(text) > _WRITTEN_MAX:
        raise SqlError(
            "42602", f"a text of {len(text):,} characters is no name: {_WRITTEN_MAX:,} at most"
        )
    return text


def written_number(text: str) -> int | None:
    """The OID that stands where a name is expected; None: it is a name. Raises SqlError (22003)."""
    return numbers.read_oid(text) if text.isascii() and text.isdigit() else None


def name_parts(text: str) -> list[str]:
    """Of a name as it is written. Raises SqlError (42602)."""
    found, at = [], 0
    bounded(text)
    while (part := _PART.match(text, at)) is not None:
        quoted, plain = part.groups()
        found.append(quoted.replace('""', '"') if quoted is not None else plain.lower())
        at = part.end()
        if at == len(text):
            return found
        if text[at] != ".":
            break
        at += 1
    raise SqlError("42602", "invalid name syntax")


def _call(source: str, result: int, arg: Expr, relations: Relations, name: str = "") -> Expr:
    proc = Proc(name or source, (arg.oid, oids.ANY), result, source)
    args = (arg, Const(oid=oids.TEXT, value=relations))
    return Call(oid=result, proc=proc, args=args, pos=arg.pos)


def of_text(arg: Expr, relations: Relations) -> Expr:
    return _call("regclass_of", oids.REGCLASS, arg, relations)


def of_oid(arg: Expr, relations: Relations) -> Expr:
    return _call("regclass_at", oids.REGCLASS, arg, relations)


def or_null(arg: Expr, relations: Relations) -> Expr:
    return _call("regclass_or_null", oids.REGCLASS, arg, relations, "to_regclass")


def as_oid(arg: Expr, relations: Relations) -> Expr:
    if isinstance(arg, Call) and arg.proc.source == "regclass_at":
        return arg.args[0]
    return _call("regclass_oid", oids.OID, arg, relations)


def _or_null(text: str, relations: Relations) -> str | None:
    try:
        return None if text == "-" or text.isdigit() else relations.find(text)
    except SqlError as error:
        if error.sqlstate != UNSUPPORTED:
            raise
        return None  # of another database


FUNCTIONS: Final = declared(
    {
        "regclass_of": lambda text, relations: relations.must(text),
        "regclass_or_null": _or_null,
        "regclass_oid": lambda held, relations: relations.oid(held),
        "regclass_at": lambda oid, relations: relations.at(oid),
    }
)
