"""bytea in text: `\\x` and hexadecimal digits, or the older form with `\\ooo` and `\\\\`."""

from __future__ import annotations

import re
from typing import Final

from sqlproxy.pg.style import SPACES
from sqlproxy.values.breaks import pause
from sqlproxy.values.errors import INVALID_PARAMETER, SqlError

_ESCAPED: Final = re.compile(rb"\\(?:(\\)|([0-3][0-7]{2})|)")
_DIGIT: Final = re.compile("[0-9a-fA-F]{1,65536}+")


def write_bytea(value: bytes) -> str:
    return "\\x" + value.hex()


def read_bytea(text: str) -> bytes:
    """Raises SqlError."""
    if text[:2] != "\\x":
        raw = text.encode()
        return raw if b"\\" not in raw else _ESCAPED.sub(_unescape, raw)
    digits = text[2:]
    try:
        return bytes.fromhex(digits)
    except ValueError:
        wrong = _wrong_digit(digits)
        if wrong is not None:
            message = f'invalid hexadecimal digit: "{wrong}"'
        else:
            message = "invalid hexadecimal data: odd number of digits"
        raise SqlError(INVALID_PARAMETER, message) from None


def _wrong_digit(digits: str) -> str | None:
    """The first character that is no digit; blanks may be between pairs."""
    at = count = 0
    while at < len(digits):
        pause()
        if found := _DIGIT.match(digits, at):
            at = found.end()
            count += len(found[0])
        elif count % 2 or digits[at] not in SPACES:
            return digits[at]
        else:
            at += 1
    return None


def _unescape(found: re.Match[bytes]) -> bytes:
    pause()
    if found[1]:
        return b"\\"
    if found[2]:
        return bytes([int(found[2], 8)])
    raise SqlError("22P02", "invalid input syntax for type bytea")
