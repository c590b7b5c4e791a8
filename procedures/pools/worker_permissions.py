"""What a worker may read and write of the rows of procedures: those of what it was given, while it
has it, and of the children of that. The master says what that is, which leads the meta partition:
so whoever is asked about a row knows.

    PROCEDURES, PROCEDURE_STEPS, RUNNABLE      by the id of the procedure
    WORKERS                                    signals, completions, events and heartbeats: so, too
    … of them what it is found by              by the id at their end; what is put there its record
                                               says (`check_found_by`)
    LOCKS                                      a grant goes with who held it; only masters give one

Children are read, not written: they are somebody else's, perhaps of another pool. Only one that has
ended goes back with its parent, and never to a success.

A child begins with its parent's step: its record is new, by an id that the worker was given
(WORK_IDS), and names a parent that the worker has. What its record, or the worker's own, says that
it is (`written`) decides what a master does with it: so whoever lets it pass looks at that, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kv.base import system
from kv.base.errors import Corruption, Forbidden, InvalidArgument
from kv.base.keys import table_prefix
from kv.base.methods import DELETE, OP_CHECK, OP_DELETE, OP_PUT, PUT
from kv.base.rights import Action
from kv.base.verbs import Touches, Verb
from kv.server.connection_rights import keys_of
from procedures.engine import attributes, records, search_rows
from procedures.engine.procedure import BACK
from procedures.engine.store import NOT_HELD
from procedures.pools.crew import Crew


class Span(NamedTuple):
    """Ids, both inclusive."""

    first: int
    last: int
    new: bool = False  # whether a procedure begins by it
    own: bool = False  # children of what a worker has do not count …
    back: frozenset[int] = frozenset()  # … but for one that has ended, and goes back with these


class Told(NamedTuple):
    """The row by which the end of a procedure is told to the one that started it."""

    key: bytes


_LOCKS: Final = table_prefix(system.LOCKS)
_DONE: Final = table_prefix(system.WORKERS) + b"\x07"
_FOUND_BY: Final = frozenset({attributes.INDEX, search_rows.ENDED})
_RECORDS: Final = table_prefix(system.PROCEDURES)
_LIVE: Final = table_prefix(system.RUNNABLE) + b"\x01"
_DUE: Final = table_prefix(system.RUNNABLE) + b"\x02"
_STEPS: Final = table_prefix(system.PROCEDURE_STEPS)
_ID_AT: Final = {
    _RECORDS: 4,
    _STEPS: 4,
    _LIVE: 5,
    _DUE: 13,
    **{table_prefix(system.WORKERS) + bytes([family]): 5 for family in (5, 6, 7, 9, 10)},
}
"""Where the id of a procedure is in a key that begins so."""


def pools_of(crew: Crew, user: str, verb: Verb, row: list[object]) -> set[str]:
    """Of the workers by which `user` may send this request to the rows of procedures. Raises
    Forbidden (NOT_HELD), InvalidArgument.
    """
    try:
        spans = set(_spans(verb, row))
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{verb.name}: it is not as docs/reference/rpc.md has it") from error
    return {_pool(crew, user, span) for span in spans}


def written(verb: Verb, row: list[Any]) -> Iterator[records.Record]:
    """The procedures whose records a request that `pools_of` let pass would write. Raises
    InvalidArgument: that is no record; Forbidden (NOT_HELD): it is another's than its key says.
    """
    ops: list[list[Any]] = []
    if verb.number == PUT:
        ops = [[OP_PUT, row[verb.at("key")], row[verb.at("value")]]]
    elif verb.touches is Touches.OPS:
        ops = row[verb.at(verb.keys)]
    for kind, key, value, *_ in ops:
        if kind == OP_PUT and key[:4] == _RECORDS:
            try:
                record = records.decode(value, "what a worker writes")
            except (Corruption, TypeError) as error:
                raise InvalidArgument(f"{verb.name}: {error}") from error
            if _id(key, 4) != Span(record.id, record.id):
                raise Forbidden(
                    "a record is that of the procedure in its key",
                    code=NOT_HELD,
                    details={"procedure": str(record.id)},
                )
            yield record


def check_kin(crew: Crew, user: str, record: records.Record) -> None:
    """Raises Forbidden (NOT_HELD): a master would tell another one than its starter of its end, and
    others would run, in somebody's name, what he never submitted.
    """
    if not crew.same_kin(record, user):
        raise Forbidden(
            "a worker does not change whose a procedure is, of which type, who is told of its end, "
            "nor makes others its children",
            code=NOT_HELD,
            details={"procedure": str(record.id)},
        )


def check_found_by(
    crew: Crew, verb: Verb, row: list[Any], told: Mapping[int, records.Record]
) -> None:
    """Rows by which procedures are found: others count and sort them, and nothing ever removes one
    that no record says. `told`: what the request writes of records, by id; of a commit in several
    requests one may have none of them: then the rows are of its type, and no more than one
    procedure can have. Raises Forbidden (NOT_HELD).
    """
    for kind, key, *_ in row[verb.at(verb.keys)] if verb.touches is Touches.OPS else ():
        if kind != OP_PUT or key[:5] not in _FOUND_BY or (span := _id(key, len(key) - 8)) is None:
            continue
        record = told.get(span.first)
        if record is None:
            says = crew.may_be_found_by(span.first, key)
        else:
            says = key in attributes.rows_of(record.id, record.created_ms, record.attributes)
            says = says or (record.ended and key == search_rows.ended_key(record))
        if not says:
            raise Forbidden(
                "a procedure is found by what its record says, and by nothing else",
                code=NOT_HELD,
                details={"procedure": str(span.first)},
            )


def _pool(crew: Crew, user: str, span: Span | Told | None) -> str:
    pool = None
    if isinstance(span, Told):
        key, span = span.key, _id(span.key, 5)
        pool = None if span is None else crew.pool_of(user, span.first, span.last)
        pool = pool or crew.pool_telling(user, key)
    elif span is not None:
        its = (crew.pool_of(user, id, id, kin=False) for id in span.back)
        back = span.back and not crew.lives(span.first) and all(its)
        of = crew.pool_of(user, span.first, span.last, kin=not span.own or bool(back))
        pool = crew.pool_of_new(user, span.first) if span.new else of
    if pool is None:
        raise Forbidden(
            "that is of no procedure that a worker of yours has now",
            code=NOT_HELD,
            details={"user": user, "procedure": None if span is None else str(span[0])},
        )
    return pool


def _spans(verb: Verb, row: list[Any]) -> Iterator[Span | Told | None]:
    """None: of nobody's."""
    options = row[-1] if type(row[-1]) is dict else {}
    for start, end in options.get("ranges", ()):
        yield _range(start, end)
    if verb.touches is Touches.OPS:
        yield from map(_point, options.get("reads", ()))
        yield from _of_ops(row[verb.at(verb.keys)])
    elif verb.touches is Touches.RANGE:
        at = verb.at(verb.keys)
        span = _range(row[at], row[at + 1])
        writes = verb.action is not Action.READ
        yield span._replace(own=True) if span is not None and writes else span
    elif verb.touches is Touches.ROWS:
        yield None  # packed ones do not say which they are, and no worker sends any
    elif verb.number in (PUT, DELETE):
        yield from (_owned(key, b"") for key in keys_of(verb, row))
    else:
        yield from map(_point, keys_of(verb, row))


