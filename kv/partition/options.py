"""What WRITE and PREWRITE may say beyond their fixed arguments: an optional last argument, a map
from names to values, or nil. Most requests have none, so nobody pays for what is rare.

A name that is not known is refused, never ignored: whoever sends it relies on what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kv.base.errors import InvalidArgument
from kv.base.limits import NAME_CHARS_MAX

Options = Mapping[str, Any]
NONE: Final[Options] = {}


def _owner(value: Any) -> None:
    if type(value) is not str or len(value) > NAME_CHARS_MAX:
        raise InvalidArgument(
            f"option owner must be a string of at most {NAME_CHARS_MAX} characters, "
            f"got {value!r:.80}"
        )


CHECKS: Final[Mapping[str, Callable[[Any], None]]] = {
    "owner": _owner,  # who runs the transaction, for people; kept in its status record
}


def check_options(options: Any) -> None:
    """Raises InvalidArgument unless it is a map of known names to values of their kind, or None."""
    if options is None:
        return
    if type(options) is not dict:
        raise InvalidArgument(f"options must be a map or nil, got {type(options).__name__}")
    for name, value in options.items():
        check = CHECKS.get(name)
        if check is None:
            raise InvalidArgument(
                f"unknown option {name!r:.40}; this version knows {', '.join(sorted(CHECKS))}"
            )
        check(value)


def options_of(r: list[Any], at: int) -> Options:
    """The options of a checked request whose fixed arguments end before index `at`."""
    return r[at] or NONE if len(r) > at else NONE
