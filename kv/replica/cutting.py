"""Where a replica would cut its partition, without a scan (G2, H5, H7).

    middle   half of the live bytes lie below: from samples of what was written (kv/partition/sizes)
    load     half of the recent requests go below: only their leader knows (kv/partition/statistics)
    end      behind the last row: rows that are appended go to the new partition from then on, and
             this one is never written again

Each is a few hundred comparisons or one seek. None: there is no such key, and the caller says why
in its own words. For who splits (kv/partition/shapes.py, procedures/master): `split_key(replica,
"middle")`; over the network the method SPLIT_POINT.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from kv.base.errors import InvalidArgument, NotLeader, Unavailable
from kv.base.limits import KEY_BYTES_MAX
from kv.replica.replica import Replica

MIDDLE: Final = "middle"
LOAD: Final = "load"
END: Final = "end"
WAYS: Final = (MIDDLE, LOAD, END)
_PREFIX_BYTES: Final = 4


def split_key(replica: Replica, how: str) -> bytes | None:
    """A key inside the partition, above its start; see the module. Raises Corruption."""
    state, d = replica.state, replica.descriptor
    if how == MIDDLE:
        key = state.sizes.key_at(0.5)
    elif how == LOAD:
        key = replica.machine.traffic.load_key()
    else:
        assert how == END
        last = state.scan("cur", d.start, d.end, reverse=True, limit=1)
        key = last[0][0] + b"\x00" if last else None
        if key is not None and len(key) > KEY_BYTES_MAX + _PREFIX_BYTES:
            key = last[0][0]  # no longer key can exist: the last row goes along
    return key if key is not None and key > d.start and d.covers(key) else None


class Manager(Protocol):
    """kv.replica.manager.ReplicaManager."""

    def replica(self, partition: int) -> Replica | None: ...


class SplitPoint:
    """The method SPLIT_POINT of a node."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def handle(self, _context: object, args: list[Any]) -> list[Any]:
        """The handler. Raises NotLeader, Unavailable."""
        partition, how = args
        replica = self._manager.replica(partition)
        if replica is None:
            raise Unavailable(f"this node has no replica of partition {partition}")
        if not replica.leads():
            leader = replica.leader_hint()
            raise NotLeader(f"partition {partition} is led elsewhere", details={"leader": leader})
        return [split_key(replica, how)]


def check_split_point(row: list[Any]) -> None:
    """The arguments of SPLIT_POINT. Raises InvalidArgument."""
    match row[3:]:
        case [int(), str(how)] if how in WAYS:
            return
    raise InvalidArgument(f"SPLIT_POINT takes a partition id and one of {', '.join(WAYS)}")
