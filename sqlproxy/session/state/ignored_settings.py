"""Settings that clients send and ask for and that decide nothing here: how a planner of PostgreSQL
would weigh plans, how much memory it would take, what has one value only. Data.

A value that would promise what is not kept is not among those allowed: `fsync`, `array_nulls` and
their like have the one that is true.
"""

from __future__ import annotations

from typing import Final

from kv.base.limits import SQL_CONNECTIONS_MAX

_ON: Final = """
    enable_async_append enable_bitmapscan enable_gathermerge enable_hashagg enable_hashjoin
    enable_incremental_sort enable_indexonlyscan enable_indexscan enable_material enable_memoize
    enable_mergejoin enable_nestloop enable_parallel_append enable_parallel_hash
    enable_partition_pruning enable_seqscan enable_sort enable_tidscan geqo jit_expressions
    jit_tuple_deforming parallel_leader_participation
"""
SWITCHES: Final = {  # name → default
    **dict.fromkeys(_ON.split(), "on"),
    "enable_partitionwise_aggregate": "off",
    "enable_partitionwise_join": "off",
    "quote_all_identifiers": "off",  # names are quoted where they must be, which says the same
}
NUMBERS: Final = {
    "commit_delay": "0",
    "commit_siblings": "5",
    "cpu_index_tuple_cost": "0.005",
    "cpu_operator_cost": "0.0025",
    "cpu_tuple_cost": "0.01",
    "cursor_tuple_fraction": "0.1",
    "default_statistics_target": "100",
    "effective_io_concurrency": "1",
    "from_collapse_limit": "8",
    "geqo_threshold": "12",
    "hash_mem_multiplier": "2",
    "jit_above_cost": "100000",
    "join_collapse_limit": "8",
    "max_parallel_maintenance_workers": "2",
    "max_parallel_workers": "8",
    "max_parallel_workers_per_gather": "2",
    "parallel_setup_cost": "1000",
    "parallel_tuple_cost": "0.1",
    "random_page_cost": "4",
    "seq_page_cost": "1",
}
MEMORY: Final = {
    "effective_cache_size": "4GB",
    "logical_decoding_work_mem": "64MB",
    "maintenance_work_mem": "64MB",
    "temp_buffers": "8MB",
    "work_mem": "4MB",
}
CHOICES: Final = {  # name → allowed, the default first
    "array_nulls": ("on",),
    "backslash_quote": ("safe_encoding", "off"),
    "constraint_exclusion": ("partition", "on", "off"),
    "default_toast_compression": ("pglz", "lz4"),
    "force_parallel_mode": ("off", "on", "regress"),
    "lc_messages": ("C", "POSIX", "C.UTF-8", ""),
    "lc_monetary": ("C", "POSIX", "C.UTF-8", ""),
    "lc_numeric": ("C", "POSIX", "C.UTF-8", ""),
    "lc_time": ("C", "POSIX", "C.UTF-8", ""),
    "password_encryption": ("scram-sha-256",),
    "plan_cache_mode": ("auto", "force_generic_plan", "force_custom_plan"),
    "restrict_nonsystem_relation_kind": ("", "view", "foreign-table", "view, foreign-table"),
    # a commit is always durable, which is more than any of these asks
    "synchronous_commit": ("on", "off", "local", "remote_write", "remote_apply"),
    "temp_tablespaces": ("",),
    "transaction_timeout": ("0",),
    "transform_null_equals": ("off",),
}
FIXED: Final = {
    "block_size": "8192",
    "fsync": "on",
    "full_page_writes": "on",
    "lc_collate": "C.UTF-8",
    "lc_ctype": "C.UTF-8",
    "max_connections": str(SQL_CONNECTIONS_MAX),
    "max_function_args": "100",
    "max_prepared_transactions": "0",
}
