"""Settings of queues as they are given, kept and shown. Pure.

Rows: the limits that all versions know in the one that they read (03), what came later in a row of
its own (40), so that an older master finds what it can read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kv.base import limits
from kv.base.errors import InvalidArgument
from kv.base.ops import Op, delete, put
from procedures.engine import plain_data
from procedures.pools import rows
from procedures.pools.start_limits import NONE, Limit

KINDS: Final = ("queue", "type", "pool")
OF_QUEUES: Final = ("key_concurrent", "key_rate", "key_burst", "aging_ms", "weights")
_FIRST: Final = ("max_concurrent", "rate_per_s")  # what row 03 holds
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_RATE: Final = re.compile(r"(\d+)/(\d*)([smhd])\Z")
_KNOWN: Final = frozenset(
    {"name", "kind", "max_concurrent", "rate_per_s", "rate", "burst", *OF_QUEUES, "key_rate_per_s"}
)


def given(args: Mapping[str, object], kind: str) -> Limit:
    """What somebody wants set. Raises InvalidArgument."""
    unknown = sorted(set(args) - _KNOWN)
    if unknown:
        raise InvalidArgument(
            f"unknown setting {unknown[0]!r:.40}; there are {', '.join(sorted(_KNOWN))}"
        )
    of_keys = [name for name in OF_QUEUES if args.get(name)]
    if kind != "queue" and (of_keys or args.get("key_concurrent") == 0):
        what = of_keys[0] if of_keys else "key_concurrent"
        raise InvalidArgument(f"{what} is for queues, not for a {kind}: keys are in queues")
    most = limits.PROCEDURE_CONCURRENT_MAX
    one = args.get("key_concurrent")
    return Limit(
        _whole(args, "max_concurrent", most),
        _rate(args, "rate", "rate_per_s"),
        _whole(args, "burst", limits.PROCEDURE_RATE_MAX),
        1 if one is None else _whole(args, "key_concurrent", most),
        _rate(args, "key_rate", "key_rate_per_s"),
        _whole(args, "key_burst", limits.PROCEDURE_RATE_MAX),
        _whole(args, "aging_ms", limits.PROCEDURE_TIMEOUT_MS_MAX),
        _weights(args.get("weights") or {}),
    )


def shown(name: str, kind: str, limit: Limit) -> dict[str, object]:
    found = {"name": name, "kind": kind, **limit._asdict(), "weights": dict(limit.weights)}
    if kind != "queue":
        for what in ("key_concurrent", "key_rate_per_s", "key_burst", "aging_ms", "weights"):
            del found[what]
    return found


def kept(name: str, limit: Limit) -> list[Op]:
    """The rows of a limit; of one that is removed none."""
    more = {
        field: value
        for field, value in limit._asdict().items()
        if field not in _FIRST and value != getattr(NONE, field)
    }
    first, second = rows.queue(name), rows.settings(name)
    base = [limit.max_concurrent, limit.rate_per_s]
    return [
        put(first, plain_data.pack(base)) if any(base) else delete(first),
        put(second, plain_data.pack(_plain(more))) if more else delete(second),
    ]


def stored(value: bytes) -> Limit:
    return Limit(*plain_data.decode(value)[:2])


def with_more(limit: Limit, value: bytes) -> Limit:
    more = plain_data.decode(value)
    if "weights" in more:
        more["weights"] = tuple(sorted(more["weights"].items()))
    return limit._replace(**{field: more[field] for field in more if field in Limit._fields})


def _plain(more: dict[str, Any]) -> dict[str, object]:
    return {**more, "weights": dict(more["weights"])} if "weights" in more else more


def _whole(args: Mapping[str, object], name: str, most: int) -> int:
    value = args.get(name) or 0
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidArgument(f"{name} must be 0 to {most}, got {value!r:.40}")
    return value


def _rate(args: Mapping[str, Any], text: str, number: str) -> float:
    said, value = args.get(text), args.get(number) or 0
    if said is not None and said != "":
        found = _RATE.match(said) if isinstance(said, str) else None
        if value or found is None or not int(found[1]) or found[2].startswith("0"):
            raise InvalidArgument(
                f"{text} must be so many per time, as 100/1h, 5/10s or 1/d, and not given beside "
                f"{number}; got {said!r:.40}"
            )
        value = int(found[1]) / (int(found[2] or 1) * _UNITS_S[found[3]])
    if type(value) not in (int, float) or not 0 <= value <= limits.PROCEDURE_RATE_MAX:
        raise InvalidArgument(
            f"{number} must be 0 to {limits.PROCEDURE_RATE_MAX}, got {value!r:.40}"
        )
    if 0 < value < 1 / (limits.PROCEDURE_TIMEOUT_MS_MAX / 1000):
        raise InvalidArgument(f"{number} must be at least one a year, got {value!r:.40}")
    return float(value)


def _weights(said: object) -> tuple[tuple[str, int], ...]:
    most = limits.QUEUE_WEIGHTS_MAX
    if not isinstance(said, Mapping) or len(said) > most:
        raise InvalidArgument(f"weights must be a map of at most {most} keys, got {said!r:.40}")
    for key, weight in said.items():
        if not isinstance(key, str) or not 0 < len(key) <= limits.NONCE_CHARS_MAX:
            raise InvalidArgument(f"weights: a key must be a text, got {key!r:.40}")
        if type(weight) is not int or not 1 <= weight <= limits.QUEUE_WEIGHT_MAX:
            raise InvalidArgument(
                f"weights: that of {key!r:.40} must be 1 to {limits.QUEUE_WEIGHT_MAX}, "
                f"got {weight!r:.40}"
            )
    return tuple(sorted(said.items()))
