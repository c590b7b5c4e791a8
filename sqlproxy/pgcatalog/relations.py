"""What is no table of PostgreSQL's, and no view that is bound as its own text: rows that are
reported, and the views of the schema `kvorum`.
"""

from __future__ import annotations

from typing import Final

# PostgreSQL's views over the state of a server: their rows are given by who knows it, or are none.
FED: Final = (
    "pg_stat_activity",
    "pg_locks",
    "pg_prepared_statements",
    "pg_cursors",
    "pg_prepared_xacts",
    "pg_settings",
    "pg_file_settings",
    "pg_hba_file_rules",
    "pg_config",
    "pg_shmem_allocations",
    "pg_backend_memory_contexts",
    "pg_stat_replication",
    "pg_stat_wal_receiver",
    "pg_stat_ssl",
    "pg_stat_gssapi",
    "pg_replication_slots",
    "pg_stat_progress_analyze",
    "pg_stat_progress_vacuum",
    "pg_stat_progress_cluster",
    "pg_stat_progress_create_index",
    "pg_stat_progress_basebackup",
    "pg_stat_progress_copy",
    "pg_stat_bgwriter",
    "pg_stat_wal",
    "pg_stat_archiver",
    "pg_stat_slru",
    "pg_stat_subscription",
    "pg_stat_subscription_stats",
    "pg_stat_replication_slots",
    "pg_stat_recovery_prefetch",
    "pg_stat_statements",
    "pg_available_extensions",
    "pg_available_extension_versions",
    "pg_timezone_names",
    "pg_timezone_abbrevs",
    "pg_ident_file_mappings",
    "pg_stats",
    "pg_stats_ext",
    "pg_stats_ext_exprs",
    "pg_rules",
    "pg_policies",
    "pg_seclabels",
    "pg_replication_origin_status",
    "pg_publication_tables",
    "pg_user_mappings",
    "pg_stat_database",
    "pg_stat_database_conflicts",
    "pg_stat_xact_all_tables",
    "pg_stat_xact_sys_tables",
    "pg_stat_xact_user_tables",
    "pg_stat_xact_user_functions",
    "pg_stat_user_functions",
)
VIEW_OID: Final = 16_000  # of the kvorum views, in the order of VIEWS; below what users' have
