"""ctid, tableoid, xmin, xmax, cmin, cmax: what PostgreSQL has beside the columns of every row,
computed here from the row.

    ctid      from the key: an integer from 0 to 2⁴⁷ - 1, or a row's number in a table without a
              primary key, as it is; of other keys 47 bits of a hash, above those
    xmin      32 bits of a hash of all values, so that it changes with the row, and is the same
              before and after the commit (programs compare it to see whether somebody else
              wrote)
    tableoid  the OID that pg_class has
    xmax, cmin, cmax    0

They are computed where a statement asks for them only (`mentioned`): then a table's hidden row
number is a column that no `*` shows. Of a row that an outer join makes up they are NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final
from zlib import crc32

from sqlproxy.front.bound.exprs import Call, Column, Const, Expr
from sqlproxy.front.functions.function import Site, declared, nulls, typed
from sqlproxy.front.types.registry import Proc
from sqlproxy.front.types.value_texts import writer
from sqlproxy.pg import oids
from sqlproxy.pg.style import DEFAULT
from sqlproxy.rows.schema import ROWID, Table
from sqlproxy.values.errors import DUPLICATE_COLUMN, SqlError

_MENTIONED: Final = re.compile(r"\b(?:ctid|tableoid|xmin|xmax|cmin|cmax)\b", re.IGNORECASE)
_CTID_BITS: Final = 47
_BITS: Final = {oids.INT2: 16, oids.INT4: 32, oids.INT8: 64}
_FIRST_XID: Final = 3  # PostgreSQL's own rows have those below
_ZEROS: Final = (("xmax", oids.XID), ("cmin", oids.CID), ("cmax", oids.CID))


def mentioned(text: str) -> bool:
    """Whether a statement may ask for one: a cheap test that may be wrong about literals."""
    return _MENTIONED.search(text) is not None


def check_no_system_column(name: str) -> None:
    """Raises SqlError (42701): a table's column may not be called so."""
    if _MENTIONED.fullmatch(name) and name == name.lower():
        raise SqlError(
            DUPLICATE_COLUMN,
            f'column name "{name}" conflicts with a system column name',
        )


def with_row_number(table: Table) -> Table:
    """The table with its hidden row number as a column that statements see."""
    if not table.hidden_key:
        return table
    columns = tuple(replace(c, hidden=False) if c.name == ROWID else c for c in table.columns)
    return replace(table, columns=columns)


def without_row_number(table: Table) -> Table:
    """The table as it is."""
    if table.primary_key != (ROWID,) or table.column(ROWID).hidden:
        return table
    columns = tuple(replace(c, hidden=True) if c.name == ROWID else c for c in table.columns)
    return replace(table, columns=columns)


def of_rows(columns: Sequence[Column], keys: Sequence[str], oid: int) -> dict[str, Expr]:
    """By name, over the columns of a table, of which some are its key. `oid`: its own."""
    key = tuple(one for one in columns if one.name in keys)
    others = tuple(one for one in columns if one.name not in keys)

    def call(name: str, result: int, source: str, *args: Expr) -> Call:
        proc = Proc(name, (oids.ANY,) * len(args), result, source, strict=False)
        return Call(oid=result, proc=proc, args=args)

    found: dict[str, Expr] = {
        "ctid": call("ctid", oids.TID, "row_ctid", *key),
        "xmin": call("xmin", oids.XID, "row_xmin", *key, *others),
        "tableoid": call(
            "tableoid", oids.OID, "row_constant", Const(oid=oids.OID, value=oid), *key
        ),
    }
    for name, result in _ZEROS:
        found[name] = call(name, result, "row_constant", Const(oid=result, value=0), *key)
    return found


def key_of_ctid(left: Expr, right: Expr) -> tuple[Expr, Expr] | None:
    """For `ctid = '(x,y)'`: the key and its value, by which the row is read without the others.
    None: the key is no integer, or the place is a hash's.
    """
    if isinstance(left, Const):
        left, right = right, left
    if not (isinstance(left, Call) and left.proc.source == "row_ctid" and isinstance(right, Const)):
        return None
    key = left.args[0]
    if (
        len(left.args) > 1
        or key.oid not in (oids.INT2, oids.INT4, oids.INT8)
        or type(right.value) is not int
    ):
        return None
    if not 0 <= right.value < 1 << _CTID_BITS:
        return None
    fits = right.value < 1 << (_BITS[key.oid] - 1)
    return key, Const(oid=key.oid if fits else oids.INT8, value=right.value)


def relation_of(tableoid: Expr, name: str) -> Expr:
    """tableoid::regclass, over what finds it in GROUP BY; `name`: as a regclass is held."""
    proc = Proc("regclass", (oids.ANY, oids.OID), oids.REGCLASS, "row_constant", strict=False)
    return Call(
        oid=oids.REGCLASS,
        proc=proc,
        args=(Const(oid=oids.REGCLASS, value=name), tableoid),
    )


# -- the functions


def _texts(types: Sequence[int]) -> Callable[[Sequence[object]], str]:
    writers = [writer(oid, DEFAULT) for oid in types]

    def text(values: Sequence[object]) -> str:
        return repr(
            [None if v is None else write(v) for v, write in zip(values, writers, strict=True)]
        )

    return text


def _ctid(site: Site) -> Callable[..., int | None]:
    text = _texts(site.types)

    def ctid(*key: object) -> int | None:
        if all(one is None for one in key):
            return None
        if len(key) == 1 and type(key[0]) is int and 0 <= key[0] < 1 << _CTID_BITS:
            return key[0]
        digest = blake2b(text(key).encode(), digest_size=6).digest()
        return int.from_bytes(digest) | 1 << _CTID_BITS

    return ctid


def _xmin(site: Site) -> Callable[..., int | None]:
    text = _texts(site.types)

    def xmin(*values: object) -> int | None:
        if all(one is None for one in values):
            return None
        return max(_FIRST_XID, crc32(text(values).encode()))

    return xmin


def _constant(site: Site) -> Callable[..., int | None]:
    def constant(value: int, *key: object) -> int | None:
        return None if all(one is None for one in key) else value

    return constant


FUNCTIONS: Final = declared(
    {
        "row_ctid": nulls(typed(_ctid)),
        "row_xmin": nulls(typed(_xmin)),
        "row_constant": nulls(typed(_constant)),
    }
)
