"""Every bound of the product, with the relations between them asserted. docs/limits.md lists them
for users.

Units are the last word of a name. Nothing in Kvorum grows without a bound from here.
"""

from __future__ import annotations

from typing import Final

KiB: Final = 1024
MiB: Final = 1024 * KiB

# -- data
KEY_BYTES_MAX: Final = 4 * KiB  # user key, without the table prefix
VALUE_BYTES_MAX: Final = 4 * MiB
NAME_CHARS_MAX: Final = 64  # namespaces, tables, procedures
BATCH_OPS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 16 * MiB
MULTI_KEYS_MAX: Final = 10_000
MULTI_GET_BYTES_MAX: Final = 24 * MiB  # of values that one partition returns at once
SCAN_ROWS_MAX: Final = 10_000  # per page
SCAN_PAGE_BYTES_MAX: Final = 4 * MiB
SCAN_STEP_ROWS_MAX: Final = 1_000  # rows looked at in one synchronous step of the loop …
SCAN_SEALED_ROWS_MAX: Final = 2_000  # … or copied only
RANGE_PARTS_MAX: Final = 256  # into which one PARTS would cut a range of a partition
TTL_MS_MAX: Final = 10 * 365 * 86_400_000
SPLIT_KEYS_MAX: Final = 1_000
COLUMNS_MAX: Final = 1_000
PRIMARY_KEY_COLUMNS_MAX: Final = 32
INDEXES_MAX: Final = 64  # per table; each is a key range with partitions of its own
INDEX_COLUMNS_MAX: Final = 32  # with those of INCLUDE
CHECKS_MAX: Final = 256  # per table
ENUM_LABELS_MAX: Final = 500  # of a type; all of them stand in each column of it
FOREIGN_KEYS_MAX: Final = 64  # per table
REPLICAS_MAX: Final = 9
STORES_MAX: Final = 64  # node processes of one machine
SQL_PROCESSES_MAX: Final = 64  # of one node
TAGS_MAX: Final = 16
SHARDS_MAX: Final = 16  # storage shards beside the default one (kv.base.shards) …
SHARDS_HELD_MAX: Final = 32  # … with those that nobody is in since the node started; …
SHARD_CACHE_BYTES: Final = 16 * MiB  # … what each keeps of its files in memory, …
SHARD_MOVE_BYTES_PER_S: Final = 32 * MiB  # … and how fast a replica moves to another one
TABLES_MAX: Final = 10_000  # per namespace
NAMESPACES_MAX: Final = 1_000

# -- transactions
TXN_TTL_MS_DEFAULT: Final = 5_000
TXN_TTL_MS_SAID_MIN: Final = 1_000  # less is not believed of somebody else's transaction
TXN_TTL_MS_MAX: Final = 600_000
TXN_LIFETIME_MS_MAX: Final = 3_600_000
# how long a finished transaction's outcome is answered after its end
TXN_STATUS_RETENTION_MS: Final = 86_400_000
TXN_BUFFER_BYTES_MAX: Final = 4096 * MiB  # keys and values that one transaction writes …
TXN_KEYS_MAX: Final = 4_000_000  # … and how many keys; what does not fit in memory is spilled …
TXN_SPILL_BYTES: Final = 32 * MiB  # … to a temporary file of the client above so much at once
# a commit of so many keys, which no entry holds, is streamed in chunks of intents
TXN_STREAM_KEYS_MIN: Final = BATCH_OPS_MAX + 1
TXN_MEMORY_BYTES_MAX: Final = 256 * MiB  # of one that is not spilled (serializable, procedures) …
TXN_MEMORY_KEYS_MAX: Final = 1_000_000  # … and its keys
SPILL_BLOCK_BYTES: Final = 64 * KiB  # that are read of such a file at once
LARGE_IN_FLIGHT_MAX: Final = 4  # requests of the commit of a spilled transaction
LOAD_IN_FLIGHT_MAX: Final = 4  # requests of rows that are loaded as one transaction
LOAD_YIELDS_MS: Final = 30_000  # so long its cleaning leaves others four fifths of the time …
LOAD_REST_MS_MAX: Final = 1_000  # … by rests of up to so much between two chunks, …
LOAD_SCANS_LOOK_MS: Final = 50  # … and all of it to scans that ask for pages within so long
LOOP_LOOK_MS: Final = 2  # so long work that can wait looks whether others use the loop
PREWRITE_KEYS_MAX: Final = 2_000  # per request; a larger part is sent in several
PREWRITE_BYTES_MAX: Final = 4 * MiB
RESOLVE_CHUNK_ROWS: Final = 2_000  # no further chunk intent is begun in a request after so many
RESOLVE_BYTES: Final = 4 * MiB  # … and no further intent after so much, with what it replaces
PREWRITES_IN_FLIGHT_MAX: Final = 16  # requests of one transaction
BULK_PIECES_IN_FLIGHT_MAX: Final = 2  # one is made while the disk has the other
PARALLEL_PARTS_MAX: Final = 16  # a transaction of more is committed in two phases …
PARALLEL_KEYS_MAX: Final = 256  # … and one of more keys: its record lists them all
PARALLEL_KEY_BYTES_MAX: Final = 64 * KiB  # … or of more bytes of keys
ENDS_MAX: Final = 256  # committed transactions that one FINISH ends at a partition …
ENDS_KEYS_MAX: Final = 4_096  # … and their keys
UNSTAGE_MS: Final = 100  # a coordinator whose prewrites take longer goes on in two phases
FLIPS_MAX: Final = 8  # tries to write down what the intents say already; then others do it
RECOVERY_GRACE_MS: Final = 300  # others leave a parallel commit to its coordinator for so long
SCAN_ATTEMPTS_MAX: Final = 32  # of a page, by who reads all rows, while dead intents are cleared
READS_IN_FLIGHT_MAX: Final = 64  # partitions that one multi_get asks at once
COMMITS_IN_FLIGHT_MAX: Final = 1_024  # two-phase, of one client, cleaning included
RESOLVES_IN_FLIGHT_MAX: Final = 2_048  # of one client; above it a reader leaves an intent be
TXN_READS_MAX: Final = 100_000  # keys and ranges that a serializable transaction remembers …
TXN_LOCKS_MAX: Final = 100_000  # keys that a transaction locks before its commit
SQL_LOCKED_KEYS_MAX: Final = 20_000  # that changes of a block at READ COMMITTED lock
TXN_READ_BYTES_MAX: Final = 16 * MiB  # … and their bytes
GUARD_ROWS: Final = 10_000  # of its ranges that one request looks at …
GUARD_BYTES: Final = 8 * MiB  # … or so many bytes of them; the next one goes on there
GUARDS_HELD_MAX: Final = 200_000  # keys and ranges of a partition that are guarded at once
MULTI_WRITE_IN_FLIGHT_MAX: Final = 1_024  # single writes of one non-atomic batch
LOCK_WAIT_MS_FIRST: Final = 4  # a writer looks again at a living intent after this, doubling …
LOCK_WAIT_MS_MAX: Final = 200  # … up to this: what an abandoned intent blocks beyond its ttl
WAITERS_PER_KEY_MAX: Final = 2_000  # writes that wait for one key; above it: BUSY …
WAITERS_MAX: Final = 10_000  # … and of one partition …
WAITERS_BYTES_MAX: Final = 64 * MiB  # … with their requests
LOCK_WAIT_SHARE: Final = 0.9  # of a request's time may go by in a queue, to be answered in time
LOCK_WAIT_MARGIN_MS: Final = 1_000  # … but never more than this is kept for the answer
WAIT_PUSH_MS: Final = 30  # a holder is asked about after it was waited for so long, then at …
WAIT_PUSH_MS_MAX: Final = 200  # … growing distances up to this: what a dead one blocks beyond ttl
PUSHES_IN_FLIGHT_MAX: Final = 32  # holders that a node asks about at once
DEADLOCK_AFTER_MS: Final = 100  # waits are looked through for a circle after so long, then at …
DEADLOCK_AGAIN_MS_MAX: Final = 1_000  # … growing distances up to this
DEADLOCK_WAITS_MAX: Final = 10_000  # that a node tells of, longest first, to those who look
CYCLE_SHOWN_MAX: Final = 16  # transactions of a circle that an error names
LOCKS_REPORTED_MAX: Final = 1_000  # waits, and intents, that one node tells of, oldest first
RETRY_WAIT_MS_FIRST: Final = 2  # the same for requests that were refused for now …
RETRY_WAIT_MS_MAX: Final = 500  # … and for functions that run again
REROUTE_WAIT_MS_MAX: Final = 100  # … and for those that look for a leader
RUN_ATTEMPTS_DEFAULT: Final = 32  # of one `run(fn)`
SWEEP_INTERVAL_MS: Final = 1_000  # between two looks for intents that nobody meets …
SWEEP_PAUSE_MS: Final = 20  # … or so much while most of what is found is abandoned …
SWEEP_INTENTS_MAX: Final = 1_000  # … each at so many, of a node
SETTLE_KEYS_MAX: Final = 10_000  # that a node tells of at once, anchored in a table that goes away
SETTLE_MS_MAX: Final = 10_000  # that dropping a table waits for transactions anchored in it
SWEEPS_IN_FLIGHT_MAX: Final = 32  # transactions that one look asks about at once
IGNORED_TXNS_MAX: Final = 1_000  # intents that one read may step over
THROUGH_TXNS_MAX: Final = 8  # committed loads whose chunks of intents a scan reads through
THROUGH_MS: Final = 60_000  # so long since it met one of them; then it has to meet another
THROUGH_CHUNKS_MAX: Final = 4  # … of one page: each is unpacked as a whole
OPEN_CHUNKS_MAX: Final = 16  # packed chunks whose keys a process remembers one by one …
OPEN_CHUNK_BYTES_MAX: Final = 512 * KiB  # … of at most so many bytes of keys
OUTCOMES_CACHED_MAX: Final = 10_000  # of transactions that a client met
BULK_TTL_MS: Final = 30_000  # of a streamed transaction, kept alive by heartbeats
COMMITS_BESIDE_MAX: Final = 20_000  # transactions that are committed with another one, in one entry
BULK_PART_BUDGET_MS: Final = 60_000  # for one part of it, waits for others' intents included
INTERACTIVE_TXNS_MAX: Final = 10_000  # open at one node through HTTP

