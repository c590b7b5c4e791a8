"""Ordered bytes on disk or in memory: the engine protocol and its two implementations.

    engine     the protocol, and what its callers may rely on
    rocks      RocksDB; tuning: its options; directory, torn_tail, damaged_log, cursor, sorted_rows,
               files, moved_files: its parts
    memory     the same in memory, with what a crash leaves: tests, `--engine memory`
    log        raft's log and sync over an engine
    files_to_rewrite    which files are worth rewriting (pure)

A database that met a full disk refuses every write until it is opened anew: so `check_room` is
asked when a request is admitted, not when it is written (docs/decisions/0201).
"""
