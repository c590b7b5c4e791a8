"""An enum type → its rows of pg_type (its own and that of its arrays) and pg_enum. Pure."""

from __future__ import annotations

from kv.base.rights import OWNER
from sqlproxy.pgcatalog import oids, rights
from sqlproxy.pgcatalog.definitions import quoted
from sqlproxy.pgcatalog.row_bases import ARRAY_TYPE, TYPE, Rows
from sqlproxy.rows.schema import EnumType
from sqlproxy.values import enums


def of_type(one: EnumType, rows: Rows) -> None:
    """Labels that may not be taken yet are not shown."""
    enum, owner = one.enum, rights.number(one.owner or OWNER)
    array = enums.array_oid(enum.oid)
    rows["pg_type"] += [
        {
            **TYPE,
            "oid": enum.oid,
            "typname": enum.name,
            "typowner": owner,
            "typlen": 4,
            "typbyval": True,
            "typtype": "e",
            "typcategory": "E",
            "typarray": array,
            "typinput": 3504,
            "typoutput": 3505,
            "typreceive": 3532,
            "typsend": 3533,
            "typalign": "i",
            "typstorage": "p",
            "_text": quoted(enum.name),
        },
        {
            **ARRAY_TYPE,
            "oid": array,
            "typname": f"_{enum.name}",
            "typowner": owner,
            "typelem": enum.oid,
            "typalign": "i",
            "_text": f"{quoted(enum.name)}[]",
        },
    ]
    rows["pg_enum"] += [
        {
            "oid": oids.label(enum.oid, position),
            "enumtypid": enum.oid,
            "enumsortorder": float(place),
            "enumlabel": label,
        }
        for place, (label, position) in enumerate(enum.labels, 1)
        if label not in enum.pending
    ]