# -- change feed
FEED_RECENT_BYTES_MAX: Final = 64 * MiB  # recent entries that a node keeps for watchers
FEED_WAITERS_MAX: Final = 10_000  # that wait for changes of one partition; more ask again at once
FEED_INTENTS_LOOKED_MAX: Final = 2_000  # at more intents of a partition it is looked now and then
FEED_ROWS_MAX: Final = 4_000  # that one watcher holds, of all partitions …
FEED_BYTES_MAX: Final = 4 * MiB  # … and their bytes; a larger transaction is sent in parts
FEED_SPILL_BYTES_MAX: Final = 1024 * MiB  # what it found beyond that waits in a temporary file
FEED_PART_ROWS_MAX: Final = 1_000  # of one part of an event …
FEED_PART_BYTES_MAX: Final = 1 * MiB  # … and its bytes, but for the last row
FEED_LEGS_IN_FLIGHT_MAX: Final = 32  # partitions that one watcher asks at once
REPLICA_WAIT_MS: Final = 250  # a read at a replica waits so long for the log
REPLICA_ANSWER_MS: Final = 2_000  # … and its reader so long for it, before the leader is asked
REPLICA_REST_MS: Final = 5_000  # a replica that is gone is not asked for so long
REPLICA_AGE_MS: Final = 3_000  # reads so far in the past go to replicas
SITES_REST_MS: Final = 10_000  # between two looks where the nodes are
FEED_PAUSE_MS: Final = 5  # between two looks of one watcher
FEED_HEARTBEAT_MS: Final = 5_000  # how often an idle watcher gets its position
FEED_AWAITS_MAX: Final = 16  # partitions that tell one watcher of news; with more of them …
FEED_POLL_MS: Final = 250  # … it looks so often
WATCHERS_MAX: Final = 250  # of one node, through HTTP

# -- wire
FRAME_BYTES_MAX: Final = 32 * MiB
REQUESTS_PER_FRAME_MAX: Final = 4_096
IN_FLIGHT_PER_CONNECTION_MAX: Final = 8_192
LIST_ITEMS_MAX: Final = 65_536  # of any list or map in a message
MESSAGE_WEIGHT_MAX: Final = 750_000  # values in a message of a client: what decoding it costs …
CONTAINER_WEIGHT: Final = 10  # … where a list or a map counts as so many
WEIGHED_BYTES_MIN: Final = 4 * KiB  # shorter messages are not looked at
TENANT_WAITING_MAX: Final = 1_000  # HTTP requests of a user that wait for turns; above it: BUSY
SETTINGS_ROWS_MAX: Final = 5_000  # of the cluster, those of single users and namespaces too
TURN_MS: Final = 2  # after so long a connection that has sent more leaves the loop to others
TURN_REQUESTS_MAX: Final = 64  # … which is looked at after so many requests
# what clients make one process hold: parts of messages, bodies worked on, answers that are not read
CLIENT_BYTES_MAX: Final = 512 * MiB
CLIENT_SMALL_BYTES: Final = 64 * KiB  # messages up to here, and answers, are not counted there
MESSAGE_MS_MAX: Final = 20_000  # a client that stops in the middle of a message is closed …
MESSAGE_BYTES_PER_S_MIN: Final = 16 * KiB  # … or sends less of it than so many in a second …
MESSAGE_BYTES_PER_S_FULL: Final = 1 * MiB  # … or so many, while half of CLIENT_BYTES_MAX is used
CONNECTIONS_MAX: Final = 10_000
HELLO_MS_MAX: Final = 10_000  # a connection that said nothing until then is closed
HELLO_BYTES_MAX: Final = 4 * KiB  # the first frame of a connection
# replies expected by one connection; above it: it is not read for a while
REPLY_WINDOW_BYTES: Final = 64 * MiB
STALL_MS_MAX: Final = 60_000  # a connection whose peer reads nothing for so long is closed
HANDLERS_MAX: Final = 10_000  # asynchronous handlers running at one node; above it: BUSY
# a client gives a connection up that owes replies and says nothing for so long
SILENCE_MS_MAX: Final = 6_000
PING_MS: Final = 1_000  # it asks after so long, and turns to other nodes soon after that
CONNECT_MS_MAX: Final = 1_500  # a node that does not answer a connection so long is passed over …
CONNECT_REST_MS: Final = 50  # … and not tried again for so long
ADDRESSES_MAX: Final = 64  # of nodes that a client learnt of
LOCATIONS_MAX: Final = 100_000  # partitions in a client's location cache
HTTP_BODY_BYTES_MAX: Final = 24 * MiB
HTTP_HEAD_BYTES_MAX: Final = 128 * KiB  # URL and headers of one request

# -- SQL over PostgreSQL's protocol
SQL_CONNECTIONS_MAX: Final = 10_000
SQL_HTTP_STATEMENTS_MAX: Final = 32  # over HTTP, at once; each in a session of its own …
SQL_HTTP_STATEMENTS_OF_USER_MAX: Final = 8  # … of these for one user
SQL_HTTP_NOTICES_BYTES_MAX: Final = 64 * KiB  # … of which so much is told
SQL_HTTP_ROWS_MAX: Final = 1_000  # … of whose answer so many rows …
SQL_HTTP_ANSWER_BYTES_MAX: Final = 4 * MiB  # … or bytes are told
SQL_HTTP_TIMEOUT_MS_MAX: Final = 60_000
SQL_STARTUP_MS_MAX: Final = 10_000  # a client that has not logged in until then is closed
SQL_STARTUP_BYTES_MAX: Final = 10_000  # its first packet
SQL_MESSAGE_BYTES_MAX: Final = 32 * MiB  # a statement with its values, a piece of a COPY
SQL_SMALL_MESSAGE_BYTES_MAX: Final = 10_000  # of messages that carry names only
SQL_LARGE_BYTES: Final = MiB  # messages above it share SQL_INPUT_BYTES_MAX
SQL_INPUT_BYTES_MAX: Final = 512 * MiB  # of large messages that come in at a node at once
SQL_READ_AHEAD_BYTES: Final = 256 * KiB  # of messages after the one that is worked on
SQL_OUTPUT_BYTES: Final = 256 * KiB  # of replies; then the statement waits for its client
SQL_FETCH_ROWS: Final = 1_000  # that are asked of a statement at once
SQL_ENCODE_ROWS: Final = 128  # rows that are encoded before the bytes are looked at
SQL_COPY_BATCH_BYTES: Final = 256 * KiB  # of COPY FROM STDIN that are handed on at once …
SQL_COPY_SLICE_BYTES: Final = 32 * KiB  # … and so many read before others have the loop
SQL_STATEMENTS_MAX: Final = 10_000  # prepared by one client
SQL_PORTALS_MAX: Final = 1_000  # open in one transaction
SQL_ERROR_FIELD_CHARS_MAX: Final = 16 * KiB  # of each part of an error
SQL_MESSAGE_MS_MAX: Final = 60_000  # a client that stops in the middle of a message is closed
SQL_LINGER_MS: Final = 2_000  # who is hung up on while it sends may read the reason for so long
SQL_CANCEL_MS_MAX: Final = 5_000  # a statement of a client that is gone is given so long to end
DEADLINE_MS_DEFAULT: Final = 10_000
DEADLINE_MS_MAX: Final = 120_000

# -- log and queues
ENTRY_BYTES_MAX: Final = 32 * MiB
RESHAPE_BYTES_MAX: Final = 16 * MiB
"""Of intents and guards that lie on both sides of the key of a split: each is written anew."""
ENTRY_TARGET_BYTES: Final = MiB  # an open entry is sealed above this
# a leader that was deposed waits so long to hear what became of its last entry; then it is unknown
UNSETTLED_MS: Final = 300
# so often a damaged replica hands over a leadership that comes back; then it answers as it can
DAMAGED_RETURNS_MAX: Final = 6
DAMAGED_REPORTED_MAX: Final = 100  # replicas with damage, in one beat to the master
QUEUE_REQUESTS_MAX: Final = 50_000  # per partition; above it: BUSY
QUEUE_BYTES_MAX: Final = 128 * MiB
LOG_RECENT_BYTES_MAX: Final = 64 * MiB  # entries kept in memory, per node
SUPERSEDED_BYTES_MAX: Final = 64 * MiB  # old versions that one entry moves; above it: two phases
SHIP_OLD_BYTES_MAX: Final = 512  # longer old versions are not in the entry: replicas have them
LOCK_INLINE_BYTES_MAX: Final = 1 * KiB  # intents keep up to this of their value in memory
DRAIN_REQUESTS_MAX: Final = 2_048  # of one partition in one synchronous step of the loop
RECORDED_TXNS_MAX: Final = 16_384  # ids of transactions with a record that a leader remembers
OPEN_TXNS_MAX: Final = 1_024  # … and, of each of its partitions, so many records of open ones …
OPEN_TXN_KEYS_MAX: Final = 16  # … that name at most so many keys
KNOWN_RECORDS_MAX: Final = 512  # newest records of a partition that were read and may be replaced …
KNOWN_RECORD_BYTES_MAX: Final = 1 * KiB  # … of at most so many bytes
FEW_KEYS: Final = 4  # of a multi-get that are read one by one
EXPRESS_SLICE_S: Final = 0.000_1  # between two looks for requests for timestamps in a long drain
DRAIN_REPLY_BYTES: Final = 16 * MiB  # of reads, of all partitions in one pass of the loop …
DRAIN_REPLY_BYTES_MIN: Final = 1 * MiB  # … where each may answer so much in any case
DRAIN_ROWS_MAX: Final = 10_000  # that its scans and multi-gets may look at in such a step
LOG_KEEP_ENTRIES: Final = 2_000  # after the applied ones, of one partition …
LOG_KEEP_BYTES: Final = 64 * MiB  # … and not many more bytes than this, up to twice as many
LOG_ALONE_BYTES: Final = 16 * MiB  # of a log that no other node is sent, before all of it is cut
ROOM_CHECK_BYTES: Final = 4 * MiB  # of log entries, after which the free space is looked at again
SNAPSHOT_BLOCK_ROWS_MAX: Final = 1_000  # that one step of the loop reads, or installs
SNAPSHOT_LOOK_ROWS_MAX: Final = 2_000  # the same, of the collector's queue, which partitions share
SNAPSHOT_FILES_BYTES_MIN: Final = 32 * MiB  # of rows, from which they come in as files
SNAPSHOT_FILE_BYTES: Final = 32 * MiB  # of one of them …
SNAPSHOT_FILE_SYNC_BYTES: Final = 4 * MiB  # … after which what was written to it goes to the disk
DISK_FREE_BYTES_MIN: Final = 128 * MiB  # below it writes are refused at the door; reads go on
DISK_FREE_BYTES_LAST: Final = 32 * MiB  # … and deletions and drops, which free space, below this

