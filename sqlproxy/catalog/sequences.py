"""Sequences: their options, where they stand, and what nextval and setval do (P13). Functions of a
transaction `t`; `sqlproxy.catalog.sequence_pool` gives out values without one of their own each.

    SEQUENCES   u32 id    sealed [1, last, called]    no row: [1, start, false]

`called` false: `last` is the next value, as after setval(…, false). Values are taken in runs: the
row says the last one of what was taken, so a value is never given out twice, unless setval, RESTART
or CYCLE say so. What was taken and not used is a gap, as in PostgreSQL after a rollback or a crash.

The numbers of a table's hidden key are a sequence too, without a name, under the table's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kv.base import system
from kv.base.errors import InvalidArgument
from kv.base.keys import table_prefix, u32
from sqlproxy.catalog.catalog import Reader, Writer
from sqlproxy.rows import records
from sqlproxy.rows.naming import check_sql_name
from sqlproxy.rows.schema import ROWID, Sequence, Table
from sqlproxy.values.errors import OUT_OF_RANGE, SEQUENCE_LIMIT, SqlError
from sqlproxy.values.refusals import fields_in, invalid
from sqlproxy.values.types import resolve

SEQUENCE_FIELDS: Final = frozenset(
    {"start", "increment", "minimum", "maximum", "cycle", "type", "cache"}
)
_INT_RANGE: Final = {
    kind: (-(1 << bits), (1 << bits) - 1)
    for kind, bits in (("int2", 15), ("int4", 31), ("int8", 63))
}


class Stand(NamedTuple):
    """Where a sequence stands."""

    last: int
    called: bool


class Run(NamedTuple):
    """Values that were taken: `first`, `first + step`, …, `count` of them."""

    first: int
    step: int
    size: int


def sequence_key(number: int) -> bytes:
    return table_prefix(system.SEQUENCES) + u32(number)


def rowids(table: Table) -> Sequence:
    """What numbers the rows of a table without a declared primary key."""
    return Sequence(table.id, table.namespace, ROWID)


async def stand(t: Reader, sequence: Sequence) -> Stand:
    """Raises Corruption."""
    key = sequence_key(sequence.id)
    value, _ = await t.get(key)
    if value is None:
        return Stand(sequence.start, False)
    _, last, called = records.opened(key, value)
    return Stand(last, called)


def put_stand(t: Writer, sequence: Sequence, at: Stand) -> None:
    key = sequence_key(sequence.id)
    t.put(key, records.sealed(key, [records.FORMAT, at.last, at.called]))


async def take(t: Writer, sequence: Sequence, count: int) -> Run:
    """The next values, at most `count`, at least one: fewer at its end. Raises SqlError (2200H)."""
    assert count >= 1
    at = await stand(t, sequence)
    first, up = at.last, sequence.increment > 0
    if at.called:
        first += sequence.increment
        if first > sequence.maximum if up else first < sequence.minimum:
            first = _again(sequence)
    room = (sequence.maximum - first if up else first - sequence.minimum) // abs(sequence.increment)
    count = min(count, room + 1)
    put_stand(t, sequence, Stand(first + (count - 1) * sequence.increment, True))
    return Run(first, sequence.increment, count)


def _again(sequence: Sequence) -> int:
    """Where it goes on after its end."""
    up = sequence.increment > 0
    if sequence.cycle:
        return sequence.minimum if up else sequence.maximum
    end, bound = ("maximum", sequence.maximum) if up else ("minimum", sequence.minimum)
    raise SqlError(
        SEQUENCE_LIMIT, f'nextval: reached {end} value of sequence "{sequence.name}" ({bound})'
    )


def set_value(t: Writer, sequence: Sequence, value: int, called: bool = True) -> None:
    """setval. Raises SqlError (22003)."""
    if not sequence.minimum <= value <= sequence.maximum:
        raise SqlError(
            OUT_OF_RANGE,
            f'setval: value {value} is out of bounds for sequence "{sequence.name}" '
            f"({sequence.minimum}..{sequence.maximum})",
        )
    put_stand(t, sequence, Stand(value, called))


# -- options


def sequence_of(namespace: str, name: str, options: Mapping[str, object]) -> Sequence:
    """A checked sequence without an id. Raises InvalidArgument in PostgreSQL's words."""
    return altered(Sequence(0, namespace, name), options, fresh=True)


def altered(sequence: Sequence, options: Mapping[str, object], *, fresh: bool = False) -> Sequence:
    """With these options instead of its own; `fresh`: what is not given follows from what is.
    Raises InvalidArgument.
    """
    given = dict(fields_in(options, f"sequence {sequence.name}", SEQUENCE_FIELDS))
    check_sql_name("sequence", sequence.name)
    kind = resolve(str(given.pop("type", sequence.type))).name
    if kind not in _INT_RANGE:
        raise _bad("sequence type must be smallint, integer, or bigint")
    for field, value in given.items():
        if field != "cycle" and value is not None and type(value) is not int:
            raise InvalidArgument(f"sequence {sequence.name}: {field} must be an integer")
    low, high = _INT_RANGE[kind]
    increment = given.get("increment") or (1 if fresh else sequence.increment)
    if given.get("increment") == 0:
        raise _bad("INCREMENT must not be zero")
    usual = (1, high) if increment > 0 else (low, -1)
    kept = fresh or kind != sequence.type
    minimum = _bound(given, "minimum", usual[0] if kept else sequence.minimum, usual[0])
    maximum = _bound(given, "maximum", usual[1] if kept else sequence.maximum, usual[1])
    for what, value in (("MINVALUE", minimum), ("MAXVALUE", maximum)):
        if not low <= value <= high:
            raise _bad(f"{what} ({value}) is out of range for sequence data type {_SHOWN[kind]}")
    if minimum >= maximum:
        raise _bad(f"MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})")
    start = given.get("start")
    if start is None:
        start = (minimum if increment > 0 else maximum) if fresh else sequence.start
    if start < minimum:
        raise _bad(f"START value ({start}) cannot be less than MINVALUE ({minimum})")
    if start > maximum:
        raise _bad(f"START value ({start}) cannot be greater than MAXVALUE ({maximum})")
    cache = given.get("cache") or sequence.cache
    if cache < 1:
        raise _bad(f"CACHE ({cache}) must be greater than zero")
    return replace(
        sequence,
        start=start,
        increment=increment,
        minimum=minimum,
        maximum=maximum,
        type=kind,
        cache=cache,
        cycle=bool(given.get("cycle", sequence.cycle)),
    )


_SHOWN: Final = {"int2": "smallint", "int4": "integer", "int8": "bigint"}


def _bound(given: Mapping[str, Any], field: str, else_: int, none: int) -> int:
    """A bound that is given; null, as NO MINVALUE, is the usual one."""
    if field not in given:
        return else_
    value = given[field]
    return none if value is None else int(value)


def _bad(message: str) -> Exception:
    return invalid("22023", message)
