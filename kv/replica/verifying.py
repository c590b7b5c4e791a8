"""Reading all that a replica has of its partition, part by part, every record against its checksum
(and the engine its blocks against theirs): before another copy of it is given up.
"""

from __future__ import annotations

from kv.base.errors import Corruption
from kv.base.limits import CHECK_STEP_ROWS, MiB
from kv.replica.chunks import check_seals
from kv.replica.ranges import slices
from kv.replica.replica import Replica

_STEP_BYTES = 1 * MiB


def verify_part(replica: Replica, place: int, key: bytes) -> tuple[int, bytes | None]:
    """One bounded step from `key` on in the `place`-th family: where to go on, (place, None) at the
    end. Damage that is found is the replica's. Raises Corruption.
    """
    bounds = slices(replica.descriptor)
    if place >= len(bounds):
        return place, None
    name, start, end = bounds[place]
    low = max(start, key)
    try:
        rows = replica.state.scan(name, low, end, limit=CHECK_STEP_ROWS, bytes_max=_STEP_BYTES)
        check_seals(name, [key for key, _ in rows], [value for _, value in rows])
    except Corruption as error:
        replica.damaged(error)
        raise
    return (place, rows[-1][0] + b"\x00") if rows else (place + 1, b"")
