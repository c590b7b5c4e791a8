"""What it costs to decode what a client sent, looked at before it has been paid.

A message's *weight* is counted in plain values: 1 for each number, text or key, CONTAINER_WEIGHT
for each list or map, which is an object that the collector of cycles looks after. Bytes say little:
24 MiB of JSON are one value, or eight million empty lists, which stop a loop for eight seconds and
take 1.5 GB. MESSAGE_WEIGHT_MAX bounds it: the heaviest message that is taken costs about 50 ms.

    msgpack   counted while it is unpacked: the first list too many ends it
    JSON      its commas and brackets are counted. Only if they are too many, those within texts are
              distinguished from the others. Both in windows, between which others have the loop

Messages below WEIGHED_BYTES_MIN are not looked at: all they can cost is two milliseconds. What is
msgpack and has LIGHT_BYTES_MAX cannot be too heavy: each of its bytes is one value at most.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgpack

from kv.base.errors import TooLarge
from kv.base.limits import CONTAINER_WEIGHT, MESSAGE_WEIGHT_MAX, WEIGHED_BYTES_MIN, KiB

T = TypeVar("T", list[Any], tuple[Any, ...], dict[Any, Any])

LIGHT_BYTES_MAX: Final = MESSAGE_WEIGHT_MAX // (CONTAINER_WEIGHT + 1)
_WINDOW_BYTES: Final = 64 * KiB
_LIGHT: Final = 10_000
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?\Z)', re.DOTALL)
"""A text with its end, or up to the window's: what begins once is not tried from its middle again.
"""
_REST_OF_TEXT: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def too_heavy() -> TooLarge:
    """The refusal. The actual weight is not known: nobody counted on."""
    return TooLarge(
        f"a message of more than {MESSAGE_WEIGHT_MAX} values, where a list or a map counts as "
        f"{CONTAINER_WEIGHT}: send less at once",
        details={"what": "values in a message", "limit": MESSAGE_WEIGHT_MAX},
    )


def scale(*, values: bool = True) -> Callable[[T], T]:
    """A hook for one message's lists and maps, as msgpack calls it. It raises TooLarge. Without
    `values` lists and maps alone count.
    """
    left = MESSAGE_WEIGHT_MAX

    def weigh(found: T) -> T:
        nonlocal left
        left -= CONTAINER_WEIGHT + (len(found) if values else 0)
        if left < 0:
            raise too_heavy()
        return found

    return weigh


def unpack_rows(packed: bytes | memoryview, **options: object) -> Any:
    """`msgpack.unpackb` of rows that a client packed: few lists of many values, whose bytes are
    bounded elsewhere. Raises TooLarge, too.
    """
    weigh: Callable[[object], Any] = scale(values=False)
    return msgpack.unpackb(packed, list_hook=weigh, object_hook=weigh, **options)


def is_light(body: bytes, packed: bool) -> bool:
    """Whether a body, of JSON or msgpack, is surely decoded within a millisecond or two."""
    if len(body) < WEIGHED_BYTES_MIN:
        return True
    return not packed and len(body) <= _WINDOW_BYTES and _marks(body) <= _LIGHT


def weigh_packed(body: bytes) -> None:
    """Raises TooLarge; whatever else is wrong with it is for who decodes it."""
    with contextlib.suppress(ValueError, TypeError, msgpack.UnpackException):
        weigh: Callable[[object], Any] = scale()
        msgpack.unpackb(
            body,
            strict_map_key=False,
            list_hook=lambda found: weigh(found) and None,
            object_pairs_hook=lambda found: weigh(found) and None,
        )


def weigh_json(body: bytes) -> Iterator[None]:
    """Raises TooLarge. In steps of about a millisecond; the whole is linear."""
    weight = 0
    for at in range(0, len(body), _WINDOW_BYTES):
        weight += _marks(body[at : at + _WINDOW_BYTES])
        yield
    if weight > MESSAGE_WEIGHT_MAX:
        yield from exact_weight(body)


def exact_weight(body: bytes) -> Iterator[None]:
    """The same, where marks in texts do not count."""
    weight, at, inside = 0, 0, False
    while at < len(body):
        window = body[at : at + _WINDOW_BYTES]
        at += len(window)
        if inside:
            rest = _REST_OF_TEXT.match(window)
            window = b"" if rest is None else window[rest.end() :]
            inside = rest is None
        if window:
            outside, texts = _TEXT.subn(rb"\1", window)
            weight += _marks(outside)
            inside = texts > outside.count(b'"')
        if weight > MESSAGE_WEIGHT_MAX:
            raise too_heavy()
        if inside and at < len(body):
            at -= _escapes(body, at)
        yield


def _marks(text: bytes) -> int:
    brackets = text.count(b"[") + text.count(b"{")
    return text.count(b",") + CONTAINER_WEIGHT * brackets


def _escapes(body: bytes, at: int) -> int:
    """1 if `at` is between a backslash and what it escapes, which belongs to the next window."""
    backslashes = 0
    while body[at - backslashes - 1] == 0x5C and backslashes < _WINDOW_BYTES:
        backslashes += 1
    return backslashes % 2
