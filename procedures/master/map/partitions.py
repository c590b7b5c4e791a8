"""The partition map, and making the partitions of a table.

    PARTITIONS   esc(start key) → sealed msgpack [1, *descriptor, first voters, witnesses, first
                 witnesses, replicas, [change], [tags], wanted leader, most bytes, storage shard,
                 goal, labels of leaders]
                 (descriptor: the six fields of PartitionDescriptor.to_wire;
                 first voters absent in older rows, then `voters`; what follows them absent where
                 there are no witnesses, replicas are everywhere and nothing changes)
                 change: ["split", id, key], while that partition is being split off at that key;
                 ["merge", id], of both, while this one is merged with that
    COUNTERS     esc("partition") → the next partition id; 1 is the meta partition

A table with n split keys has n + 1 partitions that cover its storage keys `[u32 id, u32 id + 1)`.
The map's rows are written in the transaction that also keeps the descriptors in the procedure's
state; the replicas are made and removed by a node's replica manager, which is idempotent by id.

`voters` and `learners` of a row follow the consensus group, which is the truth: a node is entered
before it becomes a member and taken out after it was removed, so a member is always in the row and
a replica whose node is not in it is nobody's. A witness among the *first voters* that makes its
replica late begins with the configuration with which all the others began. Once a node was removed,
there are none: see `moves.removed`.

By the epoch clients see that a range changed. Members may change without it: who leads is found out
by asking (NOT_LEADER says where), and no key moves.

A change is in the row before any replica hears of it (procedures/master/shape/splitting.py,
procedures/master/shape/merging.py): so a replica that a split has made is never taken for nobody's,
and a table is not dropped meanwhile. A partition that was split off has no first voters: who has
its state begins with it (kv/replica/reshape.py), and whoever else makes a replica of it begins with
nothing and is reported by its leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from kv.base import limits, system
from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, Corruption, InvalidArgument, TooLarge
from kv.base.ids import META_PARTITION, NodeId, PartitionId, TableId
from kv.base.keys import escape, escape_open, table_prefix, table_range, u64
from kv.base.limits import MEMBERSHIP_PAUSE_MS
from kv.base.placement import Placement, is_goal
from kv.base.shards import is_shard

FORMAT: Final = 1
COUNTER_PARTITION: Final = "partition"
FIRST_PARTITION: Final = META_PARTITION + 1
EVERYWHERE: Final = Placement()

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class Placed(NamedTuple):
    """A row of the map."""

    descriptor: PartitionDescriptor
    first: tuple[NodeId, ...]
    first_witnesses: tuple[NodeId, ...] = ()
    replicas: int = 0
    """With data, that the table wants (placement.py); of one with a goal, votes; 0: one at every
    member."""
    change: tuple[Any, ...] = ()
    """What is being done to it: ("split", id, key) or ("merge", id)."""
    tags: tuple[str, ...] = ()
    """That a node must carry to have it."""
    leads: NodeId = NodeId(0)
    """Who should lead it, while it votes; 0: follows from the id (placement.preferred)."""
    bytes_max: int = 0
    """Above which it is split, as its table wants it; 0: the cluster's setting."""
    survive: str = ""
    """What may be lost without stopping it (kv.base.placement)."""
    leaders: str = ""
    """Labels of the nodes that should lead it."""

    @property
    def wants(self) -> Placement:
        """What its table wants."""
        shard = self.descriptor.shard
        return Placement(
            *(self.replicas, self.tags, self.bytes_max, shard, self.survive, self.leaders)
        )

    def wanting(self, wanted: Placement) -> Placed:
        """The same one of a table that wants this from now on."""
        return self._replace(
            descriptor=replace(self.descriptor, shard=wanted.shard),
            replicas=wanted.replicas,
            tags=wanted.tags,
            bytes_max=wanted.bytes_max,
            survive=wanted.survive,
            leaders=wanted.leaders,
        )

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Where the partition has replicas, or is about to have some."""
        return (*self.descriptor.voters, *self.descriptor.learners)

    def begins_at(self, node: NodeId) -> PartitionDescriptor:
        """The descriptor with which this node makes its replica late: without voters. It has an
        empty log, perhaps because it lost one, so it gives no vote before the leader has sent it
        what there is, with the members. A witness, which is sent no data, begins with the first
        voters if it is one of them.
        """
        founder = node in self.first_witnesses and node in self.descriptor.voters
        first, witnesses = (self.first, self.first_witnesses) if founder else ((), ())
        return replace(self.descriptor, voters=first, learners=(), witnesses=witnesses)


class Replicas(Protocol):
    """What is needed of a node's replica manager (kv.replica.manager). Both are idempotent."""

    async def create(self, descriptor: PartitionDescriptor) -> None: ...

    async def drop(self, partition: PartitionId) -> None: ...


