"""Attributes of procedures: what users say of one so that it can be found. Pure.

A declaration names them with their kinds (`attributes={"customer": "text"}`); values come with the
submission, and from steps (`ctx.attributes(…)`), in the step's transaction. They are a field of the
record, and for each value there is a row of an index:

    WORKERS 24 esc(name) kind value [~created ms u64][id u64]  → nothing

    t text       esc(UTF-8)
    k keywords   esc of each of them
    i integer    [u64 value + 2^63]; moments, in ms since 1970, are such
    n number     its bits, so that their order is its order
    b boolean    one byte

So rows of one value lie together, the newest procedure first, and those of a range of values, too.
The id is at the end: a worker may write those of its own procedures
(pools/worker_permissions.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from kv.base import limits, system
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.keys import MAX64, escape, table_prefix, u64
from kv.base.ops import Op, delete, put
from procedures.engine.plain_data import Plain

TEXT, INTEGER, NUMBER, BOOLEAN = "text", "integer", "number", "boolean"
MOMENT, KEYWORDS = "moment", "keywords"
KINDS: Final = (TEXT, INTEGER, NUMBER, BOOLEAN, MOMENT, KEYWORDS)
_OF_TYPE: Final[Mapping[object, str]] = {
    str: TEXT,
    int: INTEGER,
    float: NUMBER,
    bool: BOOLEAN,
    datetime: MOMENT,
    list: KEYWORDS,
}
_HALF: Final = 1 << 63
INDEX: Final = table_prefix(system.WORKERS) + b"\x24"

Attributes = tuple[tuple[str, Any], ...]
"""By name, with values as they are stored: moments in ms, keywords as a tuple."""


def declared(where: str, given: Mapping[Any, object] | None) -> Mapping[str, str]:
    """The kinds of a declaration: words, or Python's types. Raises InvalidArgument."""
    found: dict[str, str] = {}
    for name, kind in (given or {}).items():
        text = _OF_TYPE.get(kind, kind) if isinstance(kind, type) else kind
        if text not in KINDS:
            raise InvalidArgument(
                f"{where}: attribute {name!r:.60} must be one of {', '.join(KINDS)}, "
                f"got {kind!r:.40}",
                code="PROCEDURE_DECLARATION",
            )
        if not isinstance(name, str) or not name.isidentifier() or len(name) > 64:
            raise InvalidArgument(
                f"{where}: an attribute's name is a word of up to 64 letters, digits and _, "
                f"got {name!r:.80}",
                code="PROCEDURE_DECLARATION",
            )
        found[name] = str(text)
    if len(found) > limits.ATTRIBUTES_MAX:
        raise InvalidArgument(
            f"{where}: {len(found)} attributes, the limit is {limits.ATTRIBUTES_MAX}",
            code="PROCEDURE_DECLARATION",
        )
    return found


def changed(
    where: str, kinds: Mapping[str, str], before: Attributes, given: Mapping[str, object]
) -> Attributes:
    """What there is after `given` was said; None takes one away. Raises InvalidArgument
    (ATTRIBUTE_UNKNOWN, BAD_ATTRIBUTE), TooLarge.
    """
    after = dict(before)
    for name, value in given.items():
        if name not in kinds:
            listed = ", ".join(kinds) or "none"
            raise InvalidArgument(
                f"{where} declares no attribute {name!r:.60} (it declares {listed}): name it in "
                "attributes= of its declaration",
                code="ATTRIBUTE_UNKNOWN",
            )
        if value is None:
            after.pop(name, None)
        else:
            after[name] = stored(f"attribute {name} of {where}", kinds[name], value)
    return tuple(sorted(after.items()))


