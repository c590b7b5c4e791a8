"""What rows of the system tables are made of: their usual values, and what columns repeat of their
types. Columns that begin with _ are for our own functions, and never shown.
"""

from __future__ import annotations

from typing import Any, Final

from sqlproxy.pg import oids as types
from sqlproxy.pgcatalog import oids
from sqlproxy.pgcatalog.definitions import quoted
from sqlproxy.pgcatalog.static import CATALOG, Static
from sqlproxy.rows.schema import Table
from sqlproxy.values import enums

Row = dict[str, Any]
Rows = dict[str, list[Row]]
CHANGING: Final = (
    "pg_namespace",
    "pg_class",
    "pg_attribute",
    "pg_attrdef",
    "pg_index",
    "pg_constraint",
    "pg_type",
    "pg_enum",
    "pg_depend",
    "pg_sequence",
    "pg_description",
    "pg_rewrite",
    "pg_proc",
)
HEAP, BTREE = 2, 403
# length, by value, align, storage, collation: of enums, and of arrays of them
_ENUM: Final = (4, True, "i", "p", 0)
_ARRAY: Final = (-1, False, "i", "x", 0)
TYPE: Final[Row] = {
    "typnamespace": oids.PUBLIC_SCHEMA,
    "typowner": oids.BOOTSTRAP_ROLE,
    "typbyval": False,
    "typisdefined": True,
    "typdelim": ",",
    "typnotnull": False,
    "typbasetype": 0,
    "typtypmod": -1,
    "typndims": 0,
    "typcollation": 0,
    "typlen": -1,
    "typrelid": 0,
    "typelem": 0,
    "typarray": 0,
    "typsubscript": 0,
    "typispreferred": False,
    "typmodin": 0,
    "typmodout": 0,
    "typanalyze": 0,
}
ARRAY_TYPE: Final[Row] = {
    **TYPE,
    "typtype": "b",
    "typcategory": "A",
    "typsubscript": 6179,
    "typinput": 750,
    "typoutput": 751,
    "typreceive": 2400,
    "typsend": 2401,
    "typanalyze": 3816,
    "typstorage": "x",
}
CLASS: Final[Row] = {
    "relnamespace": oids.PUBLIC_SCHEMA,
    "reltype": 0,
    "reloftype": 0,
    "relowner": oids.BOOTSTRAP_ROLE,
    "relam": 0,
    "reltablespace": 0,
    "relpages": 0,
    "reltuples": -1.0,
    "relallvisible": 0,
    "reltoastrelid": 0,
    "relhasindex": False,
    "relisshared": False,
    "relpersistence": "p",
    "relchecks": 0,
    "relhasrules": False,
    "relhastriggers": False,
    "relhassubclass": False,
    "relrowsecurity": False,
    "relforcerowsecurity": False,
    "relispopulated": True,
    "relreplident": "n",
    "relispartition": False,
    "relrewrite": 0,
    "relfrozenxid": 0,
    "relminmxid": 0,
}
ATTRIBUTE: Final[Row] = {
    "attstattarget": -1,
    "attndims": 0,
    "attcacheoff": -1,
    "atttypmod": -1,
    "attcompression": "",
    "attnotnull": False,
    "atthasdef": False,
    "atthasmissing": False,
    "attidentity": "",
    "attgenerated": "",
    "attisdropped": False,
    "attislocal": True,
    "attinhcount": 0,
}
CONSTRAINT: Final[Row] = {
    "connamespace": oids.PUBLIC_SCHEMA,
    "condeferrable": False,
    "condeferred": False,
    "convalidated": True,
    "contypid": 0,
    "conindid": 0,
    "conparentid": 0,
    "confrelid": 0,
    "confupdtype": " ",
    "confdeltype": " ",
    "confmatchtype": " ",
    "conislocal": True,
    "coninhcount": 0,
    "connoinherit": True,
}


class Facts:
    """What rows of columns repeat of their types, and the operator classes by type."""

    def __init__(self, static: Static) -> None:
        layout = [c.name for c in static.layouts[CATALOG, "pg_type"]]
        rows = static.rows["pg_type"]
        at = {
            name: rows[layout.index(name)]
            for name in ("oid", "typlen", "typbyval", "typalign", "typstorage", "typcollation")
        }
        self._types = {row[0]: row[1:] for row in zip(*at.values(), strict=True)}
        self._classes = _classes(static)

    def of(self, oid: int) -> Row:
        known = self._types.get(oid)
        if known is None:
            known = self._types[types.TEXT]
            if (of := types.by_oid(oid)) is not None:
                known = {"enum": _ENUM, "array": _ARRAY}.get(of.kind, known)
        length, by_value, align, storage, collation = known
        return {
            "atttypid": oid,
            "attlen": length,
            "attbyval": by_value,
            "attalign": align,
            "attstorage": storage,
            "attcollation": collation,
        }

    def collation(self, oid: int) -> int:
        return int(self.of(oid)["attcollation"])

    def opclass(self, oid: int) -> int:
        of = types.ANYENUM if enums.is_enum(oid) else oid
        return self._classes.get(types.TEXT if oid == types.VARCHAR else of, 0)


def _classes(static: Static) -> dict[int, int]:
    layout = [c.name for c in static.layouts[CATALOG, "pg_opclass"]]
    wanted = ("oid", "opcmethod", "opcintype", "opcdefault")
    rows = zip(*(static.rows["pg_opclass"][layout.index(n)] for n in wanted), strict=True)
    return {of: oid for oid, method, of, default in rows if method == BTREE and default}


def attnums(table: Table) -> dict[int, int]:
    """Column id → attribute number: the ids themselves, without the hidden one; where a column
    took the place of another, the numbers go in the order of the columns all the same.
    """
    hidden = [c.id for c in table.columns if c.hidden]
    shown = [c.id for c in table.columns if not c.hidden]
    numbers = sorted(number - sum(h < number for h in hidden) for number in shown)
    return dict(zip(shown, numbers, strict=True))


PATH: Final = "\x1f"  # between the parts of `_path`: no name has it


def class_row(id: int, name: str, kind: str, **more: object) -> Row:
    return {
        **CLASS,
        "oid": id,
        "relname": name,
        "relkind": kind,
        "relfilenode": id if kind in "riS" else 0,
        "_name": quoted(name),
        "_qname": f"public.{quoted(name)}",
        "_path": f"public{PATH}{name}",
        **more,
    }


def depends(of: int, id: int, on: int, other: int, part: int, kind: str) -> Row:
    return {
        "classid": of,
        "objid": id,
        "objsubid": 0,
        "refclassid": on,
        "refobjid": other,
        "refobjsubid": part,
        "deptype": kind,
    }