# -- cluster
FIRST_NODES_MAX: Final = 9  # that a cluster begins with; more join later
NODES_MAX: Final = 1_000
SECRET_CHARS_MIN: Final = 16  # of what nodes prove to each other …
SECRET_CHARS_MAX: Final = 1_024
JOIN_MS_MAX: Final = 60_000  # how long a new node asks the members to take it in
TRANSFER_MS_MAX: Final = 3_000  # how long a stopping node hands its leaderships over
MEMBERSHIP_PAUSE_MS: Final = 200  # between two looks at a replica that must catch up or hand over
MEMBERSHIP_MOVES_MAX: Final = 64  # replicas that one procedure moves at once
SPLIT_FOLLOW_LOOK_MS: Final = 20  # before the second look at who has applied a split; then longer
SPLIT_FOLLOW_LOOKS: Final = 50  # for a majority of the nodes with data, where witnesses could do
NEWBORN_WAIT_MS: Final = 500  # that requests wait where a partition was split off, for its leader
MERGE_FREEZE_MS_MAX: Final = 5_000  # that clients of the upper partition wait for a merge
MERGE_LAG_MAX: Final = 64  # entries that a replica may lack when the partition is frozen for it
MERGE_LOOK_MS: Final = 20  # between two looks whether all have caught up …
MERGE_MEET_LOOKS_MAX: Final = 300  # … and how many there are before the merge is given up
RESHAPE_CALL_MS: Final = 10_000  # for an order to split, freeze or merge a partition
MEMBERSHIP_CALL_MS: Final = 5_000  # for one question or order to another node
RECONCILE_S: Final = 5.0  # between two comparisons of a node's replicas with the map
RECONCILE_AGAIN_S: Final = 0.5  # after one that failed, or that must be confirmed
RECONCILE_LOOKS_MIN: Final = 2  # of the map in a row that must miss a replica before it goes
BALANCE_PAUSE_S: Final = 2.0  # between two transfers of leaderships to where they belong
SCHEDULE_PAUSE_S: Final = 5.0  # between two looks of the balancer, and of the placement
SCHEDULE_QUIET_S: Final = 60.0  # … while nothing changes that the master hears of by itself
SCHEDULE_QUIET_UNITS: Final = 50.0  # traffic per second of a partition below which it is idle
BALANCE_COOLDOWN_S: Final = 30.0  # a partition that was moved stays so long
BALANCE_KEPT: Final = 200  # decisions that a master remembers to explain
EXPLAIN_MAX: Final = 1_000  # moves and refusals in one answer
BALANCE_LAG_MAX: Final = 256  # entries that the preferred leader may lack

# -- heartbeats
BEAT_MS: Final = 1_000  # between two beats of a node to the master …
BEAT_GAP_MS: Final = 20  # … or so soon, when something is urgent …
BEAT_AGAIN_MS: Final = 100  # … or after one that the master did not answer
BEAT_BUDGET_MS: Final = 1_500  # how long one waits for its answer
BEAT_SECTIONS_MAX: Final = 32  # named parts of a beat …
BEAT_SECTION_BYTES_MAX: Final = 512 * KiB  # … the bytes of one of them; more goes with the next
SUSPECT_MS: Final = 4_000  # a node that was silent for so long is suspect …
DEAD_AFTER_MS_MIN: Final = 5_000
DEAD_AFTER_MS_DEFAULT: Final = 300_000  # … and for so long is dead: its replicas are made elsewhere

# -- statistics of partitions
PARTITION_BYTES_MAX_DEFAULT: Final = 64 * MiB  # of keys and newest values; above it: it is split …
PARTITION_BYTES_MAX_MIN: Final = 64 * KiB  # … the least that may be set …
PARTITION_BYTES_MAX_MAX: Final = 1024 * 1024 * MiB  # … and the most
PARTITION_LOAD_MIN_DEFAULT: Final = 2_000  # traffic units per second below which load splits none
DECIDE_PAUSE_S: Final = 3.0  # between two looks of the master at what to split and merge
SIZE_POINTS_MAX: Final = 256  # keys that say where a partition's bytes lie …
SIZE_RECORD_BYTES_MAX: Final = 64 * KiB  # … and what of them is stored
HOT_KEYS_MAX: Final = 32  # keys whose requests are counted, of a partition …
HOT_KEYS_REPORTED_MAX: Final = 5  # … and how many of them are reported, the hottest
REPORT_ROWS_MAX: Final = 1_000  # replicas of which one beat tells; the rest goes with the next
LOAD_KEYS_MAX: Final = 128  # recent keys that say where the requests of a partition go

# -- oracle
TSO_COUNT_MAX: Final = 100_000
TSO_PATIENCE_MS: Final = 3_000  # a partition waits so long for timestamps of another node
TSO_DIRECT_MS: Final = 500  # an oracle that is silent for so long is asked through other nodes …
TSO_RELAYS_MAX: Final = 8  # … this many at once
TSO_CUT_OFF_MS: Final = 1_500  # who needs them for so long hands its leaderships to them
TSO_AHEAD_MS: Final = 6_000  # the durable bound is raised to now + this …
TSO_RAISE_BELOW_MS: Final = 3_000  # … when less than this is left

# -- hybrid clocks (tso/hybrid.py)
CLOCK_OFFSET_MS_MAX: Final = 250  # between any two nodes' clocks; a timestamp further ahead waits
CLOCK_FENCE_MS: Final = 125  # a node whose clock is off by more stops (half a round trip counts)
CLOCK_LEAP_MS: Final = 100  # by which wall and monotonic clock may part between two looks
CLOCK_HANDOVER_MS: Final = 2 * CLOCK_OFFSET_MS_MAX  # what a new leader leaves free: see there
CLOCK_COMPARE_MS: Final = 1_000  # between two comparisons with the other nodes
CLOCK_ANSWER_MS: Final = 500  # a comparison waits so long for a node
CLOCK_COMPARED_MS: Final = 5_000  # one that is older counts no more
CLOCK_FAR_MS: Final = 60_000  # a timestamp further ahead is a mistake, not a fast clock

# -- garbage collection
GC_RETENTION_MS_DEFAULT: Final = 600_000  # versions younger than this stay readable
GC_STEP_ROWS_MAX: Final = 500  # of one partition in one synchronous step of the loop …
GC_PAUSE_MS: Final = 5  # … and the node's collector rests so long after each
CARE_MARKS_MIN: Final = 500  # delete marks (and old versions) for which files are rewritten …
CARE_MARKS_SHARE: Final = 4  # … where every fourth row of a file, or of a family, is one
CARE_MEMORY_MARKS_MAX: Final = 100_000  # marks in memory that are flushed however much there is
CARE_SPACE_RATIO: Final = 2  # files may hold so many times what is counted in their range …
CARE_SPACE_SLACK_BYTES: Final = 16 * MiB  # … and so much more
CARE_PIECE_BYTES_MAX: Final = 128 * MiB  # of files that one rewriting reads, where it can be cut
CARE_BYTES_PER_S: Final = 32 * MiB  # read by rewriting, on the average
CARE_SPARED_LOOKS: Final = 20  # what a rewriting did not help is left alone for so many looks
COMPACTION_BYTES_MAX: Final = 512 * MiB  # that RocksDB reads in one compaction, where it can be cut
LEASES_MAX: Final = 1_000  # snapshots held at once
LEASE_TTL_MS_DEFAULT: Final = 30_000  # one whose owner is silent for so long ends …
LEASE_TTL_MS_MAX: Final = 600_000
LEASE_LIFETIME_MS_MAX: Final = 86_400_000  # … and every one after this: it holds all garbage back
OWNER_CHARS_MAX: Final = 100  # of who holds a snapshot
AUDIT_BUFFER_RECORDS_MAX: Final = 100_000  # stamps that wait to be written; more are counted …
AUDIT_BUFFER_BYTES_MAX: Final = 32 * MiB  # … and the bytes of their keys, where keys are logged
AUDIT_KEYS_SHOWN_MAX: Final = 100  # of one request; and tables
AUDIT_TEXT_CHARS_MAX: Final = 300  # of one text in the log of stamps; of longer ones the beginning
AUDIT_WRITE_MS: Final = 200  # between two writes of the log of stamps
AUDIT_FILES_MAX: Final = 1_000  # older files that may be kept

