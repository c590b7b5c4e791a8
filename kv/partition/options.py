"""What WRITE, PREWRITE and ROLLBACK may say beyond their fixed arguments: an optional last
argument, a map from names to values, or nil. Most requests have none, so nobody pays for what is
rare.

A name that is not known is refused, never ignored: whoever sends it relies on what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import (
    KEY_BYTES_MAX,
    NAME_CHARS_MAX,
    PARALLEL_KEY_BYTES_MAX,
    PARALLEL_KEYS_MAX,
    PARALLEL_PARTS_MAX,
)

Options = Mapping[str, Any]
NONE: Final[Options] = {}


def _owner(value: Any) -> None:
    if type(value) is not str or len(value) > NAME_CHARS_MAX:
        raise InvalidArgument(
            f"option owner must be a string of at most {NAME_CHARS_MAX} characters, "
            f"got {value!r:.80}"
        )


def _flag(name: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value is not True:
            raise InvalidArgument(f"option {name} is true or not there, got {value!r:.40}")

    return check


def _stage(value: Any) -> None:
    if type(value) is not list or not 0 < len(value) <= PARALLEL_PARTS_MAX:
        raise InvalidArgument(f"option stage is a list of 1 … {PARALLEL_PARTS_MAX} lists of keys")
    keys = [key for part in value if type(part) is list for key in part]
    if not all(type(part) is list and part for part in value) or not keys:
        raise InvalidArgument("option stage: every part is a list of at least one key")
    if any(type(key) is not bytes or len(key) > 4 + KEY_BYTES_MAX for key in keys):
        raise InvalidArgument(f"option stage: keys are bytes, at most {4 + KEY_BYTES_MAX} each")
    size = sum(map(len, keys))
    if len(keys) > PARALLEL_KEYS_MAX or size > PARALLEL_KEY_BYTES_MAX:
        raise TooLarge(
            f"option stage names {len(keys)} keys of {size} bytes; the limits are "
            f"{PARALLEL_KEYS_MAX} and {PARALLEL_KEY_BYTES_MAX}; commit in two phases",
            details={"what": "keys", "limit": PARALLEL_KEYS_MAX, "actual": len(keys)},
        )


CHECKS: Final[Mapping[str, Callable[[Any], None]]] = {
    "owner": _owner,  # who runs the transaction, for people; kept in its status record
    # of a parallel commit (kv.mvcc.recover):
    "stage": _stage,  # with the anchor: the keys of all intents, a list for each part
    "fence": _flag("fence"),  # store the bound with the intents; refused where a key is fenced
    "own": _flag("own"),  # of a ROLLBACK: by the coordinator, who told nobody of a commit
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
