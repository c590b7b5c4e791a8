"""What WRITE, PREWRITE, COMMIT and ROLLBACK may say beyond their fixed arguments: an optional last
argument, a map from names to values, or nil. Most requests have none, so nobody pays for what is
rare.

A name that is not known is refused, never ignored: whoever sends it relies on what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import (
    COMMITS_BESIDE_MAX,
    DEADLINE_MS_MAX,
    KEY_BYTES_MAX,
    NAME_CHARS_MAX,
    PARALLEL_KEY_BYTES_MAX,
    PARALLEL_KEYS_MAX,
    PARALLEL_PARTS_MAX,
    PREWRITE_KEYS_MAX,
    TXN_TTL_MS_MAX,
)
from kv.base.strengths import KEY_SHARE, UPDATE
from kv.base.timestamps import MAX
from kv.base.wire_row import WireRow

Options = Mapping[str, Any]
NONE: Final[Options] = {}


def _owner(value: object) -> None:
    if type(value) is not str or len(value) > NAME_CHARS_MAX:
        raise InvalidArgument(
            f"option owner must be a string of at most {NAME_CHARS_MAX} characters, "
            f"got {value!r:.80}"
        )


def _flag(name: str) -> Callable[[object], None]:
    def check(value: object) -> None:
        if value is not True:
            raise InvalidArgument(f"option {name} is true or not there, got {value!r:.40}")

    return check


def _stage(value: object) -> None:
    if type(value) is not list or not 0 < len(value) <= PARALLEL_PARTS_MAX:
        raise InvalidArgument(f"option stage is a list of 1 … {PARALLEL_PARTS_MAX} lists of keys")
    keys: list[object] = []
    for part in value:
        if type(part) is not list or not part:
            raise InvalidArgument("option stage: every part is a list of at least one key")
        keys += part
    size = 0
    for key in keys:
        if type(key) is not bytes or len(key) > 4 + KEY_BYTES_MAX:
            raise InvalidArgument(f"option stage: keys are bytes, at most {4 + KEY_BYTES_MAX} each")
        size += len(key)
    if len(set(keys)) != len(keys):
        raise InvalidArgument("option stage: a key occurs twice, so its intent would be ambiguous")
    if len(keys) > PARALLEL_KEYS_MAX or size > PARALLEL_KEY_BYTES_MAX:
        raise TooLarge(
            f"option stage names {len(keys)} keys of {size} bytes; the limits are "
            f"{PARALLEL_KEYS_MAX} and {PARALLEL_KEY_BYTES_MAX}; commit in two phases",
            details={"what": "keys", "limit": PARALLEL_KEYS_MAX, "actual": len(keys)},
        )


def _wait_ms(value: object) -> None:
    if type(value) is not int or not 0 <= value <= DEADLINE_MS_MAX:
        raise InvalidArgument(
            f"option wait_ms must be an integer from 0 to {DEADLINE_MS_MAX}, got {value!r:.40}"
        )


def _ttl_ms(value: object) -> None:
    if type(value) is not int or not 1 <= value <= TXN_TTL_MS_MAX:
        raise InvalidArgument(
            f"option ttl_ms must be an integer from 1 to {TXN_TTL_MS_MAX}, got {value!r:.40}"
        )


def _strength(value: object) -> None:
    if type(value) is not int or not UPDATE < value <= KEY_SHARE:
        raise InvalidArgument(
            f"option strength must be an integer from {UPDATE + 1} to {KEY_SHARE}, "
            f"got {value!r:.40}"
        )


def _since(value: object) -> None:
    if type(value) is not int or not 0 < value < MAX:
        raise InvalidArgument(f"option since must be a timestamp, got {value!r:.40}")


def _priority(value: object) -> None:
    if type(value) is not int or not -1 <= value <= 1:
        raise InvalidArgument(
            f"option priority must be -1 (low), 0 (normal) or 1 (high), got {value!r:.40}"
        )


def _reads(name: str) -> Callable[[object], None]:
    """Only that it is a list of a legal size: the keys are checked with the request's own."""

    def check(value: object) -> None:
        if type(value) is not list or not value:
            raise InvalidArgument(f"option {name} is a list that is not empty, got {value!r:.40}")
        if len(value) > PREWRITE_KEYS_MAX:
            raise TooLarge(
                f"option {name}: {len(value)}, at most {PREWRITE_KEYS_MAX} in one request; send "
                "several prewrites",
                details={"what": name, "limit": PREWRITE_KEYS_MAX, "actual": len(value)},
            )

    return check


