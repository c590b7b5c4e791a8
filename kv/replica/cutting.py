"""Where a replica would cut its partition, without a scan (G2, H5, H7).

    middle   half of the live bytes lie below: from samples of what was written
             (kv/partition/sizes.py); a partition that is small enough is looked at
    load     half of the recent requests go below: only their leader knows (kv/partition/statistics)
    end      after the last row: rows that are appended go to the new partition from then on, and
             this one is never written again

Each is a few hundred comparisons or one seek. None: there is no such key, and the caller says why
in its own words. For who splits (kv/partition/shapes.py, procedures/master): `split_key(replica,
"middle")`; over the network the method SPLIT_POINT.

A partition that was written before there were samples has none: whoever asks for its middle gets
none, and a survey begins (`Survey`), once, in small steps with pauses; the samples are there when
it has ended, and stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kv.base.errors import KvorumError, NotLeader, Unavailable
from kv.base.limits import KEY_BYTES_MAX, KiB, MiB
from kv.base.ports import Timers
from kv.base.wire_row import WireRow
from kv.partition.sizes import SizeMap, rows_of
from kv.replica.replica import Replica

MIDDLE: Final = "middle"
LOAD: Final = "load"
END: Final = "end"
_PREFIX_BYTES: Final = 4
LOOK_BYTES: Final = 1 * MiB  # what one look may read …
LOOK_ROWS: Final = 4_000  # … and how many rows of it
_STEP_ROWS: Final = 500
_STEP_BYTES: Final = 512 * KiB
_STEP_PAUSE_S: Final = 0.01
_SURVEYS_MAX: Final = 1  # of a node at once


def split_key(replica: Replica, how: str) -> bytes | None:
    """A key inside the partition, above its start; see the module. Raises Corruption."""
    state, d = replica.state, replica.descriptor
    if how == MIDDLE:
        key = _looked(replica) if state.live_bytes <= LOOK_BYTES else None
        if key is None and sampled(replica):
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


def _looked(replica: Replica) -> bytes | None:
    """The middle of a partition whose rows fit one look; None if they do not."""
    d = replica.descriptor
    rows = replica.state.scan("cur", d.start, d.end, limit=LOOK_ROWS, bytes_max=2 * LOOK_BYTES)
    if len(rows) == LOOK_ROWS:
        return None
    half = sum(len(key) + len(record) for key, record in rows) / 2
    best: tuple[float, bytes] | None = None
    below = 0
    for key, record in rows:
        if below and (best is None or abs(below - half) < best[0]):
            best = abs(below - half), key
        below += len(key) + len(record)
    return None if best is None else best[1]


def sampled(replica: Replica) -> bool:
    """Whether the samples account for what the partition has."""
    live = replica.state.live_bytes
    return live / 2 <= replica.state.sizes.total <= 2 * live


class Survey:
    """Makes samples of a partition that has none. Work of about a millisecond at a time."""

    def __init__(self, replica: Replica, timers: Timers, ended: Callable[[], object]) -> None:
        self._replica, self._timers, self._ended = replica, timers, ended
        self._map = SizeMap(int(replica.descriptor.id))
        self._at: bytes | None = replica.descriptor.start
        self._epoch = replica.descriptor.epoch
        timers.call_soon(self._step)

    def _step(self) -> None:
        replica, d = self._replica, self._replica.descriptor
        if not replica.leads() or d.epoch != self._epoch or self._at is None:
            self._ended()  # it moved or was cut meanwhile: whoever wants to know asks again
            return
        try:
            rows = replica.state.scan(
                "cur", self._at, d.end, limit=_STEP_ROWS, bytes_max=_STEP_BYTES
            )
        except KvorumError:
            self._ended()
            return
        size = sum(len(key) + len(record) for key, record in rows)
        self._map.note(self._map.choose(rows_of(rows), size, lambda _key: None))
        if not rows:
            replica.state.sizes = self._map
            self._ended()
            return
        self._at = rows[-1][0] + b"\x00"
        self._timers.call_later(_STEP_PAUSE_S, self._step)


class Manager(Protocol):
    """kv.replica.manager.ReplicaManager."""

    def replica(self, partition: int) -> Replica | None: ...


class SplitPoint:
    """The method SPLIT_POINT of a node."""

    def __init__(self, manager: Manager, timers: Timers) -> None:
        self._manager, self._timers = manager, timers
        self._surveys: dict[int, Survey] = {}

    def handle(self, _context: object, args: WireRow) -> list[object]:
        """The handler. Raises NotLeader, Unavailable."""
        partition, how = args
        replica = self._manager.replica(partition)
        if replica is None:
            raise Unavailable(f"this node has no replica of partition {partition}")
        if not replica.leads():
            leader = replica.leader_hint()
            raise NotLeader(f"partition {partition} is led elsewhere", details={"leader": leader})
        key = split_key(replica, how)
        if key is None and how == MIDDLE and not sampled(replica):
            self._survey(partition, replica)
        return [key]

    def _survey(self, partition: int, replica: Replica) -> None:
        if partition not in self._surveys and len(self._surveys) < _SURVEYS_MAX:
            ended = partial(self._surveys.pop, partition, None)
            self._surveys[partition] = Survey(replica, self._timers, ended)
