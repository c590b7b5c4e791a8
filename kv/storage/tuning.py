"""How RocksDB is set up for us: every figure that bounds its memory, and every option.

With `rocks` the only module that imports rocksdict, whose traps are listed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DBCompactionStyle,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    ReadOptions,
)

from kv.base.limits import COMPACTION_BYTES_MAX, KiB, MiB
from kv.base.shards import UNIVERSAL, parted, policy_of
from kv.storage.engine import LOG_FAMILIES

# Memory: the memtables of the state database share _STATE_MEMTABLES_BYTES, those of the log have
# _LOG_BUFFER_BYTES each, index and filter blocks live inside the block caches. Together with the
# interpreter that keeps a node below 600 MiB, however much it stores. Smaller buffers cost reads
# that leave the memtable (+2 µs per put at 16 MiB).
STATE_CACHE_BYTES: Final = 128 * MiB
_STATE_MEMTABLES_BYTES: Final = 160 * MiB
LOG_CACHE_BYTES: Final = 8 * MiB
_LOG_BUFFER_BYTES: Final = 32 * MiB
# of one memtable; snapshots of other nodes come into `staged` as fast as the network
_BUFFER_BYTES: Final = {"cur": 64 * MiB, "hist": 32 * MiB, "staged": 32 * MiB}
_BUFFER_BYTES_OTHER: Final = 16 * MiB
_SHARD_BUFFER_BYTES: Final = 32 * MiB  # so that one shard leaves room to others in what all share
# Full memtables of one family that wait for the disk: at the first figure `check_room` refuses new
# work, at the second RocksDB stalls. Far apart, because a stalled write of work that was already
# admitted could only stop the replica.
BUFFERS_WAITING_MAX: Final = 3
_BUFFERS_MAX: Final = 16
_WAL_BYTES_MAX: Final = 192 * MiB  # then the family that holds the oldest WAL is flushed
_FILES_OPEN_MAX: Final = 512
_FILE_BYTES: Final = 32 * MiB  # so a compaction of COMPACTION_BYTES_MAX reads 16 files
_BLOOM_BITS: Final = 10
# Read ahead of a scan: where it will look at many rows, one request to the disk instead of one for
# each block of 8 KiB. Of fewer rows most of it would be read in vain.
_AHEAD_ROWS_MIN: Final = 100
_AHEAD_BYTES_PER_ROW: Final = 512
_AHEAD_BYTES_MAX: Final = 256 * KiB


def is_log(families: Sequence[str]) -> bool:
    return tuple(families) == LOG_FAMILIES


def database_options(cache: Cache, *, log: bool) -> Options:
    """Options of the database; every figure that bounds memory is at the top of this file."""
    options = family_options("log" if log else "default", cache)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    # The default, point_in_time, drops everything after a flipped bit without a word, synced or not
    # (tests: half of the rows gone). This one accepts a cut tail and refuses the rest.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_paranoid_checks(True)
    options.set_max_total_wal_size(_WAL_BYTES_MAX)
    if not log:
        options.set_db_write_buffer_size(_STATE_MEMTABLES_BYTES)
    options.set_max_open_files(_FILES_OPEN_MAX)
    options.set_max_background_jobs(2)
    # spread the write-back of files, so that no WAL sync waits for it
    options.set_bytes_per_sync(1 * MiB)
    options.set_avoid_unnecessary_blocking_io(True)
    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(4 * MiB)
    options.set_stats_dump_period_sec(0)  # an idle node does nothing
    options.set_stats_persist_period_sec(0)
    options.enable_statistics()  # 0.2 µs of a read or a write
    return options


def family_options(name: str, cache: Cache) -> Options:
    is_log = name in LOG_FAMILIES
    options = Options(raw_mode=True)
    kind, shard = parted(name)
    size = _LOG_BUFFER_BYTES if is_log else _BUFFER_BYTES.get(kind, _BUFFER_BYTES_OTHER)
    if shard:
        size = min(size, _SHARD_BUFFER_BYTES)
    if policy_of(shard) == UNIVERSAL:
        options.set_compaction_style(DBCompactionStyle.universal())
    options.set_write_buffer_size(size)
    options.set_max_write_buffer_number(_BUFFERS_MAX)
    # Writes never wait (no_slowdown), so a "slowdown" would be a refusal: let files pile up in
    # level 0 instead, and refuse at the door (`check_room`) what the disk cannot follow.
    options.set_level_zero_slowdown_writes_trigger(64)
    options.set_level_zero_stop_writes_trigger(128)
    if is_log:
        # What is merged early is merged in vain: most of 256 MiB of log is cut off before.
        options.set_level_zero_file_num_compaction_trigger(8)
    # Levels that are sized from the last one upwards: delete marks reach the bottom, and what is
    # above it is a ninth of it. The library's default, but the space that comes back rests on it.
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_target_file_size_base(_FILE_BYTES)
    options.set_max_compaction_bytes(COMPACTION_BYTES_MAX)
    none, lz4 = DBCompressionType.none(), DBCompressionType.lz4()
    options.set_compression_per_level([none] * 7 if is_log else [none, none] + [lz4] * 5)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(8 * KiB)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_checksum_type(ChecksumType.xxh3())
    if not is_log:  # the log is only scanned
        table.set_bloom_filter(_BLOOM_BITS, False)
    options.set_block_based_table_factory(table)
    return options


def scan_options(end: bytes, rows_max: int) -> ReadOptions:
    """To scan up to `end` (b"" = no bound), which must live as long as what they are given to;
    `rows_max` 0 = no bound.
    """
    options = ReadOptions()
    if end:
        options.set_iterate_upper_bound(end)
    if not rows_max or rows_max >= _AHEAD_ROWS_MIN:
        wanted = rows_max * _AHEAD_BYTES_PER_ROW or _AHEAD_BYTES_MAX
        # RocksDB cuts it at `end`, and leaves out what is cached
        options.set_readahead_size(min(wanted, _AHEAD_BYTES_MAX))
    return options
