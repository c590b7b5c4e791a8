"""The native protocol's methods: their numbers and arguments. The bytes are in
docs/reference/rpc.md.

A frame is `[u32 LE length][msgpack]`. The first frame of each side is a hello, `["kvorum-rpc",
VERSION, {…}]`. Then a frame holds a list of requests `[rid, method, budget_ms, *args]` or of
replies `[rid, 0, *result]` / `[rid, 1, *error]` (`kv.base.errors.to_wire`). Replies come in any
order. `budget_ms` is the time the caller still waits, 0 = the default.

Methods below NODE_METHODS go to a partition; their arguments begin with `partition_id, epoch` of
the caller's location cache; a mismatch is answered MOVED with the descriptor that serves now.
Timestamps are plain integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PROTOCOL: Final = "kvorum-rpc"
VERSION: Final = 1

# -- partition methods. `read_ts` 0 = the newest acknowledged; `ignore` = start_ts of intents known
#    to commit above read_ts, or None; `cond` 0 = absent, else the version it must have, or None

# key, read_ts, ignore → value|None, version (0 if there is none)
GET: Final = 1
# key, value, cond, ttl_ms → version
PUT: Final = 2
# key, cond → version
DELETE: Final = 3
# ops, start_ts, flags[, options] → version. One atomic entry; start_ts 0 = no transaction id.
# options: kv/partition/options.py
WRITE: Final = 4
# keys, read_ts, ignore[, counted] → [[value, version] | None, …]; if `counted` is true also how
# many records it looked at
MGET: Final = 5
# start, end, read_ts, limit, reverse, ignore[, expiries[, counted]] → [[key, value, version], …],
# resume | None; if `expiries` is true also [[place in the page, expire_ms], …] of those that will
# expire; if `counted` is true also how many records it looked at: newest ones, older ones, deleted
SCAN: Final = 6
# start, end, read_ts, limit, above, closed, bytes_max, cursor | None → [[key, value | None = was
# deleted, version, expire_ms | 0], …], frontier, cursor | None, mark, resolved, large. Versions in
# (above, frontier] (kv/feed/changes.py)
CHANGES: Final = 7
# start, end, mark, wait_ms → mark. Answered when something may be new since `mark`, or in time
AWAIT_CHANGES: Final = 8
# keys, 0, ignore → [[value, version] | None, …], read_ts. MGET at a fresh timestamp, which the
# leader takes after the request came, for this reader alone: a transaction may begin with it
READ_NOW: Final = 9
# start_ts, anchor, ttl_ms, ops, flags[, options] → min_commit_ts; with option fence also: whether
# that bound lies in the intents and, at the anchor, the record is STAGING; with options reads or
# ranges also: that, the timestamp below which they hold (0 = all), how many ranges are not wholly
# guarded yet (ask again). Then there may be no ops
PREWRITE: Final = 10
# start_ts, anchor, ttl_ms, keys, values[, options] → min_commit_ts. Puts (value None: delete) of
# many rows as one chunk intent, blind if not checked (option), or to be new (option absent); keys
# rise, the anchor is prewritten before and not among them. Keys and values may be packed
# (kv/mvcc/packed.py)
PREWRITE_ROWS: Final = 16
# anchor, start_ts, commit_ts[, options] → status, commit_ts, min_commit_ts. The status flip; option
# beside: [[anchor, start_ts], …] of this partition that are flipped with it, all or none
COMMIT: Final = 11
# anchor, start_ts[, options] → status, commit_ts. A STAGING one stays unless option own says that
# its coordinator asks
ROLLBACK: Final = 12
# anchor, start_ts, push_above, ttl_ms → status, commit_ts, min_commit_ts, age_ms, owner; of a
# STAGING one also its parts: [[key, …], …]
CHECK: Final = 13
# start_ts, commit_ts (0 = rolled back), keys → intents and guards resolved, keys left. A chunk
# intent is resolved whole, and few chunks at once: ask again while keys are left. A guard is named
# by the key where it begins
RESOLVE: Final = 14
# anchor, start_ts[, options] → status. With option ttl_ms it lives at least so long from now on. A
# STAGING one becomes PENDING: its coordinator waits for something, and will flip
HEARTBEAT: Final = 15
# start_ts, anchor, keys, fence → whether all of them have an intent with a bound, the highest
# bound. If they have, or with fence in any case, they are closed to late prewrites
RECOVER: Final = 17
# anchor, start_ts, commit_ts (0 = rolled back) → status, commit_ts. Ends a STAGING one, after
# RECOVER of all its parts
SETTLE: Final = 18
# [[start_ts, anchor | None, commit_ts, keys], …] → [[status, left], …]. The ends of transactions
# that are committed by their intents, or flipped elsewhere: with an anchor the flip as by COMMIT,
# and only if the record says COMMITTED at commit_ts then, or without an anchor, the keys as by
# RESOLVE, in the same entry. left: keys that still wait for a RESOLVE. status 0: not looked at,
# send COMMIT
FINISH: Final = 19
# start, end, read_ts, limit, reverse, ignore[, through[, counted]] → [value, …], resume | None.
# SCAN for who wants all rows and knows their keys from their values: the values alone. through:
# [start_ts, version] of committed transactions whose chunks it may read through
# (kv/mvcc/through.py); counted: as of SCAN
SCAN_VALUES: Final = 20
# start, end, upto, limit, above, form, bytes_max, cursor | None → [[key, value | None = was
# deleted, version, old value | None], …], cursor | None (form 0). Versions in (above, upto], a
# frontier that CHANGES told, with what they replaced (kv/feed/pairs.py); form 1: the versions
# alone, 2: records as they are stored (kv/feed/slices.py)
PAIRS: Final = 21
# start, end, parts → [key, …], bytes. Where the range would be cut into so many parts of about the
# same size, and its size: estimates
PARTS: Final = 22
# keys, values, start_ts, flags[, options] → version. WRITE of many puts without times to live; keys
# rise; option absent: none may be there. Its anchor is the first key
WRITE_ROWS: Final = 23
# start, end, read_ts, limit, reverse (false), ignore → [lengths, rows], resume | None. SCAN for who
# reads whole tables and looks at the records itself: key, record, key, record, … in one piece, as
# they are stored (kv/mvcc/scan.py), and the length of each, 4 bytes little-endian
SCAN_SEALED: Final = 24
# keys, values, at, unique → how many were put. Puts of rows that were made from what a snapshot at
# `at` shows, as of that time: a key with a newer version keeps it. unique: all or none, and refused
# where a key says something else (kv/mvcc/ingest.py)
INGEST: Final = 25

# What a full disk keeps out. Finishing what was begun (COMMIT, RESOLVE, …) needs little and frees.
NEW_WRITES: Final = frozenset({PUT, DELETE, WRITE, WRITE_ROWS, PREWRITE, PREWRITE_ROWS, INGEST})

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
OP_READ: Final = 4  # never on the wire: a read of a serializable transaction (txn/readset)
OP_TOMBSTONE: Final = 5  # a delete that leaves its tombstone even where nothing is (kv/mvcc/ingest)

# -- node methods
NODE_METHODS: Final = 64
# → node_id
PING: Final = 64
# key → descriptor (list), [host, port] of the leader (["", 0] = the node that was asked), the
# leader's node id (0 = nobody leads it as far as this node knows)
LOOKUP: Final = 65
# count → first
TSO: Final = 66
# → map of counters
STATS: Final = 67
# start_ts → anchor | None among this node's partitions, [ids of those that it leads], [ids of those
# that it does not lead], [[host, port] of every other node], and at the meta partition's leader the
# ids of the partitions that need not be at a majority of the nodes. None counts only for those that
# it leads
FIND_TXN: Final = 68
# → the safepoint: reads below it are refused
SAFEPOINT: Final = 69
# name, args (msgpack bytes), owner, nonce | None → id [, map (ProcedureInfo) of one that has ended]
PROC_SUBMIT: Final = 70
# id, wait_ms → map (ProcedureInfo), as msgpack bytes
PROC_GET: Final = 71
# {state?, owner?, name?, limit?, before?} → [map as msgpack bytes, …]
PROC_LIST: Final = 72
# id → true. The result was fetched: forget it
PROC_ACK: Final = 73
# id, reason, dry_run → true
PROC_ABORT: Final = 74
# attempt, table_id, lease_ms → state. Opens the attempt or renews its lease
SINK_BEGIN: Final = 80
# attempt, table_id, part, task, seq, chunk → true. Opens the attempt if it is new
SINK_STAGE: Final = 81
# attempt, table_id, part, task, chunks, rows, crc, last_chunk | None[, txns, placed] → true. txns:
# [[start_ts, bound], …] of the transactions under which the task laid so many rows in place
SINK_SEAL: Final = 82
# {attempt, table, app, version, query, manifest, inline?, twice?, fresh?, replace?, reset?, early?}
# → procedure id (0 = committed). What the rows mean: procedures/sink/format/sink_parts.py
SINK_COMMIT: Final = 83
# attempt → state
SINK_ABORT: Final = 84
# attempt, table_id, part, task, start_ts → whether the task may lay rows in place, in the table
# itself, under a transaction that began at start_ts (procedures/sink/placed_rows.py)
SINK_PLACE: Final = 85

# cuts | None → cuts. Fault injection: what this node neither hears nor speaks to from now on, raft
# and clients of its own alike; None only asks. A cut is a node id, or [node id, "in" | "out"]: it
# does not hear that node, or is not heard by it. Refused without the setting fault_injection
LINKS: Final = 90
# [descriptor, …] → true. Make and open this node's replicas; those that exist stay as they are
CREATE_PARTITION: Final = 92
# [partition id, …] → true. Remove this node's replicas with their data; those that are gone stay so
DROP_PARTITION: Final = 93
# [partition id, …] → true. Ask for the leadership of those that nobody leads: they are new
CAMPAIGN: Final = 91
# address HOST:BASE, version, token, proof (kvorum/cluster/joining.py) → node id, cluster id,
# [[node id, address], …]. Take a new node in; the same address gets the same id again
JOIN: Final = 94
# partition, change ("learner", "promote", "demote", "witness", "remove", "transfer"), node → index
# of the new configuration (0: nothing had to be changed). At the partition's leader; others
# NOT_LEADER
CHANGE_REPLICAS: Final = 95
# partition ids | None = all → [row of GroupView, …], of this node's replicas
REPLICA_STATUS: Final = 98
# → map: this node, its version, and how each of its replicas stands
# (kvorum/cluster/replica_status.py)
STANDING: Final = 96
# txn → [host, port] of this node's HTTP API if the transaction is open in it, else ["", 0]
HOLDS_TXN: Final = 97

# [voter, …], reason, ticket | b"", proof → [row of Plan, …], ticket. An operator's last resort
# (kvorum/cluster/force_members.py): survivors become the only voters of what has lost its majority.
# Without a ticket only the plan is told
FORCE_MEMBERS: Final = 99

# people → [Wait as list, …], [Held as list, …], whether there is more (kv/base/waits.py). What
# waits at this node and what its leaders hold: false = only waits of transactions that may hold
# something; true = a transaction's keys folded where nobody waits; "all" = a row for each key
WAITS: Final = 100
# node, source, id, holder (Wait.edge), error (to_wire) → whether it was. End a wait with an error
REFUSE_WAIT: Final = 101

# at (0 = now), owner, ttl_ms → id, at. Hold a snapshot: what a reader of `at` sees is not collected
# until it is released or nobody renews it for ttl_ms (tso/leases.py)
SNAPSHOT_OPEN: Final = 110
# id → at
SNAPSHOT_RENEW: Final = 111
# id → whether it was held
SNAPSHOT_RELEASE: Final = 112
# → [[id, at, owner, ttl_ms, age_ms, left_ms], …], oldest first, the safepoint
SNAPSHOT_LIST: Final = 113
# → the cluster's safepoint, durable: what is superseded at or below it may be collected
COLLECT_BELOW: Final = 114
# → the smallest start_ts of any intent among this node's replicas (0: none), [ids of the partitions
# that it leads]
OLDEST_INTENT: Final = 115
# start, end → [[start_ts, anchor, ttl_ms, [key, …]], …], [partition id, …]. Closes the range, which
# is to be dropped, to new writes at this node. Intents and guards in the partitions that it leads:
# outside of the range, or at the record, of transactions with their record in it; in the range, of
# others; and the partitions of the range that it leads, whose log says that they are closed, and in
# which nothing is on its way
ANCHORED: Final = 116

# count → first. TSO, which this node asks the meta partition's leader in the caller's stead: in one
# attempt, begun after it was asked (tso/detour.py)
TSO_RELAYED: Final = 117

# partition, key, id of the new one → [descriptor, descriptor of the new one]. At the leader: split
# it in place (kv/partition/shapes.py); if that has been done, the same answer
SPLIT_PARTITION: Final = 120
# partition → index, term. At the leader: let nobody be served from here on, until it is merged into
# another one or thawed
FREEZE_PARTITION: Final = 122
# partition → true. At the leader: serve again
THAW_PARTITION: Final = 123
# partition, index → true. At any replica: it has applied that, durably
CAUGHT_UP: Final = 124
# partition, epoch, descriptor of the one above, index, term, [node, …] → descriptor. At the leader:
# take that one in, which is frozen at (index, term) and applied so far at these nodes, all that
# have data; if that has been done, the same answer
MERGE_PARTITION: Final = 125
# partition, epoch → descriptor. At the leader: nothing that was ordered for this epoch can happen
# any more, unless it has happened
SETTLE_PARTITION: Final = 126

# node, boot, number, {section: bytes} → reign, {section: bytes}. What a node tells the master about
# every second, and what the master answers (kvorum/cluster/heartbeat.py)
BEAT: Final = 130
# node → true. The master asks for a beat at once: it has just begun, or has something to tell
BEAT_NOW: Final = 131
# partition, how ("middle", "load", "end") → key | None. Where its leader would cut it
# (kv/replica/cutting.py)
SPLIT_POINT: Final = 132
# → map: what the master knows of nodes and replicas from their beats
# (procedures/master/map/reports.py)
REPORTS: Final = 133
# partition, start, end, at, rows → digest, rows, resume | None, [key, …], [key, …].
# What this node's replica has of a part of a partition (kvorum/transfer/digest.py)
CHECK_REPLICA: Final = 134
# [partition, …], safepoint → [partition, …]. Nothing below is read any more in those that this node
# leads (kvorum/transfer/raise_safepoint.py)
RAISE_SAFEPOINT: Final = 135

# procedure, wait_ms → "waiting" | "held" | "ended", fencing token (0 unless held). A holder of a
# lock, or one who waits for it, is alive (procedures/engine/lock_procedure.py)
LOCK_BEAT: Final = 150
# procedure → true. The lock is given back
LOCK_END: Final = 151

# [order, …] → [report, …] (procedures/bus/messages.py). What the master wants of this node
BUS_ORDERS: Final = 160
# target, [report, …] → [order, …]. What became of orders; answered with those that wait for the
# target
BUS_REPORTS: Final = 161

# txn → whether it was open in this node's process (over HTTP, say), which has aborted it then
END_TXN: Final = 118

# -- workers of users' pools and what users do with running procedures (procedures/pools/)
# worker, registration (msgpack bytes) → epoch, [id that it must drop, …], types (msgpack bytes)
WORK_ENTER: Final = 170
# worker, epoch, seq, seen, again, wait_ms, said (msgpack bytes) → orders (msgpack bytes). What is
# said with one `seq` is taken once; orders above `seen` are kept, and told again if asked
WORK_POLL: Final = 171
# worker, epoch → true. It holds nothing any more and leaves
WORK_LEAVE: Final = 173
# → [map as msgpack bytes, …] workers, the same of pools
WORK_LIST: Final = 174
# what, arguments (msgpack bytes) → msgpack bytes. What users do with running procedures, queues and
# schedules (procedures/pools/control.py)
PROC_CONTROL: Final = 175
# name, args (msgpack bytes), owner, nonce | None, options (map) → id. PROC_SUBMIT with more said
PROC_SUBMIT_MORE: Final = 179

# served by the leader of the meta partition alone; others answer NOT_LEADER with its address
MASTER_METHODS: Final = frozenset(
    {TSO, PROC_SUBMIT, PROC_GET, PROC_LIST, PROC_ACK, PROC_ABORT, SINK_COMMIT, JOIN, BEAT}
    | {REPORTS}
    | {SNAPSHOT_OPEN, SNAPSHOT_RENEW, SNAPSHOT_RELEASE, SNAPSHOT_LIST, COLLECT_BELOW}
    | {BUS_REPORTS, LOCK_BEAT, LOCK_END}
    | {WORK_ENTER, WORK_POLL, WORK_LEAVE, WORK_LIST, PROC_CONTROL}
    | {PROC_SUBMIT_MORE}
)

# methods that may be sent again after a lost connection: reads, and writes whose id makes them
# idempotent
REPEATABLE: Final = frozenset(
    {GET, MGET, SCAN, PREWRITE, PREWRITE_ROWS, INGEST, COMMIT, ROLLBACK, CHECK, RESOLVE, HEARTBEAT}
    | {CHANGES, AWAIT_CHANGES, READ_NOW, SCAN_VALUES, SCAN_SEALED, PAIRS, PARTS}
    | {RECOVER, SETTLE, FINISH}
    | {WORK_ENTER, WORK_POLL, WORK_LEAVE, WORK_LIST, PROC_CONTROL}
    | {PING, LOOKUP, TSO}
    | {LOCK_BEAT, LOCK_END}
    | {STATS, FIND_TXN, SAFEPOINT, PROC_GET, PROC_LIST, PROC_ACK, PROC_ABORT, LINKS}
    | {SINK_BEGIN, SINK_STAGE, SINK_SEAL, SINK_COMMIT, SINK_ABORT, SINK_PLACE}
    | {STANDING, HOLDS_TXN, CREATE_PARTITION, DROP_PARTITION, CAMPAIGN, JOIN}
    | {CHANGE_REPLICAS, REPLICA_STATUS, WAITS, REFUSE_WAIT}
    # a snapshot whose answer was lost expires
    | {SNAPSHOT_OPEN, SNAPSHOT_RENEW, SNAPSHOT_RELEASE, SNAPSHOT_LIST, COLLECT_BELOW}
    | {OLDEST_INTENT, ANCHORED, TSO_RELAYED, END_TXN, BEAT, BEAT_NOW}
    | {SPLIT_PARTITION, FREEZE_PARTITION, THAW_PARTITION, CAUGHT_UP, MERGE_PARTITION}
    | {SETTLE_PARTITION}
)
# those of them whose lost reply leaves nothing in doubt: reads, and what only moves a transaction
# on that others decided
QUERIES: Final = frozenset(
    {GET, MGET, SCAN, CHECK, RESOLVE, HEARTBEAT, PING, LOOKUP, TSO, STATS, FIND_TXN, SAFEPOINT}
    | {CHANGES, AWAIT_CHANGES, READ_NOW, SCAN_VALUES, SCAN_SEALED, PAIRS, PARTS}
    | {RECOVER, SETTLE, FINISH}
    | {WORK_ENTER, WORK_POLL, WORK_LEAVE, WORK_LIST}
    | {LOCK_BEAT, LOCK_END}
    | {PROC_GET, PROC_LIST, PROC_ACK, STANDING, HOLDS_TXN, REPLICA_STATUS, WAITS, REFUSE_WAIT}
    | {SNAPSHOT_OPEN, SNAPSHOT_RENEW, SNAPSHOT_RELEASE, SNAPSHOT_LIST, COLLECT_BELOW}
    | {OLDEST_INTENT, ANCHORED, TSO_RELAYED, END_TXN, BEAT, BEAT_NOW}
)
assert QUERIES <= REPEATABLE
_PROC_QUESTIONS: Final = frozenset({"schedule.list", "queue.list", "audit.list", "explain", "live"})


def asks(method: int, args: Sequence[object]) -> bool:
    """Whether a lost reply to this request leaves nothing in doubt."""
    return method in QUERIES or (
        method == PROC_CONTROL and len(args) > 0 and args[0] in _PROC_QUESTIONS
    )


def repeatable(method: int, args: Sequence[object]) -> bool:
    """Whether this request may be sent again after a lost reply: a submission with a nonce, too."""
    may_have_one = method in (PROC_SUBMIT, PROC_SUBMIT_MORE)
    has_nonce = may_have_one and len(args) > 3 and args[3] is not None
    return has_nonce or method in REPEATABLE
