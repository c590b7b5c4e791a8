"""What every figure of /metrics is: one table, by the name that its layer gives it.

Names are `kvorum_<layer>_<figure>`, units last, `_total` behind what only rises (Prometheus'
conventions). A figure `name.thing` of a layer is one metric `name` with a label for the thing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kv.base import methods


class Figure(NamedTuple):
    """One metric. A gauge may fall, others only rise; `label` names what stands behind the dot."""

    help: str
    gauge: bool = False
    label: str = ""


_METHODS: Final = (
    "GET PUT DELETE WRITE MGET SCAN PREWRITE PREWRITE_ROWS COMMIT ROLLBACK CHECK RESOLVE HEARTBEAT "
    "CHANGES AWAIT_CHANGES READ_NOW SCAN_VALUES SCAN_SEALED PAIRS PARTS WRITE_ROWS INGEST "
    "RECOVER SETTLE FINISH "
    "PING LOOKUP TSO STATS FIND_TXN SAFEPOINT PROC_SUBMIT PROC_GET PROC_LIST PROC_ACK PROC_ABORT "
    "SINK_BEGIN SINK_STAGE SINK_SEAL SINK_COMMIT SINK_ABORT SINK_PLACE LINKS CREATE_PARTITION "
    "DROP_PARTITION "
    "CAMPAIGN JOIN CHANGE_REPLICAS REPLICA_STATUS STANDING HOLDS_TXN FORCE_MEMBERS "
    "WAITS REFUSE_WAIT "
    "SNAPSHOT_OPEN SNAPSHOT_RENEW SNAPSHOT_RELEASE SNAPSHOT_LIST COLLECT_BELOW "
    "OLDEST_INTENT ANCHORED TSO_RELAYED END_TXN BEAT BEAT_NOW SPLIT_POINT "
    "REPORTS CHECK_REPLICA RAISE_SAFEPOINT BUS_ORDERS BUS_REPORTS "
    "WORK_ENTER WORK_POLL WORK_LEAVE WORK_LIST PROC_CONTROL "
    "PROC_SUBMIT_MORE LOCK_BEAT LOCK_END "
    "SPLIT_PARTITION FREEZE_PARTITION THAW_PARTITION CAUGHT_UP MERGE_PARTITION SETTLE_PARTITION"
)
METHOD_NAMES: Final = {str(getattr(methods, name)): name for name in _METHODS.split()}

FIGURES: Final = {
    "rpc_requests": Figure("Requests of the native protocol, embedded ones too.", label="method"),
    "rpc_errors": Figure("Refusals by the dispatcher, before any partition.", label="code"),
    "rpc_internal_errors": Figure("Requests, callbacks, passes that met a bug; see the log."),
    "rpc_handlers": Figure("Node methods being worked on.", gauge=True),
    "rpc_connections": Figure("Native connections that are open.", gauge=True),
    "rpc_connections_total": Figure("Native connections ever accepted."),
    "rpc_connections_refused": Figure("Native connections refused: too many."),
    "rpc_protocol_errors": Figure("Native connections closed for what they sent."),
    "rpc_frames_in": Figure("Frames received; one carries up to thousands of requests."),
    "rpc_writes": Figure("Writes to sockets; one carries all replies of a pass of the loop."),
    "rpc_bytes_in": Figure("Bytes received by the native protocol."),
    "rpc_bytes_out": Figure("Bytes sent by the native protocol."),
    "rpc_pauses": Figure("Times a connection was not read for a while: it owed too much."),
    "raft_syncs": Figure("Syncs of the log; one makes entries of all partitions durable."),
    "raft_entries_appended": Figure("Log entries written."),
    "raft_bytes_appended": Figure("Bytes of log entries written."),
    "raft_entries_applied": Figure("Log entries applied to the state DB."),
    "raft_entries_replayed": Figure("Of those, replayed from the log at the start."),
    "raft_disk_reads": Figure("Reads of log entries that were no longer in memory."),
    "raft_logs_reset": Figure("Logs dropped because a snapshot replaced them."),
    "raft_bytes_resent": Figure("Bytes of entries sent to a follower again: they seemed lost."),
    "raft_appends_parked": Figure("Appends that overtook others and waited for them."),
    "raft_snapshots_sent": Figure("Snapshots that a follower has installed."),
    "raft_snapshots_installed": Figure("Snapshots installed here."),
    "raft_snapshots_failed": Figure("Snapshots that could not begin or go on; they are repeated."),
    "raft_snapshot_bytes_sent": Figure("Bytes of snapshots sent."),
    "raft_snapshot_bytes_resent": Figure("Of those, again: they seemed lost."),
    "raft_elections_won": Figure("Elections won."),
    "raft_messages_dropped": Figure("Raft messages refused: stale, unknown, or of strangers."),
    "raft_fatal_errors": Figure("Failures that stopped the node."),
    "raft_callback_errors": Figure("Callbacks behind a sync that met a bug; the log has each."),
    "partition_reads": Figure("Reads evaluated by all partitions."),
    "partition_writes": Figure("Writes evaluated by all partitions."),
    "partition_entries": Figure("Log entries sealed; writes per entry is the group commit."),
    "partition_refused": Figure("Requests refused: conditions, conflicts, limits."),
    "partition_waited": Figure("Reads that waited for a version in flight."),
    "partition_drains": Figure("Passes over a partition's queue."),
    "partition_waiting": Figure("Requests queued and not evaluated yet.", True, "partition"),
    "partition_intents": Figure("Keys with an intent of an open transaction.", True, "partition"),
    "partition_live_bytes": Figure("Keys and newest values.", True, "partition"),
    "partition_leader": Figure("1 where this node leads and serves.", True, "partition"),
    "partition_term": Figure("The Raft term.", True, "partition"),
    "partition_lag": Figure(
        "At the leader: entries that its slowest member lacks. Elsewhere: entries not applied yet.",
        True, "partition",
    ),
    "partition_applied_index": Figure("The last log entry applied.", True, "partition"),
    "client_lookups": Figure("Questions of this node's own client where a key lives."),
    "client_refreshes": Figure("Locations that proved wrong: a leader changed, a range moved."),
    "client_retries": Figure("Attempts that it repeated."),
    "replica_opened": Figure("Partitions opened since the start."),
    "replica_dropped": Figure("Partitions dropped since the start."),
    "replica_snapshots_made": Figure("Snapshots of a partition read for a follower."),
    "replica_snapshots_installed": Figure("Partitions replaced by a snapshot."),
    "replica_truncations": Figure("Times a partition's log was cut."),
    "waits_waiting": Figure("Writes that wait for another transaction now.", gauge=True),
    "waits_parked": Figure("Writes that ever had to wait for another transaction."),
    "waits_timed_out": Figure("Of those, refused because their time was over."),
    "waits_deadlocks": Figure("Of those, refused as the victim of a deadlock."),
    "waits_pushed": Figure("Intents ended here for those who waited: their coordinator was gone."),
    "heartbeat_beats_sent": Figure("Beats of this node that the master took."),
    "heartbeat_beats_failed": Figure("Beats that it did not take: it was gone, or another one."),
    "heartbeat_sections_left_out": Figure("Parts of beats that failed; the others went."),
    "heartbeat_beats_taken": Figure("At the master: beats of nodes."),
    "heartbeat_beats_overtaken": Figure("At the master: beats that came after later ones."),
    "heartbeat_nodes": Figure("At the master: nodes by how it hears them.", True, "health"),
    "bus_operations": Figure("At the master: operations of many nodes that are under way.", True),
    "bus_pushed": Figure("At the master: messages with orders that arrived."),
    "bus_lost": Figure("At the master: messages with orders that got no answer; they go again."),
    "bus_begun": Figure("Orders of the bus that this node has begun to carry out."),
    "tso_last_timestamp": Figure("The last timestamp handed out (ms << 18 | counter).", True),
    "tso_requests": Figure("Requests for timestamps."),
    "tso_handed_out": Figure("Timestamps handed out."),
    "tso_waits": Figure("Times a partition here asked another node for timestamps."),
    "tso_raises": Figure("Times the durable bound of timestamps was raised."),
    "gc_safepoint": Figure("At the master: versions superseded up to it may be collected.", True),
    "gc_snapshots": Figure("At the master: snapshots that are held.", True),
    "gc_snapshots_granted": Figure("Snapshots that were taken."),
    "gc_snapshots_ended": Figure("Snapshots whose owner was silent for too long."),
    "gc_rounds": Figure("Looks for garbage."),
    "gc_walks": Figure("Times the old versions of a partition were walked."),
    "gc_removed": Figure("Rows collected: old versions, expired records, delete marks, outcomes."),
    "gc_compactions": Figure("Ranges of files rewritten because much in them was deleted."),
    "gc_compaction_flushes": Figure("Flushes because of delete marks in memory."),
    "gc_compaction_read_bytes": Figure("Bytes of files that were read to be rewritten."),
    "storage_memtable_bytes": Figure("State DB: rows in memory that await a file.", True),
    "storage_file_bytes": Figure("State DB: live files.", True),
    "storage_cache_bytes": Figure("State DB: block cache in use.", True),
    "storage_keys_estimated": Figure("State DB: rows of all families, estimated.", True),
    "storage_compaction_pending_bytes": Figure("State DB: to be compacted.", True),
    "storage_disk_free_bytes": Figure("Free on the data directory's disk.", True),
    "sql_processes": Figure("SQL processes that serve (`sql_processes`).", gauge=True),
    "sql_processes_restarted": Figure("SQL processes that ended and were started again."),
    "sql_clients": Figure("Clients of the SQL processes.", gauge=True),
    "procedure_live": Figure("Procedures that have not ended.", True),
    "procedure_workers": Figure("Procedures whose steps may run at once.", True),
    "procedure_stuck": Figure("Steps that run longer than their deadline.", True),
    "procedure_hands": Figure("Worker processes that are here.", True),
    "procedure_taken_back": Figure("Procedures taken from workers that were silent."),
    "procedure_early": Figure("First steps that were committed with their submission."),
    "procedure_early_dropped": Figure("… that were run early and are run again as usual."),
    "procedure_commits": Figure("Transactions of steps and undos."),
    "procedure_handed": Figure("… that gave their locks to the next procedure, too."),
    "procedure_retries": Figure("Attempts of steps and undos that will be repeated."),
    "audit_written": Figure("Requests written to the log of stamps."),
    "audit_lost": Figure("Requests that are not in it: its buffer, or the disk, was full."),
    "audit_waiting": Figure("Requests that wait to be written to it.", True),
    "http_transactions_open": Figure("Transactions that HTTP clients hold open.", True),
    "http_watches_open": Figure("Watches that HTTP clients hold open.", True),
}  # fmt: skip
