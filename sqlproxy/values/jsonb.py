"""The text of a jsonb value, as PostgreSQL prints it: the stored form of the type.

Keys of an object are ordered by their length in bytes, then by their bytes; of a key given twice
the last value stays. Numbers are PostgreSQL's numeric: an exponent is worked out, zeros after the
point stay. One space after each colon and comma; characters beyond ASCII stay as they are.

    canonical('{"bb":1e2, "a":[1.50,"é"],"a":2}')   '{"a": 2, "bb": 100}'

Source: PostgreSQL 15, jsonb.c (JsonbToCString), jsonb_util.c (lengthCompareJsonbStringValue).
Deliberately missing: an order of values (jsonb cannot be in a key; sqlproxy.analytic.json_keys).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from heapq import merge
from json import decoder, scanner
from typing import Any, Final

from sqlproxy.values.breaks import pause, paused
from sqlproxy.values.memory import now, room

# of 10, either side of the point: as of numeric (sqlproxy.values.types)
EXPONENT_MAX: Final = 16_383
_PLACES_MANY: Final = 64  # digits of a number that is written out
_LONG: Final = 1 << 16  # characters of a text that is looked through before it is written
_MEMBERS_MANY: Final = 1 << 18  # that are made without a break between them, 0.1 s
_MEMBER_BYTES: Final = 64  # of one, at least
_RUN: Final = 1 << 16  # members that are sorted at once
_PIECE: Final = 1 << 6
_SHORT: Final = {c: json.dumps(c)[1:-1] for c in '"\\\b\f\n\r\t'}
_ESCAPES: Final = str.maketrans({chr(i): f"\\u{i:04x}" for i in range(32)} | _SHORT)


def parse(text: str) -> object:
    """The value: dict in PostgreSQL's order of keys, list, str, Decimal, bool, None. Raises
    ValueError.
    """
    try:
        return _decode(text) if _few(text) else _Breaking().decode(text)
    except RecursionError:
        raise ValueError("the JSON value is nested too deeply") from None


def _few(text: str) -> bool:
    """Whether the decoder that takes breaks at numbers and objects alone may read it."""
    return len(text) <= _MEMBERS_MANY or sum(map(text.count, ",[{")) <= _MEMBERS_MANY


def dumps(value: object) -> str:
    """The text of what `parse` gives, and of plain Python values. Raises ValueError, TypeError."""
    parts: list[str] = []
    try:
        _write(value, parts.append)
    except RecursionError:
        raise ValueError("the JSON value is nested too deeply") from None
    return "".join(parts)


def canonical(text: str) -> str:
    """What is stored for `text`. Raises ValueError that says where it is no JSON."""
    return dumps(parse(text))


def ordered(pairs: list[tuple[str, object]]) -> dict[str, Any]:
    """An object in PostgreSQL's order of keys; the last of equal keys wins."""
    pause()
    if len(pairs) <= _RUN:
        return dict(sorted(dict(pairs).items(), key=_place))
    items, runs = list(paused(dict(paused(pairs)).items())), []
    for at in paused(range(0, len(items), _RUN), 1):
        runs.append(sorted(items[at : at + _RUN], key=_place))
    return dict(paused(merge(*runs, key=_place)))


def _place(pair: tuple[str, object]) -> tuple[int, bytes]:
    raw = pair[0].encode()
    return len(raw), raw


def read_number(text: str) -> Decimal:
    pause()
    number = Decimal(text)
    if number and abs(number.adjusted()) > EXPONENT_MAX:
        raise ValueError(f"the number {text[:40]} is beyond 10^±{EXPONENT_MAX}")
    if abs(number.adjusted()) > _PLACES_MANY:
        now().made(abs(number.adjusted()))  # a few characters become so many
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "JSON has no infinity"
    if not number and exponent > 0:
        return Decimal(0)
    if exponent < -EXPONENT_MAX:
        raise ValueError(f"the number {text[:40]} has too many places")
    return number


def _constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


_decode = json.JSONDecoder(
    parse_float=read_number,
    parse_int=read_number,
    parse_constant=_constant,
    object_pairs_hook=ordered,
).decode
Scan = Callable[[str, int], object]
_PURE: Final = vars(decoder) | vars(scanner)  # in Python, a third as many levels deep


class _Breaking(json.JSONDecoder):
    """The same for one text of many members: it takes breaks at each of them, and counts what they
    need. The decoder in C makes millions of strings and lists at once.
    """

    def __init__(self) -> None:
        super().__init__(
            parse_float=read_number,
            parse_int=read_number,
            parse_constant=_constant,
            object_pairs_hook=ordered,
        )
        self._members = 0
        self.parse_array, self.parse_object = self._array, self._object
        self.scan_once: Scan = _PURE["py_make_scanner"](self)

    def _array(self, where: tuple[str, int], scan: Scan) -> object:
        return _PURE["JSONArray"](where, self._counted(scan))

    def _object(self, where: tuple[str, int], strict: bool, scan: Scan, *hooks: object) -> object:
        return _PURE["JSONObject"](where, strict, self._counted(scan), *hooks)

    def _counted(self, scan: Scan) -> Scan:
        def one(text: str, at: int) -> object:
            self._members += 1
            if not self._members % _RUN:
                now().fits(self._members * _MEMBER_BYTES)
            if not self._members % _PIECE:
                pause()
            return scan(text, at)

        return one


def quoted(text: str) -> str:
    """A string as JSON. Raises ValueError for what PostgreSQL's text cannot hold."""
    if "\x00" in text:
        raise ValueError("\\u0000 cannot be converted to text")
    text.encode()  # a lone surrogate: UnicodeEncodeError is a ValueError
    if len(text) <= _LONG:
        return f'"{text.translate(_ESCAPES)}"'
    parts, size = ['"'], 0
    for at in paused(range(0, len(text), _LONG), 1):
        parts.append(text[at : at + _LONG].translate(_ESCAPES))
        size += len(parts[-1])
        room(size)
    parts.append('"')
    return "".join(parts)


def number(value: Decimal) -> str:
    """A number as numeric prints it."""
    return format(value if value else abs(value), "f")


def _write(value: object, put: Any) -> None:
    match value:
        case None:
            put("null")
        case True | False:
            put("true" if value else "false")
        case str():
            put(quoted(value))
        case Decimal():
            put(number(value))
        case int():
            put(str(value))
        case float():
            put(number(Decimal(repr(value))))
        case dict():
            put("{")
            for at, (key, inner) in enumerate(paused(ordered(list(value.items())).items())):
                put(f"{', ' if at else ''}{quoted(key)}: ")
                _write(inner, put)
            put("}")
        case list() | tuple():
            put("[")
            for at, inner in enumerate(paused(value)):
                if at:
                    put(", ")
                _write(inner, put)
            put("]")
        case _:
            raise TypeError(f"{type(value).__name__} is not JSON")