# -- procedures
PROCEDURE_ARGS_BYTES_MAX: Final = 1 * MiB
PROCEDURE_STATE_BYTES_MAX: Final = 1 * MiB
PROCEDURE_CHILDREN_MAX: Final = 10_000
PROCEDURE_RETENTION_MS_DEFAULT: Final = 3_600_000
NONCE_CHARS_MAX: Final = 200
REASON_CHARS_MAX: Final = 1_000  # why somebody aborts something
PROCEDURES_LIVE_MAX: Final = 200_000  # not yet ended, per executor; above it: BUSY …
PROCEDURES_OWN_MAX: Final = 1_000  # … but for so many of the database's own (splits, moves, DDL)
PROCEDURE_FAMILY_LIVE_MAX: Final = 1_000_000  # with children; a step that wants more fails
PROCEDURE_RECORD_CACHED_BYTES_MAX: Final = 4 * KiB  # a larger record is read again before its step
PROCEDURE_WORKERS_DEFAULT: Final = 64  # procedures whose step may be under way at once
PROCEDURE_WORKERS_MAX: Final = 1_024
PROCEDURE_THREADS_DEFAULT: Final = 16  # for steps that are plain (not async) methods
PROCEDURE_STEPS_PER_TURN_MAX: Final = 64  # then the procedure goes to the tail of the queue
PROCEDURE_HISTORY_INLINE_MAX: Final = 32  # step entries in the record itself …
PROCEDURE_HISTORY_CHUNK: Final = 16  # … of which the oldest so many move to a row of their own
PROCEDURE_HISTORY_SHOWN_MAX: Final = 512  # newest entries that a reader gets
PROCEDURE_HISTORY_KEPT: Final = 1_024  # … and that are kept, beside those in the record
PROCEDURE_UNDO_ENTRIES_MAX: Final = 10_000  # finished steps that could still be undone
PROCEDURE_ROUNDS_MAX: Final = 1_000  # rounds of children of one procedure
PROCEDURE_CALLS_MAX: Final = 1_000  # calls of one round of a workflow
PROCEDURE_ANY_MAX: Final = 64  # … of which one is waited for
PROCEDURE_LOCKS_MAX: Final = 1_024  # declared by one procedure
LOCK_RESOURCE_CHARS_MAX: Final = 256  # of the name of what is locked
LOCK_TTL_MS_DEFAULT: Final = 10_000  # a lock of code outside whose holder is silent so long ends
LOCK_TTL_MS_MIN: Final = 500
LOCK_TTL_MS_MAX: Final = 3_600_000
LOCK_RETENTION_MS: Final = 60_000  # how long it is remembered that such a lock has ended
ADVISORY_TTL_MS: Final = 10_000  # an advisory lock of a proxy that is silent so long ends …
ADVISORY_BEAT_MS: Final = 3_000  # … and so often it is heard of
ADVISORY_BEATS_MAX: Final = 16  # at once, of one proxy
ADVISORY_LOCKS_MAX: Final = 1_000  # of one session
# procedures without a cluster (procedures/wal)
WAL_ROLL_BYTES: Final = 16 * MiB  # a log that has so many gets no more frames …
WAL_ROLL_MS: Final = 3_600_000  # … nor one that is so old
WAL_LOGS_MAX: Final = 8  # beside what twice the live bytes fill; above it sleepers are written anew
WAL_FRAME_BYTES: Final = 4 * MiB  # of records, after which a frame gets no more
WAL_RECORD_BYTES_MAX: Final = 64 * MiB  # one change: records, children and rows of one step
WAL_FORCED_CELLS: Final = 1_000  # sleepers written anew by one record
WAL_ROWS_BYTES_MAX: Final = 64 * MiB  # rows of steps, all in memory
WAL_FREE_BYTES_MIN: Final = 256 * MiB  # free on the disk, or no new procedures
PROCEDURE_ID_BLOCK: Final = 1_000  # ids reserved by one write
PROCEDURE_PAGE_MAX: Final = 1_000  # records per page of a list, a resume or a clean-up
PROCEDURE_LIST_DEFAULT: Final = 100
PROCEDURE_LOOKED_MAX: Final = 2_000  # records that a master looks at for one page of a list …
PROCEDURE_PASSED_MAX: Final = 20_000  # … and reads and passes over: its reader may not see them
# a step that failed for the moment: first pause, doubled each time …
PROCEDURE_RETRY_MS_FIRST: Final = 10
PROCEDURE_RETRY_MS_MAX: Final = 10_000  # … up to this
# the wall clock is looked at least this often while something is due
PROCEDURE_ATTEMPTS_MAX: Final = 1_000_000  # of one step, by its retry policy …
PROCEDURE_NEVER_MAX: Final = 100  # … errors that the policy excludes
PROCEDURE_CONFLICT_MS_MAX: Final = 500  # … and up to this where somebody else is in the way
PROCEDURE_TXN_TTL_MS: Final = 1_000  # of a step's commit: how long a dead executor blocks the next
PROCEDURE_TIMER_MS_MAX: Final = 1_000
PROCEDURE_TIMEOUT_MS_MAX: Final = 365 * 86_400_000
PROCEDURE_STOP_MS: Final = 5_000  # how long a stopping executor lets running steps end
PROCEDURE_UNDO_MS_MIN: Final = 5_000  # for a last run of an undo whose time is over
PROCEDURE_STUCK_MS: Final = 60_000  # a step without a deadline that runs longer is stuck …
PROCEDURE_RESULTS_MAX: Final = 256  # results that came unasked and nobody waited for yet
PROCEDURE_EARLY_MS: Final = 25  # how long a first step that runs early may delay its submission
PROCEDURE_EARLY_APART_MS: Final = 250  # … with its wait for a turn in a process for steps
PROCEDURE_EARLY_REST_MS_FIRST: Final = 10_000  # a type that took longer runs the usual way so long
PROCEDURE_EARLY_REST_MS_MAX: Final = 600_000  # … and each time for twice as long, up to this
PROCEDURE_DEATHS_MAX: Final = 3  # so often a step may end its process; then it is set aside
STEP_PROCESSES_MAX: Final = 8  # that steps share, beside a node or a worker …
STEP_PROCESSES_ALONE_MAX: Final = 16  # … and that run one alone, which has ended one before …
STEP_PROCESSES_ALONE_NEW_MAX: Final = 4  # … of them so many that began less than …
STEP_PROCESS_ALONE_NEW_MS: Final = 5_000  # … so long ago: long ones must not keep others waiting
STEP_PROCESS_SILENT_MS: Final = 2_000  # one that is held up for so long gets nothing new …
STEP_PROCESS_BEAT_MS: Final = 400  # … else it speaks so often
PROCEDURE_LOOK_MS: Final = 2_000  # for a lock rule or a check of arguments, which must be quick
STEP_PROCESS_GRACE_MS: Final = 2_000  # for a step to end after its deadline, and those beside it
PROCEDURE_STUCK_HIRED_MAX: Final = 64  # … and for each of so many one more worker is hired
PROCEDURE_PRIORITY_MAX: Final = 100
PROCEDURE_CONCURRENT_MAX: Final = 1_000_000
PROCEDURE_RATE_MAX: Final = 1_000_000
PROCEDURE_VERSIONS_MAX: Final = 100  # older ones that one declaration accepts
PROCEDURE_SIGNALS_MAX: Final = 1_000  # sent to one procedure and not taken yet
PROCEDURE_SIGNAL_BYTES_MAX: Final = 256 * KiB
PROCEDURE_KEYS_KEPT: Final = 2_000  # of signals and updates of one procedure, the newest ones
PROCEDURE_KEYS_DROPPED: Final = 8  # older ones that one more key removes, at most
HTTP_LEASE_MS: Final = 10_000  # a worker that speaks HTTP is silent for so long: it has lost all
HTTP_WORKERS_MAX: Final = 256  # of them at one node …
HTTP_WORKERS_OF_USER_MAX: Final = 128  # … of one user
PROCEDURE_HEARTBEAT_MS_MIN: Final = 100  # that a step may declare
PROCEDURE_HEARTBEAT_BYTES_MAX: Final = 16 * KiB  # of its details
PROCEDURE_HEARTBEAT_WRITE_MS: Final = 1_000  # between two writes of what one run says
PROCEDURE_HEARTBEAT_TELL_MS: Final = 100  # … and between two messages of a process for steps
PROCEDURE_HEARTS_MAX: Final = 32  # steps of one execution that say something
PROCEDURE_ROW_KEY_BYTES_MAX: Final = 100  # of a row that a workflow waits for
PROCEDURE_EVENTS_KEPT: Final = 10_000  # of what one procedure emits, the newest ones
PROCEDURE_EVENTS_EMITTED_MAX: Final = 1_000  # by one step
PROCEDURE_EVENT_BYTES_MAX: Final = 16 * KiB
PROCEDURE_EVENTS_PAGE_MAX: Final = 1_000  # that one answer has
PROCEDURE_EVENTS_WAIT_MS: Final = 30_000  # for the next one, before it is asked for again
PROCEDURE_TALKS_REMEMBERED: Final = 10_000  # procedures whose signals a master need not count
PROCEDURE_PROGRESS_CHARS_MAX: Final = 200
SURGERY_GRACE_MS: Final = 2_000  # how long an abort or a bypass lets a step under way end by itself
SURGERY_TREE_MAX: Final = 10_000  # procedures that are bypassed by one transaction
SURGERY_REASON_CHARS_MAX: Final = 500
AUDIT_ROWS_MAX: Final = 10_000  # actions that are remembered …
AUDIT_RETENTION_MS: Final = 90 * 86_400_000  # … for so long
AUDIT_PROCEDURES_NAMED_MAX: Final = 50  # of one action, with their states before and after
BULK_ACTION_LEFT_MAX: Final = 200  # procedures that one bulk action tries again after the others …
BULK_ACTION_ROUNDS_MAX: Final = 5  # … so many times, …
BULK_ACTION_PAUSE_MS: Final = 1_000  # … the first time after so long, then twice as long each time

# -- workers of users' pools
WORKER_LEASE_MS: Final = 2_000  # one that is silent for so long has lost its procedures …
WORKER_BEAT_MS: Final = 400  # … it speaks at least so often
WORKER_SILENT_MS_FIRST: Final = 2_000  # what was under way at a silent one twice pauses so long …
WORKER_SILENT_MS_MAX: Final = 60_000  # … and up to this: perhaps it silences its workers
WORKER_GONE_MS: Final = 500  # … or, if it ended its connection, for so long
WORKER_POLL_MS: Final = 300  # how long the master keeps a worker's question
WORKER_SLOTS_DEFAULT: Final = 64  # procedures that one worker runs at once
WORKER_SLOTS_MAX: Final = 1_024
WORKERS_MAX: Final = 1_000  # of all pools …
WORKERS_OF_USER_MAX: Final = 800  # … of one user
WORKER_TYPES_MAX: Final = 1_000  # that one worker declares
VERSIONS_BY_CODE_KEPT: Final = 10  # of a type, the newest; older ones while somebody needs them
WORKER_DECLARATIONS_BYTES_MAX: Final = 1 * MiB
WORKER_TYPE_BYTES_MAX: Final = 64 * KiB  # of one version of a type, with all steps that it ever had
TYPES_KNOWN_MAX: Final = 20_000  # versions of types that workers have declared, …
TYPES_KNOWN_BYTES_MAX: Final = 8 * MiB  # … and what they are described by: each worker is told
TYPES_OF_USER_MAX: Final = 10_000  # of them those of one user …
TYPES_OF_USER_BYTES_MAX: Final = 4 * MiB
WORKER_BATCH_MAX: Final = 256  # procedures of one answer, reports of one message …
WORKER_BATCH_BYTES: Final = 1 * MiB  # … which end when they have so many bytes
WORKER_ASK_MS: Final = 1_000  # how long a submission waits for a worker's look at its arguments
WORKER_QUERY_MS: Final = 4_000  # … and a query for its answer: a process may have to start first
WORKER_RESOURCES_MAX: Final = 32  # that one worker has, or one procedure needs
QUEUES_MAX: Final = 10_000
ATTRIBUTES_MAX: Final = 20  # that one type declares
ATTRIBUTE_CHARS_MAX: Final = 256  # of a text, or of one keyword
ATTRIBUTE_KEYWORDS_MAX: Final = 20
SEARCH_CONDITIONS_MAX: Final = 20  # on attributes
SEARCH_NAMES_MAX: Final = 100  # types of one search
SEARCH_SORTED_MAX: Final = 10_000  # procedures that a condition on a range alone may have
SEARCH_COUNT_MAX: Final = 100_000  # procedures up to which a count goes
FIGURES_QUEUES_MAX: Final = 500  # in /metrics, those where most wait
RETENTION_RULES_MAX: Final = 1_000
RETENTION_MOST_MAX: Final = 100_000  # ended procedures of one type and state, by a rule
PAUSES_MAX: Final = 10_000  # things that are paused …
PAUSES_OF_ONE_MAX: Final = 5_000  # … by one and the same
PROCEDURE_DEDUP_MS_MAX: Final = 7 * 86_400_000  # an earlier one stands for those of its key …
PROCEDURE_DEDUPS_OF_ONE_MAX: Final = 100_000  # … of one owner, at a time
SCHEDULES_MAX: Final = 10_000
VERSION_MOVES_MAX: Final = 1_000  # live procedures that one request moves to another version
QUEUE_WEIGHTS_MAX: Final = 1_000  # keys of one queue that have another weight than 1 …
QUEUE_WEIGHT_MAX: Final = 1_000  # … up to this
QUEUE_KEYS_SHOWN_MAX: Final = 1_000  # of one look at a queue: those with most
SCHEDULE_MISSED_MAX: Final = 100  # runs of one schedule that are made up for
SCHEDULE_EVERY_MS_MIN: Final = 1_000
SCHEDULE_JITTER_MS_MAX: Final = 86_400_000
SCHEDULE_CRONS_MAX: Final = 20  # expressions of one schedule, and of what it leaves out
SCHEDULE_BUFFER_MAX: Final = 1_000  # runs of one schedule that wait for the one before
SCHEDULE_TIMES_MAX: Final = 1_000  # next times that are told at once
ERROR_CHARS_MAX: Final = 4_000  # of the message that a failed procedure keeps
TRACE_CHARS_MAX: Final = 4_000  # … and of its traceback
TRACE_FRAMES_MAX: Final = 20
PROCEDURE_SHOWN_BYTES_MAX: Final = 64 * KiB  # of arguments and state that are shown with it
PLAIN_DEPTH_MAX: Final = 64  # nesting of arguments, state and results
WAIT_MS_MAX: Final = 60_000
UPDATE_WAIT_MS: Final = 20_000  # for the answer of an update, before it is asked again

