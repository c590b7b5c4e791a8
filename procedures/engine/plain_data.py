"""Plain data: what arguments, state and results of procedures may be, and its bytes (msgpack).

None, bool, int (64 bits), float, str, bytes, list, tuple (comes back as a list), dict with str
keys. Nothing else: a record must be readable by every later version of the program, and by programs
that do not have the caller's classes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kv.base.decode_cost import weigh_packed
from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import PLAIN_DEPTH_MAX, WEIGHED_BYTES_MIN

Plain: TypeAlias = dict[str, Any]
"""A map of plain data whose fields its reader knows: what an action is asked with and answers, a
state, a body of JSON. Who only passes one on, or checks each field, says `dict[str, object]`."""

_encoder: Final = msgspec.msgpack.Encoder()
_sorting: Final = msgspec.msgpack.Encoder(order="deterministic")
_decoder: Final = msgspec.msgpack.Decoder()
_ATOMS: Final = frozenset({type(None), bool, float, str, bytes})
_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 64) - 1
_SHOWN: Final = 200  # characters of a place
NONE: Final = b"\xc0"  # None in msgpack
EMPTY: Final = b"\x80"  # {} in msgpack


def encode(value: object, what: str, bytes_max: int) -> bytes:
    """The bytes of a plain value. Raises InvalidArgument (what is not plain, and where) or
    TooLarge.
    """
    if value is None:
        return NONE
    _check(value, what, None, 0)
    try:
        data = _encoder.encode(value)
    except UnicodeEncodeError as e:
        raise InvalidArgument(f"{what} holds text that is not valid Unicode: {e.reason}") from None
    if len(data) > bytes_max:
        raise TooLarge(
            f"{what}: {len(data)} bytes, the limit is {bytes_max}; keep large data in a table and "
            "pass its key",
            details={"what": what, "limit": bytes_max, "actual": len(data)},
        )
    return data


def pack(value: object) -> bytes:
    """The bytes of what was checked before, or is the program's own."""
    return _encoder.encode(value)


def read(data: bytes, what: str) -> Any:
    """`decode` for bytes of strangers. Raises InvalidArgument, TooLarge; what they hold is not
    checked.
    """
    if len(data) >= WEIGHED_BYTES_MIN:
        weigh_packed(data)
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as e:
        raise InvalidArgument(f"{what}: not msgpack of plain data: {e}") from e


def decode(data: bytes) -> Any:
    """What `encode` was given (tuples as lists)."""
    return _decoder.decode(data)


def same(one: bytes, other: bytes) -> bool:
    """Whether both are the bytes of one value: the order of keys says nothing, types do."""
    return one == other or _sorting.encode(decode(one)) == _sorting.encode(decode(other))


class _Place(NamedTuple):
    """Of a value in another one; its words are made when something is wrong: keys may be long, and
    what is in them much.
    """

    around: _Place | None
    name: str
    at: str | int

    def __str__(self) -> str:
        parts: list[str] = []
        place: _Place | None = self
        while place is not None:
            at = place.at
            parts.append(f"[{at}]" if isinstance(at, int) else f".{at:.{_SHOWN}}")
            if place.around is None:
                parts.append(place.name)
            place = place.around
        return "".join(reversed(parts))[:_SHOWN]


def _check(value: Any, what: str, place: _Place | None, depth: int) -> None:
    kind = type(value)
    if kind in _ATOMS:
        return
    if depth > PLAIN_DEPTH_MAX:
        raise InvalidArgument(f"{_said(what, place)}: nested deeper than {PLAIN_DEPTH_MAX} levels")
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidArgument(f"{_said(what, place)}: keys must be text, not {key!r:.60}")
            if type(item) not in _ATOMS:
                _check(item, what, _Place(place, what, key), depth + 1)
    elif kind is list or kind is tuple:
        for i, item in enumerate(value):
            if type(item) not in _ATOMS:
                _check(item, what, _Place(place, what, i), depth + 1)
    elif kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise InvalidArgument(
                f"{_said(what, place)}: an integer of {value.bit_length()} bits; 64 fit, pass it "
                "as text"
            )
    else:
        raise InvalidArgument(
            f"{_said(what, place)} must be plain data (None, bool, int, float, str, bytes, list, "
            f"dict), not {kind.__name__}"
        )


def _said(what: str, place: _Place | None) -> str:
    return f"{what:.{_SHOWN}}" if place is None else str(place)
