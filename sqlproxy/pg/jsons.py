"""json: any valid JSON text as given. jsonb: its canonical text (`sqlproxy.values.jsonb`)."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from sqlproxy.values import jsonb
from sqlproxy.values.breaks import pause
from sqlproxy.values.errors import INVALID_TEXT, SqlError, too_deep

_LONG: Final = 1 << 18  # characters that are looked through in one go


def _short(given: object) -> None:
    pause()


_with_breaks: Final = json.JSONDecoder(
    object_pairs_hook=_short, parse_int=_short, parse_float=_short
).decode


def read_json(text: str) -> str:
    """The same text. Raises SqlError (22P02)."""
    try:
        if len(text) > _LONG:
            _with_breaks(text)
        else:
            msgspec.json.decode(text)
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        # json keeps escapes of half characters, which that decoder refuses
        try:
            json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            raise _invalid(error) from None
    return text


def _no_constant(name: str) -> None:
    raise ValueError(f'Token "{name}" is invalid.')


def read_jsonb(text: str) -> str:
    """What PostgreSQL prints for it. Raises SqlError."""
    try:
        return jsonb.canonical(text)
    except ValueError as error:
        if isinstance(error.__context__, RecursionError):
            raise too_deep() from None
        if "\\u0000" in str(error):
            raise SqlError(
                "22P05",
                "unsupported Unicode escape sequence",
                detail="\\u0000 cannot be converted to text.",
            ) from None
        raise _invalid(error) from None


def _invalid(error: ValueError) -> SqlError:
    return SqlError(INVALID_TEXT, "invalid input syntax for type json", detail=str(error))
