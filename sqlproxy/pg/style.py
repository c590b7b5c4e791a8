"""What of a session's settings the text formats depend on, and the errors that they all raise.

DateStyle is always `ISO, MDY`, IntervalStyle `postgres`, bytea_output `hex`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Final

from sqlproxy.values.errors import INVALID_TEXT, OUT_OF_RANGE, SqlError

SPACES: Final = " \t\n\r\v\f"  # what C's isspace takes
TIME_CHARS_MAX: Final = 256  # of a date, a time or an interval, as in PostgreSQL (ParseDateTime)


@dataclass(frozen=True, slots=True)
class Style:
    """`zone`: the session's, of timestamptz. `now`: the transaction's time, for the inputs `now`,
    `today`, `tomorrow`, `yesterday`; None where no transaction is: they are refused there.
    """

    zone: tzinfo = UTC
    now: Callable[[], datetime] | None = field(default=None, compare=False)


DEFAULT: Final = Style()


def is_utf8(encoding: str) -> bool:
    """Whether it is a name of UTF-8: PostgreSQL reads letters and digits of it only."""
    return "".join(filter(str.isalnum, encoding)).lower() in ("utf8", "unicode")


def invalid_syntax(type_name: str, text: str, *, detail: str = "") -> SqlError:
    return SqlError(
        INVALID_TEXT, f'invalid input syntax for type {type_name}: "{text}"', detail=detail
    )


def out_of_range(type_name: str, text: str) -> SqlError:
    return SqlError(OUT_OF_RANGE, f'value "{text}" is out of range for type {type_name}')