# -- Spark sink
SPARK_PART_BYTES: Final = 32 * MiB  # of a table, for one task that reads it …
SPARK_PARTS_MAX: Final = 10_000  # … but no more tasks than these
SPARK_BATCH_ROWS_MAX: Final = 100_000_000  # that may be asked for as a micro-batch of changes
SPARK_CHANGES_PER_TASK: Final = 50_000  # rows of a micro-batch, about: a task sorts them in memory
SPARK_SPLITS_MAX: Final = 1_000  # partitions that a table is cut into before a bulk load
SPARK_PLAN_ROWS_MAX: Final = 8_000_000  # of a backlog that a stream's driver counts ahead
SPARK_IDLE_OFFSET_MS: Final = 60_000  # a stream without changes moves its offset so often
SINK_LEASE_MS: Final = 600_000
SINK_CHUNK_BYTES_MAX: Final = 4 * MiB
SINK_TASKS_MAX: Final = 10_000
SINK_SMALL_ROWS: Final = 300  # a batch up to this is one transaction of one procedure step …
SINK_SMALL_BYTES: Final = 8 * MiB  # … unless its chunks are larger than this together
SINK_INLINE_BYTES: Final = 32 * 1024  # a task's only chunk up to this is not staged …
SINK_INLINE_TOTAL: Final = 256 * 1024  # … if the commit's message has room for all of them
SINK_INLINE_KEPT: Final = 16 * 1024  # the same of a commit whose record is kept: nobody fetches it
SINK_INLINE_DRIVER: Final = 1024 * 1024  # the task of part p leaves at most 1/(p+1) of it unstaged
SINK_UNNAMED_MS_MAX: Final = 1_800_000  # how long a commit without an application may be repeated
SINK_LAID_BYTES: Final = 128 * 1024  # of what a commit tells its cleaning about its messages
SINK_PLACED_TASKS_MAX: Final = 2_000  # tasks of higher numbers stage their rows
SINK_PLACED_TXNS_MAX: Final = 10  # of one task, each for …
SINK_PLACED_TXN_MS: Final = 240_000  # … so long: younger than the safepoint of a table
SINK_PLACED_TTL_MS: Final = 120_000  # of a task that works; it says so four times as often
SINK_PLACED_BYTES: Final = 256 * 1024  # of what a task tells of its messages in one chunk
SINK_MEETS_MS: Final = 1_000  # that a batch waits for a key; then it looks who has it
SINK_STEP_ROWS: Final = 20_000  # one up to this is written and flipped in one step …
SINK_STEP_CHUNKS: Final = 8  # … unless it has more chunks; so many are removed per transaction
SINK_DROP_ROWS_MAX: Final = 2_000  # other staged rows removed per transaction
SINK_ATTEMPT_CHARS_MAX: Final = 64
SINK_FETCHED_MAX: Final = 1_000  # answered commits whose records wait to be forgotten
SINK_CLEAN_RETENTION_MS: Final = 300_000  # of what cleaned up: its arguments may be whole chunks
SINK_COMMIT_WAIT_MS: Final = 20_000  # how long one SINK_COMMIT waits for its procedure
SINK_UNIQUE_ROWS: Final = 2_000_000  # hashes of keys in memory when duplicates are looked for
SINK_ORDERED_ROWS_MAX: Final = 1_000_000  # rows of a batch of which the highest of a key stays
SINK_PARTS_MAX: Final = 100  # tables of one batch
SINK_DIGESTS_MAX: Final = 32  # last batches of a query whose contents a replay is compared with
SINK_RETIRED_MAX: Final = 20  # queries that a reset replaced, remembered and refused
SINK_EXPIRED_MS: Final = 86_400_000  # how long an attempt that ended with its lease is listed
SINK_PREPARED_WARN_MS: Final = 3_600_000  # a prepared job older than this is warned of
SINK_JOB_SILENT_MS: Final = 600_000  # a job without app_id whose program says nothing is let go of
SINK_RETRY_MS_MAX: Final = 2_000  # between two tries of a commit that met another transaction
SINK_LISTED_MAX: Final = 100  # attempts on a page of a list …
SINK_LISTED_ROWS: Final = 20_000  # … which ends earlier behind so many tasks
SINK_READ_ROWS: Final = 1_000  # rows of a table read at once when a batch replaces them

# -- the notification bus (procedures/bus)
BUS_TARGETS_MAX: Final = 1_000  # of one operation
BUS_BODY_BYTES_MAX: Final = 64 * KiB  # what one target is asked, or answers
BUS_ROWS_MAX: Final = 256  # orders, or reports, of one message
BUS_MESSAGE_BYTES_MAX: Final = 256 * KiB  # of the bodies in one message; the rest follows
BUS_PUSH_MS: Final = 2_000  # for one message to a target
BUS_RETRY_MS_FIRST: Final = 200  # before an order is sent again that did not arrive, doubled …
BUS_RETRY_MS_MAX: Final = 5_000  # … up to this
BUS_RENEW_MS: Final = 3_000  # between two looks at a target that works
BUS_LEASE_MS: Final = 20_000  # a target that hears nothing of an operation for so long drops it
BUS_LEASE_MARGIN_MS: Final = 5_000  # for an order under way, and a master that does not know yet
BUS_RECORD_MS: Final = 100  # answers that come within so long are recorded together
BUS_PAUSE_S_MIN: Final = 0.001  # between two looks at what is due, at least
BUS_LOOK_MS_FIRST: Final = 1_000  # between two looks at where partitions are, doubled …
BUS_LOOK_MS_MAX: Final = 10_000  # … up to this
BUS_TIMEOUT_MS_DEFAULT: Final = 600_000  # then an operation fails and is taken back
BUS_UNDO_WAIT_MS: Final = 1_000  # of one attempt to take back
BUS_OPERATIONS_MAX: Final = 1_000  # that one target knows of
BUS_RUNNING_MAX: Final = 4  # operations that one target works on at once; others wait their turn
BUS_ERROR_CHARS_MAX: Final = 500

# -- verify
VERIFY_CLIENTS_MAX: Final = 256  # of one workload
VERIFY_SECONDS_MAX: Final = 86_400
VERIFY_OPERATIONS_MAX: Final = 1_000_000  # of one workload; it then waits for the end of the run

