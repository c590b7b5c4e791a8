"""The native protocol's requests to a partition, and to any node of the store. The bytes are in
docs/reference/rpc.md; how requests are declared, in kv/base/verbs.py.

A frame is `[u32 LE length][msgpack]`. The first frame of each side is a hello, `["kvorum-rpc",
VERSION, {…}]`. Then a frame holds a list of requests `[rid, method, budget_ms, *args]` or of
replies `[rid, 0, *result]` / `[rid, 1, *error]` (`kv.base.errors.to_wire`). Replies come in any
order. `budget_ms` is the time the caller still waits, 0 = the default.

Arguments of partition methods begin with `partition_id, epoch` of the caller's location cache; a
mismatch is answered MOVED with the descriptor that serves now. Timestamps are plain integers.
`read_ts` 0 = the newest acknowledged; `ignore` = ids of transactions known to commit above read_ts
(start_ts, or of a user's 8 bytes of it and the name), or None; `cond` 0 = absent, else the version
it must have, or None; options: kv/base/options.py; `applied`: a replica that has applied so much of
the log may answer although it does not lead (kv/partition/replica_reads.py), 0: none may.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

from kv.base.fields import (
    BOUND_BYTES_MAX,
    Bound,
    Cond,
    Flag,
    Fresh,
    Ignored,
    Partition,
    RangeBound,
    Timestamp,
    TsoCount,
    TxnTtlMs,
    Unchecked,
    Value,
    WaitMs,
    anything,
    check_bound,
    check_key,
    check_through,
    integer,
    keys_up_to,
    octets,
    one_of,
    optional,
    text,
)
from kv.base.intents import TxnId
from kv.base.limits import (
    FEED_BYTES_MAX,
    FEED_ROWS_MAX,
    FRAME_BYTES_MAX,
    MULTI_KEYS_MAX,
    NAME_CHARS_MAX,
    PARALLEL_KEYS_MAX,
    RANGE_PARTS_MAX,
    SCAN_ROWS_MAX,
    TTL_MS_MAX,
)
from kv.base.options import check_options
from kv.base.rights import Action, Kind
from kv.base.verbs import CLUSTER, VERBS, Caller, Repeat, Request, Subject, Touches, verb

PROTOCOL: Final = "kvorum-rpc"
VERSION: Final = 1

# -- flags of WRITE and PREWRITE
BLIND: Final = 1  # no check for versions newer than start_ts (a batch that read nothing)

# -- transaction states (also on disk, kv.mvcc.records)
PENDING: Final = 1
COMMITTED: Final = 2
ABORTED: Final = 3
# committed if and only if all intents of `parts` are there (parallel commit)
STAGING: Final = 4
# no transaction's status: closes a key to the late prewrites of one (kv.mvcc.recover)
FENCED: Final = 5
STATUS_NAMES: Final = {PENDING: "pending", COMMITTED: "committed", ABORTED: "aborted"}

# -- kinds of an op (kv.base.ops)
OP_PUT: Final = 1
OP_DELETE: Final = 2
OP_CHECK: Final = 3  # condition only, writes nothing
OP_READ: Final = 4  # never on the wire: what a serializable transaction read (txn/buffered)
OP_TOMBSTONE: Final = 5  # a delete that leaves its tombstone even where nothing is (kv/mvcc/ingest)

# -- how partition methods name their keys …
Key = Annotated[bytes, check_key, Touches.KEY]
Anchor = Annotated[bytes, check_key, Touches.ANCHOR]
Keys = Annotated[list[bytes], keys_up_to(MULTI_KEYS_MAX), Touches.KEYS]
RowKeys = Annotated[Any, anything, Touches.ROWS]
Ops = Annotated[Any, anything, Touches.OPS]
Start = Annotated[bytes, check_bound, Touches.RANGE]
# -- … and what else they say
OtherKey = Annotated[bytes, check_key]
Flags = Annotated[int, integer(0, 0xFFFF)]
Options = Annotated[dict[str, Any] | None, check_options]
Rows = Annotated[int, integer(1, SCAN_ROWS_MAX)]
FeedRows = Annotated[int, integer(1, FEED_ROWS_MAX)]
FeedBytes = Annotated[int, integer(1, FEED_BYTES_MAX)]
Cursor = Annotated[bytes | None, optional(octets(FRAME_BYTES_MAX))]
Through = Annotated[Sequence[tuple[TxnId, int]], check_through]
Applied = Annotated[int, integer(0, (1 << 63) - 1)]

_query = partial(verb, by=Caller.CLIENT, action=Action.READ, repeat=Repeat.QUESTION)
# whoever may come in at all needs it to do anything else
_served = partial(verb, by=Caller.CLIENT, action=Action.CONNECT, on=CLUSTER, repeat=Repeat.QUESTION)
_write = partial(verb, by=Caller.CLIENT, action=Action.WRITE)
# moves a transaction on that others decided
_end = partial(verb, by=Caller.CLIENT, action=Action.WRITE, repeat=Repeat.QUESTION)
_VERSION: Final = {"commit_ts": 0}

# ------------------------------------------------------------------------------ partition methods


class _Scan(Request):
    """What all scans say; `limit` rows at most."""

    start: Start
    end: RangeBound
    read_ts: Timestamp
    limit: Rows
    reverse: Flag
    ignore: Ignored


class _OfRecord(Request):
    """What all say about one transaction: where its record is, and which it is."""

    anchor: Anchor
    start_ts: Fresh


@_query(1, in_reply={"version": 1})
class Get(Request):
    """→ value | None, version (0 if there is none)"""

    key: Key
    read_ts: Timestamp
    ignore: Ignored
    applied: Applied = 0


@_write(2, fresh=True, in_reply=_VERSION)
class Put(Request):
    """→ version"""

    key: Key
    value: Value
    cond: Cond
    ttl_ms: Annotated[int, integer(0, TTL_MS_MAX)]


@_write(3, fresh=True, in_reply=_VERSION)
class Delete(Request):
    """→ version"""

    key: Key
    cond: Cond


@_write(4, fresh=True, in_reply=_VERSION)
class Write(Request):
    """→ version. One atomic entry; start_ts 0 = no transaction id"""

    ops: Ops
    start_ts: Timestamp
    flags: Flags
    options: Options = None


@_query(5)
class Mget(Request):
    """→ [[value, version] | None, …]; if `counted` is true also how many records it looked at"""

    keys: Keys
    read_ts: Timestamp
    ignore: Ignored
    counted: Flag = False
    applied: Applied = 0


@_query(6)
class Scan(_Scan):
    """→ [[key, value, version], …], resume | None; if `expiries` is true also [[place in the page,
    expire_ms], …] of those that will expire; if `counted` is true also how many records it looked
    at: newest ones, older ones, deleted.
    """

    expiries: Flag = False
    counted: Flag = False
    applied: Applied = 0


@_query(7)
class Changes(Request):
    """→ [[key, value | None = was deleted, version, expire_ms | 0], …], frontier, cursor | None,
    mark, resolved, large. Versions in (above, frontier] (kv/feed/changes.py).
    """

    start: Start
    end: RangeBound
    read_ts: Fresh
    limit: FeedRows
    above: Timestamp
    closed: Flag
    bytes_max: FeedBytes
    cursor: Cursor


@_query(8)
class AwaitChanges(Request):
    """→ mark. Answered when something may be new since `mark`, or in time."""

    start: Start
    end: RangeBound
    mark: Timestamp
    wait_ms: WaitMs


@_query(9)
class ReadNow(Request):
    """→ [[value, version] | None, …], read_ts. MGET at a fresh timestamp, which the leader takes
    after the request came, for this reader alone: a transaction may begin with it. `read_ts` is 0.
    """

    keys: Keys
    read_ts: Timestamp
    ignore: Ignored


@_write(10, repeat=Repeat.AGAIN, fresh=True)
class Prewrite(Request):
    """→ min_commit_ts; with option fence also: whether that bound lies in the intents and, at the
    anchor, the record is STAGING; with options reads or ranges also: that, the timestamp below
    which they hold (0 = all), how many ranges are not wholly guarded yet (ask again). Then there
    may be no ops. With option lock the ops are checks without a condition, which keep others from
    writing the keys; → min_commit_ts, the newest version of each key (0: it is absent); with option
    values also the newest values, as many as fit into a page. With option present what is absent is
    not locked. With option strength the locks are weaker ones; shared ones (kv.base.strengths) are
    guards, but that of the anchor. With option going what is locked is about to go, and commits
    that have read it wait. Option unlock ends such locks; its answer says nothing.
    """

    start_ts: Fresh
    anchor: OtherKey
    ttl_ms: TxnTtlMs
    ops: Ops
    flags: Flags
    options: Options = None


@_write(11, repeat=Repeat.AGAIN)
class Commit(_OfRecord):
    """→ status, commit_ts, min_commit_ts. The status flip; option beside: [[anchor, start_ts], …]
    of this partition that are flipped with it, all or none.
    """

    commit_ts: Fresh
    options: Options = None


@_write(12, repeat=Repeat.AGAIN)
class Rollback(_OfRecord):
    """→ status, commit_ts. A STAGING one stays unless option own says that its coordinator asks."""

    options: Options = None


@_end(13)
class Check(_OfRecord):
    """→ status, commit_ts, min_commit_ts, age_ms, owner; of a STAGING one also its parts: [[key,
    …], …], and whose it is. `met`: the key of an intent of it; empty: none was met, so one without
    a record is let be. `user`: whose that intent is.
    """

    push_above: Timestamp
    ttl_ms: Annotated[int, integer(0, 1 << 32)]
    met: Annotated[bytes | None, optional(octets(BOUND_BYTES_MAX))] = None
    user: Annotated[str | None, optional(text(NAME_CHARS_MAX))] = None


@_end(14, rises=True)
class Resolve(Request):
    """→ intents and guards resolved, keys left. commit_ts 0 = rolled back. A chunk intent is
    resolved whole, and few chunks at once: ask again while keys are left. A guard is named by the
    key where it begins. `anchor`: only what has its record there. `user`: only what is theirs.
    """

    start_ts: Fresh
    commit_ts: Timestamp
    keys: Keys
    anchor: Annotated[bytes | None, optional(check_key)] = None
    user: Annotated[str | None, optional(text(NAME_CHARS_MAX))] = None


@_end(15)
class Heartbeat(_OfRecord):
    """→ status. With option ttl_ms it lives at least so long from now on. A STAGING one becomes
    PENDING: its coordinator waits for something, and will flip.
    """

    options: Options = None


@_write(16, repeat=Repeat.AGAIN, fresh=True)
class PrewriteRows(Request):
    """→ min_commit_ts. Puts (value None: delete) of many rows as one chunk intent, blind if not
    checked (option), or to be new (option absent); keys rise, the anchor is prewritten before and
    not among them. Keys and values may be packed (kv/mvcc/packed_rows.py). With option over
    the transaction may have locked some of the keys: their rows become intents of their own.
    """

    start_ts: Fresh
    anchor: OtherKey
    ttl_ms: TxnTtlMs
    keys: RowKeys
    values: Unchecked
    options: Options = None


@_end(17)
class Recover(Request):
    """→ whether all of them have an intent of it with a bound, the highest bound. If they have, or
    with fence in any case, they are closed to late prewrites. `user`: whose it is.
    """

    start_ts: Fresh
    anchor: OtherKey
    keys: Annotated[list[bytes], keys_up_to(PARALLEL_KEYS_MAX), Touches.KEYS]
    fence: Flag
    user: Annotated[str, text(NAME_CHARS_MAX)] = ""


@_end(18)
class Settle(_OfRecord):
    """→ status, commit_ts. commit_ts 0 = rolled back. Ends a STAGING one, after RECOVER of all its
    parts.
    """

    commit_ts: Timestamp


@_end(19, rises=True)
class Finish(Request):
    """→ [[status, left], …]. `ends`: [[start_ts, anchor | None, commit_ts, keys], …], the ends of
    transactions that are committed by their intents, or flipped elsewhere: with an anchor the flip
    as by COMMIT, and only if the record says COMMITTED at commit_ts then, or without an anchor, the
    keys as by RESOLVE, in the same entry. left: keys that still wait for a RESOLVE. status 0: not
    looked at, send COMMIT.
    """

    ends: Annotated[list[Any], anything, Touches.ENDS]


@_query(20)
class ScanValues(_Scan):
    """→ [value, …], resume | None. SCAN for who wants all rows and knows their keys from their
    values: the values alone. through: [[transaction, version], …] of committed ones whose chunks
    it may read through (kv/mvcc/scan_through_intents.py); counted: as of SCAN.
    """

    through: Through = ()
    counted: Flag = False
    applied: Applied = 0


@_query(21, shown={"read_ts": "upto"})
class Pairs(Request):
    """→ [[key, value | None = was deleted, version, old value | None], …], cursor | None (form 0).
    Versions in (above, upto], a frontier that CHANGES returned, with what they replaced
    (kv/feed/version_pairs.py); form 1: the versions alone, 2: records as they are stored
    (kv/feed/slices.py).
    """

    start: Start
    end: RangeBound
    upto: Fresh
    limit: FeedRows
    above: Timestamp
    form: Annotated[int, integer(0, 2)]
    bytes_max: FeedBytes
    cursor: Cursor


@_query(22)
class Parts(Request):
    """→ [key, …], bytes. Where the range would be cut into so many parts of about the same size,
    and its size: estimates.
    """

    start: Start
    end: RangeBound
    parts: Annotated[int, integer(1, RANGE_PARTS_MAX)]


@_write(23, fresh=True, in_reply=_VERSION)
class WriteRows(Request):
    """→ version. WRITE of many puts without times to live; keys rise; option absent: none may be
    there. Its anchor is the first key.
    """

    keys: RowKeys
    values: Unchecked
    start_ts: Timestamp
    flags: Flags
    options: Options = None


@_query(24)
class ScanSealed(_Scan):
    """→ [lengths, rows], resume | None. SCAN for who reads whole tables and looks at the records
    itself: key, record, key, record, … in one piece, as they are stored (kv/mvcc/scan.py), and the
    length of each, 4 bytes little-endian. `reverse` is false, `read_ts` not 0.
    """

    applied: Applied = 0


@_write(25, repeat=Repeat.AGAIN, rises=True, fills=True)
class Ingest(Request):
    """→ how many were put. Puts of rows that were made from what a snapshot at `at` shows, as of
    that time: a key with a newer version keeps it. unique: all or none, and refused where a key
    says something else (kv/mvcc/ingest.py).
    """

    keys: RowKeys
    values: Unchecked
    at: Fresh
    unique: Flag


@_query(26)
class Held(Request):
    """→ [ttl_ms, user] | nil: what the intent or guard of this transaction at the key says."""

    key: Key
    start_ts: Fresh
    anchor: OtherKey


@_query(27)
class Mark(Request):
    """→ read_ts, applied. At the leader, of the partition of `key`: whoever has applied so much of
    its log has every version at or below this timestamp, or an intent in its place. `read_ts` is
    0: the leader takes a fresh one, after the request came.
    """

    key: Key
    read_ts: Timestamp


GET: Final = Get.number
PUT: Final = Put.number
DELETE: Final = Delete.number
WRITE: Final = Write.number
MGET: Final = Mget.number
SCAN: Final = Scan.number
CHANGES: Final = Changes.number
AWAIT_CHANGES: Final = AwaitChanges.number
READ_NOW: Final = ReadNow.number
PREWRITE: Final = Prewrite.number
COMMIT: Final = Commit.number
ROLLBACK: Final = Rollback.number
CHECK: Final = Check.number
RESOLVE: Final = Resolve.number
HEARTBEAT: Final = Heartbeat.number
PREWRITE_ROWS: Final = PrewriteRows.number
RECOVER: Final = Recover.number
SETTLE: Final = Settle.number
FINISH: Final = Finish.number
SCAN_VALUES: Final = ScanValues.number
PAIRS: Final = Pairs.number
PARTS: Final = Parts.number
WRITE_ROWS: Final = WriteRows.number
SCAN_SEALED: Final = ScanSealed.number
INGEST: Final = Ingest.number
HELD: Final = Held.number
MARK: Final = Mark.number

PARTITION_VERBS: Final = tuple(VERBS)
# What a full disk keeps out. Finishing what was begun (COMMIT, RESOLVE, …) needs little and frees.
NEW_WRITES: Final = frozenset(one.number for one in PARTITION_VERBS if one.fills)
NEEDS_TIMESTAMP: Final = frozenset(one.number for one in PARTITION_VERBS if one.fresh)
# Commands that write versions. None is evaluated while a request for timestamps is out: versions
# must rise in the order of evaluation, and a commit that was resolved meanwhile, or a snapshot of
# which entries are written, would be younger than the timestamps that are on their way.
RISING: Final = frozenset(one.number for one in PARTITION_VERBS if one.rises)
# Answered from the applied state; the others go through the log.
READS: Final = frozenset(one.number for one in PARTITION_VERBS if one.action is Action.READ)
FRESH_READS: Final = frozenset({READ_NOW, MARK})  # they take a timestamp along, if they name none
RANGES: Final = frozenset(one.number for one in PARTITION_VERBS if one.touches is Touches.RANGE)

# ----------------------------------------------------------------------------------- node methods


@_served(64)
class Ping(Request):
    """→ node_id"""


@_query(65, on=Subject(Kind.TABLE, "key", "the key"))
class Lookup(Request):
    """→ descriptor (list), [host, port] of the leader (["", 0] = the node that was asked), the
    leader's node id (0 = nobody leads it as far as this node knows).
    """

    key: Bound


@_served(66, master=True, in_reply={"start_ts": 0})
class Tso(Request):
    """→ first. `above`: with hybrid clocks, what the caller was told of; an oracle's lie above it,
    or it was never given out.
    """

    count: TsoCount
    above: Timestamp = 0


@_query(67, on=CLUSTER)
class Stats(Request):
    """→ map of counters"""


@verb(119, by=Caller.CLIENT, action=Action.NODE, on=CLUSTER)
class Prove(Request):
    """→ true. The first request of a node's connection: `kv.base.rpc.node_proof` of the server's
    hello. From then on it may give the orders that only nodes may give; without it those are
    FORBIDDEN.
    """

    proof: Annotated[bytes, octets(32, 32)]


PROVE: Final = Prove.number


@_served(68, shown={"txn": "start_ts"})
class FindTxn(Request):
    """→ anchor | None among this node's partitions, [ids of those that it leads], [ids of those
    that it does not lead], [[host, port] of every other node], and at the meta partition's leader
    the ids of the partitions that need not be at a majority of the nodes. None counts only for
    those that it leads.
    """

    start_ts: Timestamp


@_served(88)
class Places(Request):
    """→ [[node, host, port, datacenter, rack, machine], …]: the nodes with data, as far as this one
    knows; "" is not said.
    """


@verb(132, by=Caller.MASTER, action=Action.NODE, on=CLUSTER)
class SplitPoint(Request):
    """→ key | None. Where its leader would cut it (kv/replica/cutting.py)."""

    partition: Partition
    how: Annotated[str, one_of("middle", "load", "end")]


PING: Final = Ping.number
LOOKUP: Final = Lookup.number
TSO: Final = Tso.number
STATS: Final = Stats.number
FIND_TXN: Final = FindTxn.number
PLACES: Final = Places.number
SPLIT_POINT: Final = SplitPoint.number