class Place(NamedTuple):
    """Where the replicas of a new partition go."""

    voters: tuple[NodeId, ...]
    witnesses: tuple[NodeId, ...] = ()
    """Those of `voters` that keep no data."""


class Maker(Protocol):
    """Makes and removes partitions wherever they are placed: here (`Partitions`), or on several
    nodes (kvorum/cluster/placement.py). `create`, `close` and `drop` may be repeated.
    """

    async def places(
        self,
        t: Reader,
        ids: Sequence[PartitionId],
        wanted: Placement,
    ) -> list[Place]:
        """Where each of these new partitions of a table goes. Raises Refused: no node may have it,
        or the cluster cannot give what it is to survive.
        """
        ...

    async def create(
        self, descriptors: Sequence[PartitionDescriptor], *, late: bool = False
    ) -> None:
        """`late`: they have been made before; a node that lacks one begins it as `begins_at`."""
        ...

    async def close(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        """Before `drop`, of partitions of one table: they take no new writes, and nothing that is
        left in them decides about others.
        """
        ...

    async def drop(self, descriptors: Sequence[PartitionDescriptor]) -> None: ...


class Page(Protocol):
    @property
    def items(self) -> Sequence[tuple[bytes, bytes, int]]: ...
    @property
    def resume(self) -> bytes | None: ...


class Reader(Protocol):
    """What is needed of a snapshot."""

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Page: ...


class Counting(Protocol):
    """What is needed of a transaction to write a counter."""

    async def get(self, key: bytes) -> tuple[bytes | None, int]: ...
    def put(self, key: bytes, value: bytes) -> object: ...


class Txn(Reader, Protocol):
    """What is needed of a transaction."""

    def put(self, key: bytes, value: bytes) -> object: ...
    def delete(self, key: bytes) -> object: ...


class Partitions:
    """Makes and removes partitions on one node."""

    def __init__(self, replicas: Replicas, node: NodeId) -> None:
        self._replicas = replicas
        self._place = Place((node,))

    async def places(
        self,
        t: Reader,
        ids: Sequence[PartitionId],
        wanted: Placement,
    ) -> list[Place]:
        """That one node, whatever it carries."""
        return [self._place] * len(ids)

    async def create(
        self, descriptors: Sequence[PartitionDescriptor], *, late: bool = False
    ) -> None:
        """Replicas of all of them; those that exist stay as they are."""
        for descriptor in descriptors:
            await self._replicas.create(descriptor)

    async def close(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        """Nothing to do here: `drop` is one step of the only node's loop."""

    async def drop(self, descriptors: Sequence[PartitionDescriptor]) -> None:
        """Remove replicas with their data, the last one first; those that are gone stay gone."""
        for descriptor in reversed(descriptors):
            await self._replicas.drop(descriptor.id)


def checked_split_keys(raw: object) -> list[bytes]:
    """User keys (bytes, or text as UTF-8) at which a new table is cut, in rising order.

    Raises InvalidArgument or TooLarge that names the key and its place.
    """
    if not isinstance(raw, list | tuple):
        raise InvalidArgument(f"split_keys must be a list of keys, got {raw!r:.80}")
    if len(raw) > limits.SPLIT_KEYS_MAX:
        raise TooLarge(
            f"{len(raw)} split keys, the limit is {limits.SPLIT_KEYS_MAX}; partitions split by "
            "themselves when they grow",
            details={"what": "split keys", "limit": limits.SPLIT_KEYS_MAX, "actual": len(raw)},
        )
    keys: list[bytes] = []
    for i, item in enumerate(raw):
        key = item.encode() if isinstance(item, str) else item
        if not isinstance(key, bytes) or not 0 < len(key) <= limits.KEY_BYTES_MAX:
            raise InvalidArgument(
                f"split key {i} must have 1 to {limits.KEY_BYTES_MAX} bytes, got {item!r:.80}"
            )
        if keys and key <= keys[-1]:
            raise InvalidArgument(
                f"split key {i} ({key!r:.60}) must be above the one before it ({keys[-1]!r:.60})"
            )
        keys.append(key)
    return keys


def plan(
    table: TableId,
    split_keys: Sequence[bytes],
    first_id: int,
    places: Sequence[Place],
    shard: str = "",
) -> list[PartitionDescriptor]:
    """The partitions of a new table, in key order, with ids from `first_id` on, each at its place
    (one more than there are split keys), and in this storage shard.
    """
    start, end = table_range(table)
    prefix = table_prefix(table)
    borders = [start, *(prefix + key for key in split_keys), end]
    return [
        PartitionDescriptor(
            PartitionId(first_id + i), low, high, 1, place.voters, (), place.witnesses, shard
        )
        for i, ((low, high), place) in enumerate(zip(pairwise(borders), places, strict=True))
    ]


def put_rows(
    t: Txn, descriptors: Sequence[PartitionDescriptor], wanted: Placement = EVERYWHERE
) -> None:
    """Enter new partitions into the map: their voters are the first ones."""
    for d in descriptors:
        put_row(t, Placed(d, d.voters, d.witnesses).wanting(wanted._replace(shard=d.shard)))


async def check_shards(t: Reader, shard: str) -> None:
    """Raises TooLarge: it would be one storage shard more than nodes have."""
    if shard:
        there = {placed.descriptor.shard for placed in await placed_partitions(t)} - {""}
        if shard not in there and len(there) >= limits.SHARDS_MAX:
            raise TooLarge(
                f"storage shard {shard!r} would be one too many, the limit is "
                f"{limits.SHARDS_MAX}; take one of {', '.join(sorted(there))}",
                details={"what": "storage shards", "limit": limits.SHARDS_MAX},
            )


def put_row(t: Txn, placed: Placed) -> None:
    """Write the row of a partition."""
    key = map_key(placed.descriptor.start)
    d = placed.descriptor
    row = [FORMAT, *replace(d, witnesses=(), shard="").to_wire(), list(placed.first)]
    goal = [placed.survive, placed.leaders] if placed.survive or placed.leaders else []
    more = bool(placed.tags or placed.leads or placed.bytes_max or d.shard or goal)
    if d.witnesses or placed.first_witnesses or placed.replicas or placed.change or more:
        row += [list(d.witnesses), list(placed.first_witnesses)]
    if placed.replicas or placed.change or more:
        row.append(placed.replicas)
    if placed.change or more:
        row.append(list(placed.change))
    if more:
        row += [list(placed.tags), placed.leads]
    if placed.bytes_max or d.shard or goal:
        row.append(placed.bytes_max)
    if d.shard or goal:
        row += [d.shard, *goal]
    t.put(key, seal(key, _encode(row)))


def delete_rows(t: Txn, descriptors: Sequence[PartitionDescriptor]) -> None:
    """Take partitions out of the map."""
    for descriptor in descriptors:
        t.delete(map_key(descriptor.start))


async def hold_new_ones(t: Counting) -> None:
    """Let this transaction and one that makes partitions exclude each other: both write the counter
    of their ids.
    """
    key = table_prefix(system.COUNTERS) + escape(COUNTER_PARTITION.encode())
    value, _ = await t.get(key)
    t.put(key, seal(key, u64(FIRST_PARTITION)) if value is None else value)


async def partitions_of(t: Reader, table: TableId) -> list[PartitionDescriptor]:
    """A table's partitions as the map has them, in key order. Raises Corruption; Busy: one is being
    split or merged, so that the map does not have all of them.
    """
    rows = await placed_of(t, table)
    for placed in rows:
        if placed.change:
            raise busy_with(placed)
    return [placed.descriptor for placed in rows]


async def placed_of(t: Reader, table: TableId) -> list[Placed]:
    """A table's rows of the map, in key order. Raises Corruption."""
    base = table_prefix(system.PARTITIONS)
    low, high = table_range(table)
    return await _placed(t, base + escape_open(low), base + escape_open(high))


def busy_with(placed: Placed) -> Busy:
    """The refusal while a partition is being changed."""
    return Busy(
        f"partition {placed.descriptor.id} is being changed ({placed.change[0]}); trying again",
        details={"what": "reshaping", "retry_after_ms": MEMBERSHIP_PAUSE_MS},
    )


async def new_partition_id(t: Counting) -> PartitionId:
    """An id that was never given out."""
    key = table_prefix(system.COUNTERS) + escape(COUNTER_PARTITION.encode())
    value, _ = await t.get(key)
    if value is not None and not intact(key, value):
        raise Corruption("the counter of partition ids is damaged", details={"key": key})
    number = FIRST_PARTITION if value is None else int.from_bytes(value[:8], "big")
    t.put(key, seal(key, u64(number + 1)))
    return PartitionId(number)


async def placed_partitions(t: Reader) -> list[Placed]:
    """The whole map at one snapshot, in key order; the meta partition is not in it. Raises
    Corruption: then nothing may be concluded from what is missing.
    """
    return await _placed(t, *table_range(system.PARTITIONS))


async def _placed(t: Reader, start: bytes | None, end: bytes) -> list[Placed]:
    found: list[Placed] = []
    while start is not None:
        page = await t.scan(start, end, limit=limits.SPLIT_KEYS_MAX + 1)
        found += [decode_placed(key, value) for key, value, _ in page.items]
        start = page.resume
    return found


def map_key(start: bytes) -> bytes:
    """The storage key of the row of the partition that begins at `start`."""
    return table_prefix(system.PARTITIONS) + escape(start)


def decode_row(key: bytes, value: bytes) -> PartitionDescriptor:
    """The descriptor in a row of the map. Raises Corruption."""
    return decode_placed(key, value).descriptor


def decode_placed(key: bytes, value: bytes) -> Placed:
    """What a row of the map says. Raises Corruption."""
    try:
        if not intact(key, value):
            raise ValueError("its checksum is wrong")
        format_, *row = _decode(memoryview(value)[:-CRC_BYTES])
        if format_ != FORMAT:
            raise ValueError(f"its format is {format_}, this program reads {FORMAT}")
        witnesses, first_witnesses = map(tuple, row[7:9]) if len(row) > 7 else ((), ())
        descriptor = replace(PartitionDescriptor.from_wire(row[:6]), witnesses=witnesses)
        first = tuple(NodeId(node) for node in row[6]) if len(row) > 6 else descriptor.voters
        replicas = row[9] if len(row) > 9 else 0
        if type(replicas) is not int or replicas < 0:
            raise ValueError(f"it wants {replicas!r:.20} replicas")
        change = tuple(row[10]) if len(row) > 10 else ()
        tags, leads = row[11:13] if len(row) > 12 else ((), 0)
        if type(leads) is not int or not all(type(tag) is str for tag in tags):
            raise ValueError("its tags or its wanted leader cannot be read")
        bytes_max = row[13] if len(row) > 13 else 0
        if type(bytes_max) is not int or bytes_max < 0:
            raise ValueError(f"it may have {bytes_max!r:.20} bytes")
        shard = row[14] if len(row) > 14 else ""
        if not is_shard(shard):
            raise ValueError(f"its storage shard is {shard!r:.60}")
        survive, leaders = row[15:17] if len(row) > 16 else ("", "")
        if not is_goal(survive) or type(leaders) is not str:
            raise ValueError(f"what it is to survive is {survive!r:.60}, led at {leaders!r:.60}")
        descriptor = replace(descriptor, shard=shard)
        placed = Placed(descriptor, first, first_witnesses, replicas, change)
        placed = placed._replace(tags=tuple(tags), leads=NodeId(leads), bytes_max=bytes_max)
        return placed._replace(survive=survive, leaders=leaders)
    except (ValueError, TypeError, IndexError, msgspec.MsgspecError) as error:
        raise Corruption(
            f"the row {key[:64]!r} of the partition map is damaged: {error}", details={"key": key}
        ) from error