# -- SQL, reading statements (sqlproxy/front)
SQL_TEXT_BYTES_MAX: Final = 16 * MiB  # of one message's statements, …
SQL_MESSAGE_STATEMENTS_MAX: Final = 10_000  # … and how many they may be
SQL_STATEMENTS_AT_ONCE: Final = 8  # of a message, before others have the loop
SQL_TOKENS_MAX: Final = 1 << 18  # words and signs of one message, but for lists of plain literals
SQL_COMMENT_DEPTH_MAX: Final = 500  # of comments inside of comments
SQL_CATALOG_STATEMENTS_MAX: Final = 8  # whose system tables are made at once; others wait
SQL_CATALOG_DATABASES_MAX: Final = 32  # whose system tables are kept; the least used go
SEQUENCE_RUN_MAX: Final = 1_024  # values taken at once without being asked for
SEQUENCE_POOLS_MAX: Final = 10_000  # sequences whose values one process has in memory
SQL_ASIDE_CHARS: Final = 8 * KiB  # longer ones are read and bound in a thread, …
SQL_ASIDE_STACK_BYTES: Final = 16 * MiB  # … which has a stack of its own
SQL_PLANS_MAX: Final = 1_024  # statements remembered as trees, and as bound ones
SQL_ROLE_SETTINGS_MAX: Final = 100  # of a role in a database (ALTER ROLE … SET)
SQL_PRIVATE_PLANS_MAX: Final = 128  # bound ones of a session that has temporary tables
SQL_CACHED_CHARS_MAX: Final = 16 * KiB  # trees of longer ones are not remembered
SQL_PLAN_CHARS_MAX: Final = 128 * KiB  # nor are longer ones when they are bound, …
SQL_PLANS_CHARS_MAX: Final = 512 * KiB  # … and all that are bound have so many together
SQL_RENDERINGS_MAX: Final = 4  # texts for DuckDB that are kept with a plan
SQL_TARGETS_MAX: Final = 1_664  # columns of an answer, as in PostgreSQL
SQL_PARAMETERS_MAX: Final = 65_535  # of one statement: the protocol's count
SQL_POINTS_MAX: Final = 10_000  # keys that lists in a WHERE name together; else ranges are read
SQL_STRETCHES_MAX: Final = 1_000  # arms of an OR that are looked for by keys
SQL_RANGES_AT_ONCE: Final = 16  # of a way that has many, which are read together
SQL_LED_KEYS_MAX: Final = 5_000  # rows of a table that say which of another are read
SQL_LED_ROWS_MAX: Final = 4_000  # that they lead to by an index; all are read if they are more
SQL_ANALYTIC_BYTES_MAX: Final = 512 * MiB  # that DuckDB holds for all queries; the rest spills
SQL_ANALYTIC_THREADS: Final = 2  # of each of DuckDB's databases …
SQL_ANALYTIC_DATABASES_MAX: Final = 4  # … which are so many, for users that have queries at once
SQL_ANALYTIC_QUERIES_MAX: Final = 8  # of a user, in DuckDB at once; others have half as many more
SQL_SPILL_FREE_BYTES_MIN: Final = 2 * DISK_FREE_BYTES_MIN  # that files of queries leave free, …
SQL_SPILL_PARTS: Final = 4  # … and one user's have this part of the rest
SQL_ANALYTIC_SOURCE_BYTES: Final = 64 * MiB  # of a table's rows in memory; then they go to a file
SQL_ANALYTIC_SCAN_ROWS: Final = 5_000  # rows of a page of a scan for DuckDB
SQL_WITH_ROWS_MAX: Final = 10_000  # that a change in WITH returns
SQL_LATER_KNOWN_MAX: Final = 64  # answers of one subquery of written rows that are kept
SQL_NUMBERED_ROWS_MAX: Final = 1_000_000  # of a query inside another one that takes numbers
SQL_SERIES_ROWS_MAX: Final = 1_000_000  # of generate_series of numeric or timestamptz, a list
SQL_ANALYTIC_FETCH_ROWS: Final = 2_000  # rows of a batch that DuckDB hands out
SQL_LOOKUP_ROWS: Final = 500  # rows that are fetched at once by keys from an index
SQL_LOOK_ROWS: Final = 100  # entries that are looked at to choose one of several indexes, …
SQL_LOOK_RANGES: Final = 8  # … in so many ranges
SQL_SCAN_ROWS: Final = 1_000  # rows of a page of a scan
SQL_CASCADES_MAX: Final = 100_000  # rows that foreign keys of a statement change; checks that wait
SQL_SORTED_ROWS_MAX: Final = 10_000  # that are sorted here; DuckDB sorts more
SQL_SETTING_CHARS_MAX: Final = 10_000  # of a setting's value
SQL_SETTINGS_OWN_MAX: Final = 1_000  # that a session has beside those that there are
SQL_SAVEPOINTS_MAX: Final = 10_000  # open in one transaction
SQL_FUNCTION_ARGUMENTS_MAX: Final = 100
SQL_FUNCTION_CHARS_MAX: Final = 64 * KiB  # of the text of a function in SQL
SQL_INLINED_MAX: Final = 200  # calls of such functions in one statement, those inside of them, too
SQL_INLINED_DEPTH_MAX: Final = 20  # of one in another
SQL_CHANNELS_MAX: Final = 1_000  # that a session listens to
SQL_PAYLOAD_BYTES_MAX: Final = 7_999  # of NOTIFY, as in PostgreSQL
SQL_NOTIFICATIONS_MAX: Final = 10_000  # of one transaction, …
SQL_NOTIFICATION_BYTES_MAX: Final = MiB  # … with their payloads
SQL_NOTIFICATION_TTL_MS: Final = 60_000  # that they are stored
SQL_UNHEARD_BYTES_MAX: Final = MiB  # that wait for a session that does not take them
SQL_OWN_NOTIFICATION_MS: Final = 1_000  # that NOTIFY waits for what it sends to its own session
SQL_RUNS_MAX: Final = 20  # of a statement that is a transaction by itself, before it gives up
SQL_HELD_ROWS_MAX: Final = 100_000  # of a cursor that outlives its transaction
SQL_STATISTICS_TARGET: Final = 100  # common values, and ranges of the others, of a column
SQL_STATISTICS_SAMPLE_ROWS: Final = 30_000  # of a table, at most, that ANALYZE looks at …
SQL_STATISTICS_SAMPLE_BYTES: Final = 16 * MiB  # … if they have no more bytes than this …
SQL_STATISTICS_KEY_ROWS: Final = 5_000  # … and whose entries in indexes it makes
SQL_STATISTICS_ROWS_MAX: Final = 1_000_000  # of a table that is analyzed without being asked
SQL_STATISTICS_CHANGES_MIN: Final = 50  # rows, and a tenth of all, whose changes ask for that
SQL_STATISTICS_PERIOD_MS: Final = 10_000  # between two looks at what was changed
SQL_STATISTICS_KEPT_MAX: Final = 2_000  # tables whose statistics a process remembers
SQL_COPY_BATCH_ROWS: Final = 1_000  # of INSERT … SELECT that are written at once
SQL_LOAD_ROWS_MIN: Final = 5_000  # a COPY of fewer is an ordinary transaction
SQL_LOAD_BYTES_MIN: Final = 4 * MiB  # … and one of fewer bytes, in one piece
SQL_LOAD_SLICE_ROWS: Final = 500  # of a larger one that are encoded before others have the loop
SQL_ROLES_MAX: Final = 10_000
TOKENS_MAX: Final = 10_000  # of all users
TOKEN_TTL_MS_MAX: Final = 10 * 365 * 86_400_000
GRANTS_PER_ROLE_MAX: Final = 1_000  # things that one role was granted, tables of SQL's not counted
SQL_COMMENT_CHARS_MAX: Final = 10_000  # of COMMENT ON: every node reads it with the schema
SQL_VALUE_BYTES_MAX: Final = 16 * MiB  # that a function makes, e.g. repeat
SQL_ARRAY_ELEMENTS_MAX: Final = 1 << 21  # that a function puts into one
SQL_FORMAT_CHARS_MAX: Final = 4_096  # of a format of to_char, to_date and their like
SQL_NUMERIC_SERIES_DIGITS_MAX: Final = 2_500  # of exp, ln and power of numeric
SQL_SHORT_CALLS_MAX: Final = 16  # of functions that are short, in a row's short way
SQL_PATTERN_CHARS_MAX: Final = 16 * KiB  # of a regular expression, and of LIKE with _ or escapes
SQL_PATTERN_BYTES_MAX: Final = MiB  # that RE2 uses for one
SQL_PATTERN_STEPS_MAX: Final = 1 << 24  # its program's size times the text's: 10 ns each at worst
SQL_STATEMENT_MEMORY_BYTES_DEFAULT: Final = 256 * MiB  # that a session's statements hold …
SQL_STATEMENT_MEMORY_BYTES_MIN: Final = MiB
SQL_MEMORY_BYTES_DEFAULT: Final = 1024 * MiB  # … and those of all sessions of a node, …
SQL_MEMORY_BYTES_MIN: Final = 64 * MiB
SQL_FOLDED_BYTES_MAX: Final = 64 * KiB  # … and a constant that a remembered plan has, …
SQL_KEPT_BYTES_MAX: Final = 32 * MiB  # … and all larger ones that a statement keeps while it runs
SQL_PIECE_BYTES: Final = 4 * MiB  # of rows that are on their way to a client at once, but for one
SQL_SORTED_BYTES_MAX: Final = 16 * MiB  # that are sorted here; DuckDB sorts more
SQL_TRIM_BYTES: Final = 32 * MiB  # taken and given back, after which the system gets its pages …
SQL_TRIM_MS: Final = 1_000  # … at most so often

# -- backup, restore, import, export, check (kvorum/transfer)
TRANSFER_BLOCK_BYTES: Final = 4 * MiB  # of keys and values in one file of a backup, about …
TRANSFER_BLOCK_ROWS: Final = 100_000  # … and rows
TRANSFER_BLOCK_RAW_MAX: Final = 64 * MiB  # that a file of a backup may unpack to
TRANSFER_PAGE_ROWS: Final = 2_000  # of one scan for a copy
TRANSFER_WRITE_ROWS: Final = 1_000  # of one transaction that restores rows …
TRANSFER_WRITE_BYTES: Final = 2 * MiB  # … and their bytes
TRANSFER_LEASE_MS: Final = 600_000  # whoever copies renews its snapshot at least so often
TRANSFER_LEFT_MS: Final = 900_000  # a backup or export whose command is gone for so long is ended
OUTSIDE_THREADS_MAX: Final = 16  # calls of a process that wait for a place outside
TRANSFER_STEP_MS: Final = 900_000  # a place that does not answer for so long ends a copy, …
TRANSFER_QUERY_MS: Final = 3_600_000  # … or a piece of an import, which may be a long query, …
TRANSFER_UNDO_MS: Final = 120_000  # … and keeps its locks for so long while it is undone
TRANSFER_TIMEOUT_MS: Final = 86_400_000  # then a copy gives up: its snapshot is not held for longer
TRANSFER_LOCKS_MAX: Final = 48  # tables that are locked one by one; beyond, their namespaces
TRANSFER_RANGES_MAX: Final = 500  # key ranges that one order of a restore makes
TRANSFER_RATE_MIN: Final = 4 * KiB  # bytes per second that a copy may be held to
TRANSFER_PAUSE_MS_MAX: Final = 300_000  # a copy rests, its snapshot being held for longer
TRANSFER_STROKE_S: Final = 1  # a backup that is held to a rate writes files of so many seconds, …
TRANSFER_STROKE_ROWS: Final = 8  # … and looks with so many rows how large they are
TRANSFER_EXPORT_STROKE_S: Final = 10  # the same of an export: its files are for others to read
TRANSFER_CHUNK_ROWS: Final = 1_000  # rows of one transaction of an import …
TRANSFER_GROUP_BYTES: Final = 64 * MiB  # of decoded Parquet that a node keeps for later pieces
TRANSFER_LISTINGS_MAX: Final = 16  # imports whose list of files a process keeps
TRANSFER_ATOMIC_ROWS: Final = 100_000  # … and of one that is to be atomic
TRANSFER_ERRORS_MAX: Final = 100  # rows that an import could not take and tells one by one
TRANSFER_EXPORT_ROWS: Final = 50_000  # of one file of an export, …
TRANSFER_EXPORT_BYTES: Final = 64 * MiB  # … and their keys and values, about

# -- two clusters in sync (kvorum/sites)
SITE_TABLES_MAX: Final = 1_000  # of one link
SITE_BATCH_ROWS: Final = 1_000  # taken over in one transaction, of several of the other cluster, …
SITE_BATCH_BYTES: Final = 4 * MiB  # … and their bytes
SITE_WHOLE_ROWS: Final = 20_000  # a transaction of more rows arrives in several, …
SITE_WHOLE_BYTES: Final = 8 * MiB  # … and one of more bytes
SITE_LOOK_MS: Final = 5_000  # so long one look waits for news
SITE_SPAN_MS: Final = 30_000  # so long a step of the link keeps its connection
SITE_IDLE_MS: Final = 30_000  # so old the position on disk may be while nothing comes
SITE_PAUSE_MS: Final = 2_000  # after a failure
SITE_ASK_MS: Final = 60_000  # so long a failed procedure of a rule is not submitted again
SITE_AHEAD_MS_MAX: Final = 60_000  # that a clock of the other cluster may be ahead
SITE_CONFLICT_TTL_MS: Final = 30 * 86_400_000  # so long conflicts are told
SITE_CONFLICT_VALUE_BYTES: Final = 4 * KiB  # that are told of a value in conflict
SITE_LEASE_MS: Final = 600_000  # without a master for so long a link has to be made anew
SITE_LEASE_AGE_MS: Final = 3_600_000  # a new lease then, as none lives for ever

CHECK_FINDINGS_MAX: Final = 100  # that a check tells one by one; it counts them all
CHECK_STEP_ROWS: Final = 1_000  # of a replica that a check looks at in one step of the loop

# -- SQL, schema change (sqlproxy/ddl/change)
SQL_SCHEMA_TTL_MS: Final = 1_000  # what a session knows of declarations is at most so old
SQL_FENCE_MS: Final = 2_000  # a commit so long after the oldest look holds the schema's row …
SQL_COMMIT_MS_MAX: Final = 5_000  # … and an earlier one is sent within this, or not at all
SQL_SETTLE_MS: Final = 8_000  # between two versions of a table: nobody uses the one before the last
SQL_SETTLE_NATIVE_MS: Final = 16_000  # the same where who writes without SQL must hear of it
SQL_POLL_MS: Final = 100  # a proxy that serves clients asks so often what it has to acknowledge …
SQL_POLL_SOON_MS: Final = 10  # … and so often while a change waits for it, as the change does
SQL_SOON_MS: Final = 2_000  # so long after an acknowledgement the next one is likely
SQL_EXPEL_MS: Final = 1_000  # a proxy that has not acknowledged by then has to announce itself anew
SQL_LEAVE_MS: Final = 60_000  # a proxy that nobody asks signs off
SQL_NOTICE_MS_FIRST: Final = 2_000  # who waits for a definition gets its progress then …
SQL_NOTICE_MS: Final = 5_000  # … and so often from then on
SQL_BACKFILL_ROWS: Final = 2_000  # of one step of CREATE INDEX, …
SQL_SLICE_ROWS: Final = 96  # … done in slices of so many: each part about half a millisecond, …
SQL_SLICE_ROWS_MAX: Final = 250  # … or of so many, while nobody else uses the loop
SQL_SLICES_IN_FLIGHT: Final = 4  # … of which so many are under way at once
SQL_PARTS_MAX: Final = 1_000  # that one ALTER TABLE adds, each by a procedure of its own
SQL_ACTIVITY_CHARS: Final = 1_024  # of a statement, in pg_stat_activity and after its end
SQL_FILL_ROWS: Final = 250  # of a step of another change that reads all rows
SQL_BACKFILL_ROWS_MIN: Final = 8  # of both, where they meet conflicts again and again
SQL_REST_MS_MAX: Final = 50  # of the rests in one slice, on a node that others use

