"""Rows of a binary COPY as they usually are: complete, with the right number of columns. Pure.

The function is generated for the types of the columns, as `sqlproxy.wire.rows` does: for int8, text

    def quick(data, at, rows):
        try:
            while True:
                start = at
                if data[at:at + 2] != COUNT: return start
                at += 2
                size = data[at:at + 4]
                if size == S0: v0 = U0(data, at + 4)[0]; at += 12
                elif size == NULL: v0 = None; at += 4
                else: return start
                n = LENGTH(data, at)[0]; at += 4
                if n == -1: v1 = None
                else:
                    end = at + n
                    if n < 0 or end > len(data): return start
                    v1 = R1(data[at:end]); at = end
                rows.append((v0, v1,))
        except (error, SqlError):
            return start

What is not so (the end, half a row, a wrong value) is where it stops: the reader of single rows
(`copying.py`) goes on there and says what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from sqlproxy.pg import binary, oids
from sqlproxy.pg.answers import Fit
from sqlproxy.values.errors import SqlError

Quick = Callable[[bytes, int, list[tuple[Any, ...]]], int]

_FIXED: Final = {
    oids.INT2: struct.Struct(">h"),
    oids.INT4: struct.Struct(">i"),
    oids.INT8: struct.Struct(">q"),
    oids.FLOAT4: struct.Struct(">f"),
    oids.FLOAT8: struct.Struct(">d"),
}


def fitting(read: Callable[[Any], object], fit: Fit | None) -> Callable[[object], object]:
    """Reads a value and fits it into its column."""
    return read if fit is None else lambda raw: fit(read(raw))


@lru_cache(maxsize=256)
def quick_rows(types: tuple[int, ...], fits: tuple[Fit | None, ...] = ()) -> Quick:
    """Appends rows of these OIDs to a list, from a place in the data on; where it stopped. `fits`:
    as `CopyFormat` has them.
    """
    names: dict[str, Any] = {
        "COUNT": struct.pack(">h", len(types)),
        "NULL": b"\xff\xff\xff\xff",
        "LENGTH": struct.Struct(">i").unpack_from,
        "error": struct.error,
        "SqlError": SqlError,
    }
    lines = [
        "def quick(data, at, rows):",
        "    whole = len(data)",
        "    start = at",
        "    try:",
        "        while True:",
        "            start = at",
        "            if data[at:at + 2] != COUNT: return start",
        "            at += 2",
    ]
    for i, oid in enumerate(types):
        fixed = _FIXED.get(oid)
        if fixed is not None:
            names[f"S{i}"], names[f"U{i}"] = struct.pack(">i", fixed.size), fixed.unpack_from
            lines += [
                "            size = data[at:at + 4]",
                f"            if size == S{i}:",
                f"                v{i} = U{i}(data, at + 4)[0]; at += {4 + fixed.size}",
                f"            elif size == NULL: v{i} = None; at += 4",
                "            else: return start",
            ]
            continue
        names[f"R{i}"] = fitting(binary.reader(oid), fits[i] if fits else None)
        lines += [
            "            n = LENGTH(data, at)[0]; at += 4",
            f"            if n == -1: v{i} = None",
            "            else:",
            "                end = at + n",
            "                if n < 0 or end > whole: return start",
            f"                v{i} = R{i}(data[at:end]); at = end",
        ]
    values = "".join(f"v{i}, " for i in range(len(types)))
    lines += [
        f"            rows.append(({values}))",
        "    except (error, SqlError):",
        "        return start",
    ]
    exec("\n".join(lines), names)
    quick: Quick = names["quick"]
    return quick
