"""A replica's rows on their way from one storage shard of its node to another, while it serves.

    begin     one batch: the marker (which shard), and whatever an earlier attempt left there goes
    copy      slice by slice, each in one step of the loop: what is read is written at once. Rows
              that entries change behind the place that was reached are copied anew after each
    switch    one batch: the descriptor names the new shard, the old rows and the marker go

Until the switch everything is read from where it was. The engine keeps a prefix of the batches over
a crash: so it has the switch, and with it all rows, or the marker, and then what lies in the shard
that it names is nobody's and is removed when the data are opened (`forget`); the move begins anew
when the node compares its replicas with the map (procedures/master/members/reconcile.py). The same
before the partition changes its range, is frozen, replaced by a snapshot, or dropped.

A node moves its own replica when it comes to it; the others' rows, the log and snapshots know
nothing of shards. Slices are paid for with pauses, SHARD_MOVE_BYTES_PER_S.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from kv.base.checksum import seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import KvorumError, Unavailable
from kv.base.limits import SHARD_MOVE_BYTES_PER_S, KiB
from kv.base.ports import Handle, Timers
from kv.base.shards import SHARDED
from kv.mvcc.records import Row
from kv.partition.entry import Other
from kv.replica.metakeys import DESCRIPTOR, MOVING, body, encode_descriptor, meta_key
from kv.replica.ranges import delete_own, slices
from kv.replica.state import PartitionState
from kv.storage.engine import Batch, Engine

log = logging.getLogger(__name__)

_SLICE_ROWS: Final = 1_000
_SLICE_BYTES: Final = 256 * KiB
_RETRY_S: Final = 0.5  # where the database takes no writes


class ShardMove:
    """See the module. All on the loop. Raises Unavailable when it is made: nothing happened."""

    def __init__(
        self,
        state: PartitionState,
        shard: str,
        timers: Timers,
        on_end: Callable[[ShardMove], object],
    ) -> None:
        """`on_end(self)` is called at the switch (`state` has the new shard then), and when the
        move was given up.
        """
        self._state, self._timers, self._on_end = state, timers, on_end
        self._from, self._to = state.engine, state.engine.shard(shard)
        self._new = replace(state.descriptor, shard=shard)
        self._slices = [one for one in slices(self._new) if one[0] in SHARDED]
        self._family = 0  # which slice is copied …
        self._at = self._slices[0][1]  # … and up to where
        self._get = {family: self._from.getter(family) for family in SHARDED}
        self._timer: Handle | None = None
        self._given_up = False  # what was copied is to be removed, when the database takes writes
        batch = state.batch()
        forget(batch, state.engine, state.descriptor)
        key = meta_key(self._new.id, MOVING)
        batch.put(key, seal(key, shard.encode()), state.engine.family("meta"))
        delete_own(batch, state.engine, self._new)
        state.engine.write(batch)
        self._timer = timers.call_later(0, self._step)

    @property
    def shard(self) -> str:
        """Where it goes."""
        return self._new.shard

    def follow(self, rows: Sequence[Row], others: Iterable[Other]) -> None:
        """An entry was applied that changed these."""
        if self._given_up:
            return
        changed = [("cur", row[0]) for row in rows]
        changed += [("hist", row[2]) for row in rows if row[2] is not None]
        changed += [(family, key) for family, key, _ in others if family in SHARDED]
        batch = self._state.batch()
        try:
            for family, key in changed:
                if self._reached(family, key):
                    value = self._get[family](key)
                    if value is None:
                        batch.delete(key, self._to.family(family))
                    else:
                        batch.put(key, value, self._to.family(family))
            self._state.engine.write(batch)
        except KvorumError as error:  # what is there is not the partition any more
            self._give_up(error)

    def _reached(self, family: str, key: bytes) -> bool:
        at = SHARDED.index(family)
        return at < self._family or (at == self._family and key < self._at)

    def stop(self) -> None:
        """Give it up, and remove what was copied. Raises Unavailable: try again."""
        batch = self._state.batch()
        forget(batch, self._state.engine, self._state.descriptor)
        self._state.engine.write(batch)
        self._end()

    def _give_up(self, error: KvorumError) -> None:
        log.warning("partition %d stays in its storage shard: %s", self._new.id, error)
        self._given_up = True
        self.leave()
        self._timer = self._timers.call_later(_RETRY_S, self._clear)

    def _clear(self) -> None:
        """It ends when nothing of it is left: the range may be another one after that."""
        self._timer = None
        try:
            self.stop()
        except Unavailable:
            self._timer = self._timers.call_later(_RETRY_S, self._clear)
        except KvorumError as error:  # damaged there, too: it goes when the data are opened
            log.warning("partition %d left rows in %r: %s", self._new.id, self.shard, error)
            self._end()

    def leave(self) -> None:
        """Do nothing any more; the marker says what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self.leave()
        self._on_end(self)

    def _step(self) -> None:
        self._timer = None
        try:
            self._to.check_room()
            size = self._copy() if self._family < len(self._slices) else 0
            if self._family == len(self._slices):  # again, where the switch was refused
                self._switch()
                return
        except Unavailable:
            self._timer = self._timers.call_later(_RETRY_S, self._step)
            return
        except KvorumError as error:  # damaged: whoever reads it says so
            self._give_up(error)
            return
        self._timer = self._timers.call_later(size / SHARD_MOVE_BYTES_PER_S, self._step)

    def _copy(self) -> int:
        """The next slice; its bytes."""
        family, _, end = self._slices[self._family]
        rows = self._from.scan(family, self._at, end, limit=_SLICE_ROWS, bytes_max=_SLICE_BYTES)
        if rows:
            batch, to = self._state.batch(), self._to.family(family)
            for key, value in rows:
                batch.put(key, value, to)
            self._state.engine.write(batch)
            self._at = rows[-1][0] + b"\x00"
        else:
            self._family += 1
            self._at = b"" if self._family == len(self._slices) else self._slices[self._family][1]
        return sum(len(key) + len(value) for key, value in rows)

    def _switch(self) -> None:
        state = self._state
        batch, key = state.batch(), meta_key(self._new.id, DESCRIPTOR)
        batch.put(key, encode_descriptor(key, self._new), state.engine.family("meta"))
        batch.delete(meta_key(self._new.id, MOVING), state.engine.family("meta"))
        delete_own(batch, state.engine, state.descriptor)
        state.engine.write(batch)
        state.lie_in(self._new)
        self._end()


def forget(batch: Batch, engine: Engine, descriptor: PartitionDescriptor) -> None:
    """Remove what a move that came to nothing has left of the partition, if there was one."""
    key = meta_key(descriptor.id, MOVING)
    record = engine.getter("meta")(key)
    if record is not None:
        shard = body(key, record).decode()
        if shard != descriptor.shard:
            delete_own(batch, engine, replace(descriptor, shard=shard))
        batch.delete(key, engine.family("meta"))