assert PROCEDURE_LIST_DEFAULT <= PROCEDURE_LOOKED_MAX
assert KEY_BYTES_MAX + VALUE_BYTES_MAX < BATCH_BYTES_MAX, "one record must fit a batch"
assert TRANSFER_BLOCK_BYTES + SCAN_PAGE_BYTES_MAX + VALUE_BYTES_MAX < TRANSFER_BLOCK_RAW_MAX // 2
assert max(TRANSFER_PAGE_ROWS, CHECK_STEP_ROWS) <= SCAN_ROWS_MAX
assert TRANSFER_WRITE_BYTES + VALUE_BYTES_MAX + KEY_BYTES_MAX < BATCH_BYTES_MAX
assert max(TRANSFER_WRITE_ROWS, TRANSFER_CHUNK_ROWS) <= BATCH_OPS_MAX
assert TRANSFER_PAUSE_MS_MAX < TRANSFER_LEASE_MS <= LEASE_TTL_MS_MAX
assert SITE_SPAN_MS + SITE_IDLE_MS < SITE_LEASE_MS <= LEASE_TTL_MS_MAX
assert SITE_LEASE_AGE_MS < LEASE_LIFETIME_MS_MAX
assert SITE_LOOK_MS < SITE_SPAN_MS
assert SITE_WHOLE_BYTES + SITE_BATCH_BYTES < TXN_READ_BYTES_MAX, "who takes over is serializable"
assert SITE_BATCH_ROWS + SITE_WHOLE_ROWS < TXN_READS_MAX
assert SITE_CONFLICT_TTL_MS <= TTL_MS_MAX
assert TRANSFER_TIMEOUT_MS <= LEASE_LIFETIME_MS_MAX
assert WORKER_LEASE_MS < TRANSFER_LEFT_MS < TRANSFER_TIMEOUT_MS
assert TRANSFER_LOCKS_MAX <= PROCEDURE_LOCKS_MAX
assert PROCEDURE_UNDO_MS_MIN < TRANSFER_UNDO_MS < TRANSFER_STEP_MS < TRANSFER_QUERY_MS
assert TRANSFER_QUERY_MS < TRANSFER_TIMEOUT_MS
assert TRANSFER_RANGES_MAX <= SPLIT_KEYS_MAX
assert TRANSFER_ATOMIC_ROWS <= TXN_MEMORY_KEYS_MAX
assert 9 * KEY_BYTES_MAX < HTTP_HEAD_BYTES_MAX // 2, "three %-encoded bounds and a cursor fit a URL"
assert BATCH_BYTES_MAX < HTTP_BODY_BYTES_MAX < FRAME_BYTES_MAX, "a legal batch must fit a request"
assert BATCH_BYTES_MAX < SQL_MESSAGE_BYTES_MAX < SQL_INPUT_BYTES_MAX, "a legal batch is a statement"
assert SQL_LARGE_BYTES < SQL_MESSAGE_BYTES_MAX
assert SQL_SMALL_MESSAGE_BYTES_MAX < SQL_READ_AHEAD_BYTES < SQL_LARGE_BYTES
assert SQL_COPY_SLICE_BYTES <= SQL_COPY_BATCH_BYTES < SQL_MESSAGE_BYTES_MAX
assert SQL_ENCODE_ROWS <= SQL_FETCH_ROWS <= SCAN_ROWS_MAX
assert SQL_LOOK_ROWS <= SQL_SCAN_ROWS <= SCAN_ROWS_MAX
assert SQL_ANALYTIC_SCAN_ROWS <= SCAN_ROWS_MAX
assert SQL_ANALYTIC_SOURCE_BYTES * 2 <= SQL_ANALYTIC_BYTES_MAX
assert SQL_PARTS_MAX <= PROCEDURE_ROUNDS_MAX
assert SQL_STATEMENT_MEMORY_BYTES_MIN <= SQL_STATEMENT_MEMORY_BYTES_DEFAULT
assert SQL_STATEMENT_MEMORY_BYTES_DEFAULT <= SQL_MEMORY_BYTES_DEFAULT
assert SQL_FOLDED_BYTES_MAX * SQL_PLANS_MAX <= SQL_MEMORY_BYTES_MIN, "plans are small change"
assert SQL_BACKFILL_ROWS_MIN <= SQL_SLICE_ROWS <= SQL_SLICE_ROWS_MAX
assert SQL_SLICE_ROWS_MAX * SQL_SLICES_IN_FLIGHT <= SQL_BACKFILL_ROWS, "a step has work for all"
assert SQL_SLICE_ROWS_MAX < PARALLEL_KEYS_MAX, "a slice waits for one sync, not for two in a row"
assert max(SQL_FILL_ROWS, SQL_BACKFILL_ROWS) <= min(SCAN_ROWS_MAX, MULTI_KEYS_MAX)
assert SQL_SCHEMA_TTL_MS < SQL_FENCE_MS, "what was just looked up is not fenced"
assert SQL_FENCE_MS + SQL_COMMIT_MS_MAX < SQL_SETTLE_MS, "what is not fenced is over by then"
assert SQL_POLL_MS < SQL_EXPEL_MS < SQL_SETTLE_MS, "who lives acknowledges before it is expelled"
assert SQL_SETTLE_MS < SQL_LEAVE_MS, "who signs off uses nothing any more"
assert SQL_LOOKUP_ROWS <= MULTI_KEYS_MAX
assert SQL_CANCEL_MS_MAX < DEADLINE_MS_DEFAULT
assert BATCH_BYTES_MAX + BATCH_OPS_MAX * 64 < ENTRY_BYTES_MAX, (
    "a batch and its old versions' headers fit an entry"
)
assert 2 * SCAN_PAGE_BYTES_MAX + PREWRITE_BYTES_MAX + VALUE_BYTES_MAX < FRAME_BYTES_MAX, (
    "a page that reads through chunks: records, chunks, and the chunk that fills it"
)
assert SCAN_STEP_ROWS_MAX <= SCAN_SEALED_ROWS_MAX <= SCAN_ROWS_MAX
assert 2 * (SCAN_PAGE_BYTES_MAX + VALUE_BYTES_MAX + KEY_BYTES_MAX) < FRAME_BYTES_MAX, (
    "a slice of cur and of hist fits a reply"
)
assert SCAN_PAGE_BYTES_MAX + VALUE_BYTES_MAX + KEY_BYTES_MAX < FRAME_BYTES_MAX, (
    "a page must fit a reply"
)
assert PREWRITE_BYTES_MAX + VALUE_BYTES_MAX + KEY_BYTES_MAX < ENTRY_BYTES_MAX
# A command that resolves is one entry: what was begun before the bounds and one more. Of the bytes
# that begin it, keys may stand in it five times.
assert 4 * RESOLVE_BYTES + 2 * VALUE_BYTES_MAX + 2 * PREWRITE_KEYS_MAX * KiB < ENTRY_BYTES_MAX
assert max(BATCH_OPS_MAX, MULTI_KEYS_MAX, SCAN_ROWS_MAX, REQUESTS_PER_FRAME_MAX) <= LIST_ITEMS_MAX
assert REQUESTS_PER_FRAME_MAX <= IN_FLIGHT_PER_CONNECTION_MAX, "a full frame must be admitted"
assert MULTI_GET_BYTES_MAX + MULTI_KEYS_MAX * 32 + VALUE_BYTES_MAX < FRAME_BYTES_MAX, (
    "the values of a multi-get fit a reply"
)
assert HELLO_BYTES_MAX < FRAME_BYTES_MAX < REPLY_WINDOW_BYTES
assert BATCH_OPS_MAX * (4 * CONTAINER_WEIGHT + 25) <= MESSAGE_WEIGHT_MAX, "a legal batch is taken"
assert CLIENT_SMALL_BYTES < FRAME_BYTES_MAX < CLIENT_BYTES_MAX // 4
assert ENTRY_BYTES_MAX * 3 + ROOM_CHECK_BYTES * 3 <= DISK_FREE_BYTES_MIN, (
    "what was admitted fits log, WAL and state"
)
assert SINK_CHUNK_BYTES_MAX <= VALUE_BYTES_MAX, "a staged chunk is one value"
assert SINK_SMALL_ROWS <= SINK_STEP_ROWS
assert SINK_INLINE_KEPT <= SINK_INLINE_BYTES <= SINK_INLINE_TOTAL <= PROCEDURE_ARGS_BYTES_MAX // 4
assert SINK_INLINE_TOTAL <= SINK_INLINE_DRIVER, "few tasks may fill a commit's message"
assert SINK_UNNAMED_MS_MAX + DEADLINE_MS_MAX < PROCEDURE_RETENTION_MS_DEFAULT, (
    "what it has done is remembered for as long as it is asked for"
)
assert SINK_PLACED_TASKS_MAX * SINK_PLACED_TXNS_MAX <= COMMITS_BESIDE_MAX
assert SINK_PLACED_BYTES + KEY_BYTES_MAX * 4 < SINK_CHUNK_BYTES_MAX
assert SINK_PLACED_TTL_MS <= SINK_LEASE_MS <= TXN_TTL_MS_MAX, (
    "a task's transaction lives as long as its attempt"
)
assert SINK_LAID_BYTES <= PROCEDURE_ARGS_BYTES_MAX // 8
assert SINK_STEP_CHUNKS * SINK_CHUNK_BYTES_MAX < SUPERSEDED_BYTES_MAX, "they go in one step"
assert SINK_SMALL_BYTES + 3 * SINK_CHUNK_BYTES_MAX < TXN_MEMORY_BYTES_MAX
assert 2 * SINK_ATTEMPT_CHARS_MAX < NONCE_CHARS_MAX
assert SINK_COMMIT_WAIT_MS <= WAIT_MS_MAX
assert SINK_ORDERED_ROWS_MAX <= SINK_UNIQUE_ROWS
assert SINK_ORDERED_ROWS_MAX <= TXN_KEYS_MAX
assert SINK_LEASE_MS < SINK_EXPIRED_MS
assert min(MULTI_KEYS_MAX, SCAN_ROWS_MAX) >= SINK_READ_ROWS
assert PROCEDURE_ARGS_BYTES_MAX + 2 * PROCEDURE_STATE_BYTES_MAX + MiB <= VALUE_BYTES_MAX, (
    "arguments, state, result and history are one record"
)
assert PROCEDURE_HISTORY_CHUNK < PROCEDURE_HISTORY_INLINE_MAX <= PROCEDURE_HISTORY_SHOWN_MAX
assert PROCEDURE_HISTORY_SHOWN_MAX <= PROCEDURE_HISTORY_KEPT
assert PROCEDURE_HISTORY_KEPT % PROCEDURE_HISTORY_CHUNK == 0, "whole rows go"
assert MEMBERSHIP_MOVES_MAX <= PROCEDURE_CHILDREN_MAX
assert BUS_RENEW_MS + 2 * BUS_PUSH_MS + BUS_RETRY_MS_MAX < BUS_LEASE_MS, (
    "a lost renewal is survived"
)
assert BUS_ROWS_MAX <= LIST_ITEMS_MAX
assert BUS_MESSAGE_BYTES_MAX + BUS_BODY_BYTES_MAX + BUS_ROWS_MAX * 600 < BEAT_SECTION_BYTES_MAX, (
    "what goes by itself also fits a heartbeat"
)
assert TXN_TTL_MS_SAID_MIN <= PROCEDURE_TXN_TTL_MS <= TXN_TTL_MS_DEFAULT
assert SCHEDULE_PAUSE_S < SCHEDULE_QUIET_S
assert PROCEDURE_EARLY_MS < PROCEDURE_EARLY_APART_MS < PROCEDURE_STUCK_MS
assert PROCEDURE_EARLY_MS * 100 < PROCEDURE_EARLY_REST_MS_FIRST <= PROCEDURE_EARLY_REST_MS_MAX
assert WORKER_LEASE_MS <= WORKER_SILENT_MS_FIRST <= WORKER_SILENT_MS_MAX, "others get its turn"
assert 2 * WORKER_BEAT_MS + WORKER_POLL_MS < WORKER_LEASE_MS, "one lost beat is survived"
assert WORKER_LEASE_MS + PROCEDURE_TXN_TTL_MS <= 3_000, "a dead worker's procedures move within 3 s"
assert PROCEDURE_RECORD_CACHED_BYTES_MAX * 2 < WORKER_BATCH_BYTES
assert WORKER_SLOTS_MAX <= LIST_ITEMS_MAX
assert WORKER_TYPES_MAX <= TYPES_OF_USER_MAX <= TYPES_KNOWN_MAX
assert WORKER_TYPE_BYTES_MAX <= WORKER_DECLARATIONS_BYTES_MAX <= TYPES_OF_USER_BYTES_MAX
assert TYPES_OF_USER_BYTES_MAX <= TYPES_KNOWN_BYTES_MAX <= FRAME_BYTES_MAX // 4, "all are told"
assert PROCEDURE_RETENTION_MS_DEFAULT <= PROCEDURE_TIMEOUT_MS_MAX
assert TXN_TTL_MS_DEFAULT <= TXN_TTL_MS_MAX <= TXN_LIFETIME_MS_MAX
assert TXN_SPILL_BYTES < TXN_MEMORY_BYTES_MAX < TXN_BUFFER_BYTES_MAX
assert TXN_STREAM_KEYS_MIN < TXN_MEMORY_KEYS_MAX
assert TXN_MEMORY_KEYS_MAX <= TXN_KEYS_MAX
assert BATCH_BYTES_MAX + VALUE_BYTES_MAX < TXN_SPILL_BYTES, "what one entry holds is not spilled"
assert SPILL_BLOCK_BYTES + VALUE_BYTES_MAX < TXN_SPILL_BYTES
assert LOAD_IN_FLIGHT_MAX <= LARGE_IN_FLIGHT_MAX
assert LARGE_IN_FLIGHT_MAX * (PREWRITE_BYTES_MAX + VALUE_BYTES_MAX) <= TXN_SPILL_BYTES
assert PARALLEL_PARTS_MAX <= PREWRITES_IN_FLIGHT_MAX, "all are sent at once"
assert PARALLEL_KEYS_MAX <= PREWRITE_KEYS_MAX <= MULTI_KEYS_MAX
assert FEW_KEYS * VALUE_BYTES_MAX <= MULTI_GET_BYTES_MAX, "few keys need no count of their bytes"
assert COMMITS_IN_FLIGHT_MAX <= OPEN_TXNS_MAX, "a client's open transactions are all remembered"
assert PARALLEL_KEYS_MAX <= ENDS_KEYS_MAX <= LIST_ITEMS_MAX, "a FINISH takes at least one commit"
assert 2 * UNSTAGE_MS <= RECOVERY_GRACE_MS < TXN_TTL_MS_DEFAULT, "a living coordinator is faster"
assert LOCK_WAIT_MS_FIRST <= LOCK_WAIT_MS_MAX < TXN_TTL_MS_DEFAULT, (
    "an expired intent is noticed soon"
)
assert WAIT_PUSH_MS <= WAIT_PUSH_MS_MAX < TXN_TTL_MS_DEFAULT
assert DEADLOCK_AFTER_MS <= DEADLOCK_AGAIN_MS_MAX < TXN_TTL_MS_DEFAULT
assert LOCK_TTL_MS_MIN < 3 * ADVISORY_BEAT_MS < ADVISORY_TTL_MS <= LOCK_TTL_MS_MAX
assert ADVISORY_BEAT_MS < WAIT_MS_MAX
assert WAITERS_PER_KEY_MAX <= WAITERS_MAX < QUEUE_REQUESTS_MAX
assert WAITERS_BYTES_MAX <= QUEUE_BYTES_MAX
assert max(DEADLOCK_WAITS_MAX, LOCKS_REPORTED_MAX) <= LIST_ITEMS_MAX
assert GUARD_ROWS <= DRAIN_ROWS_MAX, "to look them through is no longer step than a drain's scans"
assert SQL_LOCKED_KEYS_MAX < TXN_LOCKS_MAX, "the rest is for what is locked in so many words"
assert PREWRITE_KEYS_MAX < TXN_READS_MAX < GUARDS_HELD_MAX, "one transaction finds room"
assert SWEEP_INTENTS_MAX <= MULTI_KEYS_MAX, "one look is one RESOLVE"
assert REROUTE_WAIT_MS_MAX < NEWBORN_WAIT_MS < MERGE_FREEZE_MS_MAX < DEADLINE_MS_DEFAULT
assert RETRY_WAIT_MS_FIRST <= REROUTE_WAIT_MS_MAX <= RETRY_WAIT_MS_MAX
assert CONNECT_REST_MS <= REROUTE_WAIT_MS_MAX
assert 2 * PING_MS < SILENCE_MS_MAX
assert SILENCE_MS_MAX + CONNECT_MS_MAX < DEADLINE_MS_DEFAULT, "a paused node costs no read"
assert MULTI_WRITE_IN_FLIGHT_MAX < IN_FLIGHT_PER_CONNECTION_MAX
assert BULK_TTL_MS <= TXN_TTL_MS_MAX
assert 2 * CLOCK_FENCE_MS <= CLOCK_OFFSET_MS_MAX, "two that are near a third one"
assert 2 * BEAT_MS + BEAT_BUDGET_MS < SUSPECT_MS < DEAD_AFTER_MS_MIN, "one lost beat is no sign"
assert BEAT_SECTIONS_MAX * BEAT_SECTION_BYTES_MAX < FRAME_BYTES_MAX
assert TSO_RAISE_BELOW_MS < TSO_AHEAD_MS
assert 3 * TSO_DIRECT_MS < TSO_PATIENCE_MS, "who waits for timestamps waits for the way round, too"
assert TSO_DIRECT_MS < TSO_CUT_OFF_MS, "leaderships move through who was found to ask"
assert REPLICA_WAIT_MS < REPLICA_ANSWER_MS, "a replica that lags says so"
assert TSO_PATIENCE_MS < DEADLINE_MS_DEFAULT, "a caller gets an answer before it gives up"
assert UNSETTLED_MS < PING_MS, "a caller gets an answer before it doubts the node"
assert DEADLINE_MS_DEFAULT <= DEADLINE_MS_MAX
assert UPDATE_WAIT_MS <= WAIT_MS_MAX
assert PROCEDURE_EVENTS_WAIT_MS <= WAIT_MS_MAX
assert 25 + (PROCEDURE_ROW_KEY_BYTES_MAX + 4 + 2) // 3 * 4 <= NONCE_CHARS_MAX, "it is in an event"
assert PROCEDURE_HEARTS_MAX * PROCEDURE_HEARTBEAT_BYTES_MAX <= PROCEDURE_STATE_BYTES_MAX
assert PROCEDURE_HEARTBEAT_TELL_MS <= PROCEDURE_HEARTBEAT_MS_MIN
assert PROCEDURE_EVENTS_EMITTED_MAX < PROCEDURE_EVENTS_KEPT
assert PROCEDURE_EVENTS_PAGE_MAX <= LIST_ITEMS_MAX
assert PROCEDURE_LOOK_MS < WORKER_QUERY_MS < DEADLINE_MS_DEFAULT
assert PROCEDURE_SIGNALS_MAX < PROCEDURE_KEYS_KEPT, "what nobody took is not sent again"
assert PROCEDURE_KEYS_DROPPED > 1, "or they would never become fewer"
assert LEASE_TTL_MS_DEFAULT <= LEASE_TTL_MS_MAX <= LEASE_LIFETIME_MS_MAX
assert MiB > LEASES_MAX * (4 * OWNER_CHARS_MAX + 32), "their record is written whole"
assert LEASES_MAX <= LIST_ITEMS_MAX
assert WAIT_MS_MAX < DEADLINE_MS_MAX
assert FEED_PART_ROWS_MAX <= FEED_ROWS_MAX
assert FEED_PART_BYTES_MAX <= FEED_BYTES_MAX
assert FEED_BYTES_MAX + VALUE_BYTES_MAX + FEED_ROWS_MAX * 64 < FRAME_BYTES_MAX, (
    "what one request finds fits a reply"
)
assert FEED_ROWS_MAX <= LIST_ITEMS_MAX
assert 2 * WATCHERS_MAX * FEED_AWAITS_MAX <= IN_FLIGHT_PER_CONNECTION_MAX, "others get through"
assert 2 * SPARK_IDLE_OFFSET_MS < GC_RETENTION_MS_DEFAULT, "a quiet stream does not fall behind"
assert 2 * FEED_HEARTBEAT_MS < GC_RETENTION_MS_DEFAULT, "who is idle does not fall behind"
assert 16 * MiB >= SQL_CACHED_CHARS_MAX * SQL_PLANS_MAX, "remembered texts are small change"
assert SQL_CACHED_CHARS_MAX < SQL_TEXT_BYTES_MAX
assert SQL_PLAN_CHARS_MAX * 4 <= SQL_PLANS_CHARS_MAX, "one large statement leaves room for others"
assert SNAPSHOT_FILE_SYNC_BYTES <= SNAPSHOT_FILE_BYTES <= SNAPSHOT_FILES_BYTES_MIN
