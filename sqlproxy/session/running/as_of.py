"""AS OF: what a user writes for a moment of the past → a timestamp of the oracle.

'-10s', '-5m', '-2h', '-1d'       so long ago
'2026-01-31 12:00:00+00'          a time (UTC unless it says so)
1234567890123456789               a version, as replies and `kvorum_version` columns show it
follower_read_timestamp()         the newest moment that any replica may answer, by the clock here
with_max_staleness('10s')         as '-10s': one moment over all partitions, so just as old as it
                                  may be

So long ago is counted from the oracle's present: after a change of its leader timestamps are
seconds ahead of the clocks, and by a clock a row that was written before would not be there yet.
"""

from __future__ import annotations

import re
from typing import Final

from kv.base.limits import REPLICA_AGE_MS
from kv.base.timestamps import ago_ms, compose, of_time
from sqlproxy.values.errors import INVALID_DATETIME, SqlError

_AT_REPLICAS: Final = "follower_read_timestamp()"
_BOUND: Final = re.compile(r"with_max_staleness\('([^']*)'\)")


def at_replicas(text: str, now_ms: int, age_ms: int) -> int | None:
    """The newest timestamp that any replica answers, if that is what is asked for. `now_ms` and
    `age_ms` as `TxnClient.reader_at` has them.
    """
    return compose(now_ms - (age_ms or REPLICA_AGE_MS)) if text == _AT_REPLICAS else None


def bounded(text: str) -> str:
    """with_max_staleness('10s') in other words."""
    found = _BOUND.fullmatch(text)
    return text if found is None else f"-{found[1]}"


def is_relative(text: str) -> bool:
    """Whether it counts from the present."""
    return ago_ms(text) is not None


def timestamp_of(text: str, now_ms: int) -> int:
    """`now_ms`: of the oracle where it `is_relative`. Raises SqlError (22007)."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 20:
        return int(text)
    if (ms := ago_ms(text)) is not None:
        return compose(now_ms - ms)
    if (at := of_time(text)) is None:
        raise SqlError(
            INVALID_DATETIME,
            f'"{text:.60}" is no moment to read at',
            hint="Write '-10s', a time like '2026-01-31 12:00:00+00', or a version.",
        )
    return at