def _beside(value: object) -> None:
    if type(value) is not list or not 0 < len(value) <= COMMITS_BESIDE_MAX:
        raise InvalidArgument(
            f"option beside is a list of 1 … {COMMITS_BESIDE_MAX} [anchor, start_ts]"
        )
    for one in value:
        if type(one) is not list or list(map(type, one)) != [bytes, int] or not 0 < one[1] < MAX:
            raise InvalidArgument(f"option beside: [anchor, start_ts] expected, got {one!r:.80}")
    if len({(anchor, start_ts) for anchor, start_ts in value}) < len(value):
        raise InvalidArgument("option beside: a transaction occurs twice")


CHECKS: Final[Mapping[str, Callable[[object], None]]] = {
    "owner": _owner,  # who runs the transaction, for people; kept in its status record
    "user": _owner,  # of a HEARTBEAT by nodes: whose record it begins (kv/base/intents.py)
    # how long it may wait for others' intents, 0 = not at all; else nearly until its deadline
    "wait_ms": _wait_ms,
    # of a HEARTBEAT: begin the status record, if the anchor's prewrite still waits
    "ttl_ms": _ttl_ms,
    "priority": _priority,  # who waits for the same key with a lower one comes later
    # of a serializable transaction (kv.mvcc.validate); keys rise, ranges, too, and do not overlap:
    "reads": _reads("reads"),  # keys that it read here
    "ranges": _reads("ranges"),  # [start, end) that it read here, end b"" = no bound
    "since": _since,  # … as of this moment, behind its beginning
    # of a parallel commit (kv.mvcc.recover):
    "stage": _stage,  # with the anchor: the keys of all intents, a list for each part
    "fence": _flag("fence"),  # store the bound with the intents; refused where a key is fenced
    # of PREWRITE, row locks (docs/decisions/1530):
    "lock": _flag("lock"),  # lay them: the ops are checks without a condition
    "values": _flag("values"),  # of such a one: answer the newest values, too
    "present": _flag("present"),  # … and lock nothing where there is none
    "going": _flag("going"),  # … and what is there is about to go: who relies on it waits
    "strength": _strength,  # … less strongly than UPDATE (kv.base.strengths)
    "unlock": _flag("unlock"),  # remove those of such ops
    "shared": _flag("shared"),  # … what it read is no more than locked, if it is
    "locked": _flag("locked"),  # the commit, of a transaction that may have locked these keys
    "checked": _flag("checked"),  # of PREWRITE_ROWS: no row may have a version above start_ts
    "absent": _flag("absent"),  # of PREWRITE_ROWS and WRITE_ROWS: no row may be there
    # of PREWRITE_ROWS, of one that may have locked these keys; an older node, which would leave
    "over": _flag("over"),  # such rows out, refuses it
    "beside": _beside,  # of a COMMIT: the transactions that are committed with it, all or none
    "own": _flag("own"),  # of a ROLLBACK: by the coordinator, who reported no commit to anybody
}


def check_options(what: str, options: object) -> None:
    """Raises InvalidArgument unless it is a map of known names to values of their kind, or None."""
    if options is None:
        return
    if type(options) is not dict:
        raise InvalidArgument(f"{what} must be a map or nil, got {type(options).__name__}")
    for name, value in options.items():
        check = CHECKS.get(name)
        if check is None:
            raise InvalidArgument(
                f"unknown option {name!r:.40}; this version knows {', '.join(sorted(CHECKS))}"
            )
        check(value)


def options_of(r: WireRow, at: int) -> Options:
    """The options of a checked request whose fixed arguments end before index `at`."""
    return r[at] or NONE if len(r) > at else NONE