def stored(what: str, kind: str, value: object) -> object:
    """A value as it is kept. Raises InvalidArgument (BAD_ATTRIBUTE), TooLarge."""
    if kind == TEXT and isinstance(value, str):
        return _short(what, value)
    if kind == INTEGER and type(value) is int and -_HALF <= value < _HALF:
        return value
    if kind == NUMBER and type(value) in (int, float) and value == value:
        return float(value)  # type: ignore[arg-type]
    if kind == BOOLEAN and type(value) is bool:
        return value
    if kind == MOMENT:
        return _moment(what, value)
    if kind == KEYWORDS and isinstance(value, list | tuple | set | frozenset):
        words = sorted({_short(what, one) for one in value if isinstance(one, str)})
        if len(value) > limits.ATTRIBUTE_KEYWORDS_MAX:
            most = limits.ATTRIBUTE_KEYWORDS_MAX
            raise TooLarge(
                f"{what} has {len(value)} keywords, the limit is {most}",
                details={"what": "keywords", "limit": most, "actual": len(value)},
            )
        if all(isinstance(one, str) for one in value):
            return tuple(words)
    raise InvalidArgument(f"{what} must be {_said(kind)}, got {value!r:.60}", code="BAD_ATTRIBUTE")


def _said(kind: str) -> str:
    if kind == KEYWORDS:
        return "a list of texts"
    return f"a {kind}" if kind in (TEXT, NUMBER, BOOLEAN) else f"of kind {kind}"


def _short(what: str, text: str) -> str:
    if len(text) > limits.ATTRIBUTE_CHARS_MAX:
        raise TooLarge(
            f"{what} has {len(text)} characters, the limit is {limits.ATTRIBUTE_CHARS_MAX}: keep "
            "long ones in a table",
            details={"limit": limits.ATTRIBUTE_CHARS_MAX, "actual": len(text)},
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} is not valid Unicode text", code="BAD_ATTRIBUTE") from None
    return text


def _moment(what: str, value: object) -> int:
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return int(value.timestamp() * 1000)
    if type(value) is int and 0 <= value < 1 << 53:
        return value
    raise InvalidArgument(
        f"{what} must be a moment: a datetime with a zone, its text, or ms since 1970, "
        f"got {value!r:.60}",
        code="BAD_ATTRIBUTE",
    )


def parsed(what: str, kind: str, text: str) -> Any:
    """A value that is said as text. Raises InvalidArgument (BAD_ATTRIBUTE)."""
    value: object = text
    with suppress(ValueError):
        if kind == INTEGER or (kind == MOMENT and text.isdigit()):
            value = int(text)
        elif kind == NUMBER:
            value = float(text)
    if kind == BOOLEAN and text in ("true", "false"):
        value = text == "true"
    return stored(what, TEXT if kind == KEYWORDS else kind, value)


# ---------------------------------------------------------------------- the index
def key_of(kind: str, value: Any) -> bytes:
    """A value so that the order of the bytes is its order."""
    match kind:
        case "text":
            return b"t" + escape(value.encode())
        case "keywords":
            return b"k" + escape(value.encode())
        case "number":
            (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
            return b"n" + u64(bits ^ (MAX64 if bits >> 63 else _HALF))
        case "boolean":
            return b"b" + bytes((value,))
        case _:
            return b"i" + u64(value + _HALF)


def kind_of(value: object) -> str:
    """Of a stored one. (A moment is told from an integer by the declaration alone.)"""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, str):
        return TEXT
    if isinstance(value, float):
        return NUMBER
    return INTEGER if isinstance(value, int) else KEYWORDS


def values_of(kind: str, value: Any) -> tuple[object, ...]:
    """What it has rows for."""
    return tuple(value) if kind == KEYWORDS else (value,)


def prefix(name: str) -> bytes:
    return INDEX + escape(name.encode())


def row_tail(created_ms: int, id: int) -> bytes:
    return u64(MAX64 - created_ms) + u64(id)


def rows_of(id: int, created_ms: int, attributes: Attributes) -> Iterator[bytes]:
    """The rows of the index of one procedure. A moment and an integer have one form."""
    tail = row_tail(created_ms, id)
    for name, value in attributes:
        kind = kind_of(value)
        for one in values_of(kind, value):
            yield prefix(name) + key_of(kind, one) + tail


def index_ops(id: int, created_ms: int, before: Attributes, after: Attributes) -> list[Op]:
    """What a change of attributes writes."""
    old, new = set(rows_of(id, created_ms, before)), set(rows_of(id, created_ms, after))
    ops = [delete(key) for key in sorted(old - new)]
    return [*ops, *(put(key, b"") for key in sorted(new - old))]


def shown(attributes: Attributes) -> Plain:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in attributes}
