"""What the wire keeps of statements and portals, and the errors that clients get."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Sequence
from typing import Final

from kv.base.errors import KvorumError
from sqlproxy.pg.answers import Field
from sqlproxy.pg.style import Style
from sqlproxy.values.errors import (
    INTERNAL_ERROR,
    OUT_OF_MEMORY,
    SqlError,
    from_store,
    too_deep,
)
from sqlproxy.wire import codec
from sqlproxy.wire.rows import Encode, Read, message_encoder, row_encoder

log = logging.getLogger(__name__)

VARIANTS_MAX: Final = 64  # of formats, and of zones, that are kept compiled for one statement


class Output:
    """How rows of these fields leave, in the formats that a Bind asked for."""

    __slots__ = ("description", "encode", "fields", "formats", "message")

    def __init__(self, fields: Sequence[Field], formats: tuple[int, ...], style: Style) -> None:
        self.fields = fields
        self.formats = formats
        types = tuple([f.oid for f in fields])
        self.encode: Encode = row_encoder(types, formats, style)
        self.message = message_encoder(types, formats, style)
        self.description = codec.row_description(fields, formats)


class Compiled:
    """What the wire keeps of a statement: `readers` by the format codes of parameters and `outputs`
    by those of results, as they came. One per style.
    """

    __slots__ = ("outputs", "readers")

    def __init__(self) -> None:
        self.readers: dict[bytes, list[Read]] = {}
        self.outputs: dict[bytes, Output] = {}


class Bound:
    """What the wire keeps of a portal: formats of its results, and what they compile to."""

    __slots__ = ("compiled", "output", "ran", "results")

    def __init__(self, compiled: Compiled | None, results: bytes) -> None:
        self.compiled = compiled
        self.results = results
        self.output: Output | None = None
        self.ran = False  # one without rows runs once


def output_of(
    compiled: Compiled | None, results: bytes, fields: Sequence[Field], style: Style
) -> Output:
    found = None if compiled is None else compiled.outputs.get(results)
    if found is not None and found.fields is fields:
        return found
    codes = codec.format_codes(
        results,
        len(fields),
        "bind message has {given} result formats but query has {count} columns",
    )
    found = Output(fields, codes, style)
    if compiled is not None:
        if len(compiled.outputs) >= VARIANTS_MAX:
            compiled.outputs.clear()
        compiled.outputs[results] = found
    return found


def as_sql_error(error: BaseException) -> SqlError:
    """Whatever was raised, as the client gets it; what its frames had is let go: an error that one
    of them keeps would keep all of it, tables that were read, until cycles are searched for.
    """
    told = _told(error)
    left: list[BaseException | None] = [error]
    for one in left:
        if one is not None:
            one.__traceback__ = None
            left += (each for each in (one.__cause__, one.__context__) if each not in left)
    return told


def _told(error: BaseException) -> SqlError:
    if isinstance(error, SqlError):
        return error
    if isinstance(error, KvorumError):
        return from_store(error)
    if isinstance(error, RecursionError):
        return too_deep()
    if isinstance(error, MemoryError):
        return SqlError(OUT_OF_MEMORY, "out of memory", hint="Read or change fewer rows at a time.")
    if isinstance(error, asyncio.TimeoutError):
        return SqlError("57014", "canceling statement due to a timeout")
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("internal error in a statement: %s\n%s", type(error).__name__, where)
    return SqlError(INTERNAL_ERROR, f"internal error: {type(error).__name__}")