def _of_ops(ops: list[Any]) -> Iterator[Span | Told | None]:
    for kind, key, value, cond, *_ in _not_born(ops):
        if key[:4] == _LOCKS:
            if kind != OP_CHECK:
                yield _id(key, len(key) - 8) if kind == OP_DELETE else None
        elif kind == OP_PUT and key[:5] == _LIVE:
            continue  # it says no more than that somebody is to be looked for
        elif key[:5] in _FOUND_BY:
            yield _id(key, len(key) - 8)
        elif kind == OP_PUT and key[:5] == _DONE:
            yield Told(key)
        elif kind == OP_PUT and cond == 0 and key[:4] == _RECORDS:
            yield from _kin(value)
            yield None if (child := _id(key, 4)) is None else child._replace(new=True)
        elif kind == OP_CHECK:
            yield _point(key)
        else:
            yield _owned(key, value if kind == OP_PUT else b"")


def _not_born(ops: list[Any]) -> list[Any]:
    """Without rows by which new procedures are found: their records are there, and looked at."""
    born = {op[1][4:12] for op in ops if op[3] == 0 and op[1][:4] == _RECORDS}
    return [op for op in ops if op[1][:5] not in _FOUND_BY or op[1][-8:] not in born]


def _kin(value: bytes) -> Iterator[Span | None]:
    """Whose end a new procedure would be told to."""
    try:
        record = records.decode(value, "a child")
    except Corruption:
        yield None
        return
    spans: list[Span | None] = [Span(id, id) for id in sorted(_kin_of(record))]
    yield from spans or [None]


def _kin_of(record: records.Record) -> frozenset[int]:
    return frozenset({record.parent, record.starter} - {0})


def _point(key: bytes) -> Span | None:
    at = _ID_AT.get(key[:4]) or _ID_AT.get(key[:5])
    return None if at is None else _id(key, at)


def _owned(key: bytes, value: bytes) -> Span | None:
    """Whose row is written."""
    span = _point(key)
    if span is None or not key.startswith((_RECORDS, _STEPS, _LIVE, _DUE)):
        return span
    span = span._replace(own=True)
    if value and key[:4] == _RECORDS:
        with suppress(Corruption, TypeError):  # `written` says so
            record = records.decode(value, "a child")
            return span._replace(back=_kin_of(record) if record.state in BACK else frozenset())
    return span


def _range(start: bytes, end: bytes) -> Span | None:
    at = _ID_AT.get(start[:4]) or _ID_AT.get(start[:5])
    if at is None or at > 5 or start[:at] != end[:at] or len(end) < at + 8:
        return None
    first, last = _id(start, at), _id(end, at)
    if first is None or last is None:
        return None
    return Span(first.first, last.first - (len(end) == at + 8))


def _id(key: bytes, at: int) -> Span | None:
    if at < 4 or len(key) < at + 8:
        return None
    id = int.from_bytes(key[at : at + 8], "big")
    return Span(id, id)
