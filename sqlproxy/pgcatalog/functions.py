"""PostgreSQL's functions as texts of DuckDB: `{0}`, `{1}`, … are the arguments, already of the
types that PostgreSQL's own row of the function wants; a `$name` is a fact of the session, given
when it runs.

A name maps to one text, or to one for each number of arguments. Where a function looks something
up, the text is a subquery over the catalog's tables (their names have a `k_` in front, so that they
are never DuckDB's own). Result types are those of pg_proc. What is not here is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlproxy.pgcatalog import rights
from sqlproxy.pgcatalog.coercion import lists_joined
from sqlproxy.values.interval import every_fields

Spec = str | dict[int, str]

TRUE: Final = "true"
_ALWAYS: Final = [
    "pg_function_is_visible",
    "pg_type_is_visible",
    "pg_collation_is_visible",
    "pg_operator_is_visible",
    "pg_opclass_is_visible",
    "pg_opfamily_is_visible",
    "pg_conversion_is_visible",
    "pg_ts_config_is_visible",
    "pg_ts_dict_is_visible",
    "pg_ts_parser_is_visible",
    "pg_ts_template_is_visible",
    "pg_statistics_obj_is_visible",
    "has_foreign_data_wrapper_privilege",
    "has_function_privilege",
    "has_language_privilege",
    "has_server_privilege",
    "has_tablespace_privilege",
    "has_type_privilege",
    "has_parameter_privilege",
    "pg_relation_is_publishable",
]
_NOTHING: Final = [
    "pg_get_triggerdef",
    "pg_get_ruledef",
    "pg_get_partkeydef",
    "pg_get_partition_constraintdef",
    "pg_get_statisticsobjdef",
    "pg_get_statisticsobjdef_columns",
    "pg_get_statisticsobjdef_expressions",
    "pg_relation_filepath",
    "pg_relation_filenode",
    "pg_get_function_sqlbody",
    "pg_last_wal_receive_lsn",
    "pg_last_wal_replay_lsn",
    "pg_last_xact_replay_timestamp",
    "pg_stat_get_last_analyze_time",
    "pg_stat_get_last_autoanalyze_time",
    "pg_stat_get_last_vacuum_time",
    "pg_stat_get_last_autovacuum_time",
    "pg_stat_get_db_stat_reset_time",
    "inet_server_addr",
    "inet_client_addr",
    "pg_get_replica_identity_index",
    "pg_partition_root",
    "pg_current_wal_lsn",
    "pg_current_wal_insert_lsn",
    "pg_current_logfile",
    "pg_get_viewdef_missing",
    "_pg_index_position",
]
_ZERO: Final = [
    "pg_stat_get_numscans",
    "pg_stat_get_tuples_returned",
    "pg_stat_get_tuples_fetched",
    "pg_stat_get_tuples_inserted",
    "pg_stat_get_tuples_updated",
    "pg_stat_get_tuples_deleted",
    "pg_stat_get_tuples_hot_updated",
    "pg_stat_get_live_tuples",
    "pg_stat_get_dead_tuples",
    "pg_stat_get_mod_since_analyze",
    "pg_stat_get_ins_since_vacuum",
    "pg_stat_get_blocks_fetched",
    "pg_stat_get_blocks_hit",
    "pg_stat_get_vacuum_count",
    "pg_stat_get_autovacuum_count",
    "pg_stat_get_analyze_count",
    "pg_stat_get_autoanalyze_count",
    "pg_stat_get_db_numbackends",
    "pg_stat_get_db_xact_commit",
    "pg_stat_get_db_xact_rollback",
    "pg_stat_get_db_blocks_fetched",
    "pg_stat_get_db_blocks_hit",
    "pg_stat_get_db_tuples_returned",
    "pg_stat_get_db_tuples_fetched",
    "pg_stat_get_db_tuples_inserted",
    "pg_stat_get_db_tuples_updated",
    "pg_stat_get_db_tuples_deleted",
    "pg_stat_get_db_conflict_all",
    "pg_stat_get_db_temp_files",
    "pg_stat_get_db_temp_bytes",
    "pg_stat_get_db_deadlocks",
    "pg_stat_get_db_blk_read_time",
    "pg_stat_get_db_blk_write_time",
    "pg_tablespace_size",
    "pg_trigger_depth",
    "inet_server_port",
    "inet_client_port",
]
_SAME: Final = {  # DuckDB has them under the same name with the same meaning
    "lower": 1,
    "upper": 1,
    "length": 1,
    "left": 2,
    "right": 2,
    "md5": 1,
    "ascii": 1,
    "chr": 1,
    "reverse": 1,
    "starts_with": 2,
    "translate": 3,
    "strpos": 2,
    "abs": 1,
    "ceil": 1,
    "ceiling": 1,
    "floor": 1,
    "sqrt": 1,
    "power": 2,
    "mod": 2,
    "sign": 1,
    "split_part": 3,
}


def _numbered(kinds: Mapping[str, int]) -> str:
    """The OID of a system table by its name. Not CASE {1} WHEN: DuckDB computes {1} for each."""
    arms = (f"WHEN {{1}} = '{name}' THEN {oid}" for name, oid in kinds.items())
    return f"CASE {' '.join(arms)} END"


_OBJECT: Final = _numbered(
    {
        "pg_class": 1259,
        "pg_type": 1247,
        "pg_proc": 1255,
        "pg_namespace": 2615,
        "pg_constraint": 2606,
        "pg_operator": 2617,
        "pg_am": 2601,
        "pg_language": 2612,
        "pg_collation": 3456,
        "pg_cast": 2605,
        "pg_opclass": 2616,
        "pg_opfamily": 2753,
        "pg_conversion": 2607,
        "pg_ts_config": 3602,
        "pg_ts_dict": 3600,
        "pg_ts_parser": 3601,
        "pg_ts_template": 3764,
    }
)
_SHARED_OBJECT: Final = _numbered({"pg_database": 1262, "pg_authid": 1260, "pg_tablespace": 1213})
_DESCRIPTION: Final = (
    "(SELECT min(z.description) FROM k_pg_description z WHERE z.objoid = {0} AND z.objsubid = "
)
_INDEX: Final = "(SELECT z._def FROM k_pg_index z WHERE z.indexrelid = {0})"
_INDEX_COLUMN: Final = (
    "(SELECT CASE WHEN {1} = 0 THEN z._short ELSE z._columns[{1}] END "
    "FROM k_pg_index z WHERE z.indexrelid = {0})"
)
_CONSTRAINT: Final = "(SELECT z._def FROM k_pg_constraint z WHERE z.oid = {0})"
_CONSTRAINT_SHORT: Final = (
    "(SELECT CASE WHEN {1} THEN z._short ELSE z._def END FROM k_pg_constraint z WHERE z.oid = {0})"
)
_VISIBLE: Final = (
    "(SELECT list_contains(CAST($visible AS BIGINT[]), z.{column}) "
    "FROM k_{table} z WHERE z.oid = {{0}})"
)
# Views are read only, whatever they are over.
_TABLE: Final = (
    "{0} >= 16384 AND coalesce((SELECT z.relkind = 'r' FROM k_pg_class z WHERE z.oid = {0}), false)"
)
_VIEW: Final = "(SELECT z._view FROM k_pg_class z WHERE z.oid = {0})"
_SIZE: Final = (
    "coalesce((SELECT CAST(sum(z.bytes) AS BIGINT) FROM kv_sizes z WHERE z.oid = {0}), 0)"
)
_WHOLE_SIZE: Final = (
    "coalesce((SELECT CAST(sum(z.bytes) AS BIGINT) FROM kv_sizes z WHERE z.oid = {0} OR z.oid IN "
    "(SELECT y.indexrelid FROM k_pg_index y WHERE y.indrelid = {0})), 0)"
)
_DATABASE_SIZE: Final = (
    "coalesce((SELECT CAST(sum(z.bytes) AS BIGINT) FROM kv_sizes z JOIN k_pg_database y "
    "ON y.datname = z.ns WHERE CAST({0} AS VARCHAR) IN (CAST(y.oid AS VARCHAR), y.datname)), 0)"
)
_SERIAL: Final = (
    "(SELECT min(q._qname) FROM k_pg_depend d JOIN k_pg_class q ON q.oid = d.objid AND "
    "q.relkind = 'S' JOIN k_pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid "
    "WHERE d.classid = 1259 AND d.refclassid = 1259 AND d.deptype IN ('a', 'i') AND "
    "d.refobjid = {0} AND a.attname = {1})"
)
_ROLE: Final = "(SELECT z.rolname FROM k_pg_authid z WHERE z.oid = {0})"

# ' year to month' for the fields of an interval's modifier; '' for all of them.
INTERVAL_FIELDS: Final = (
    "CASE "
    + " ".join(f"WHEN {{0}} & 32767 = {fields} THEN ' {text}'" for fields, text in every_fields())
    + " ELSE '' END"
)
_INTERVAL_TYPE: Final = (
    f"CASE WHEN {{1}} < 0 OR {INTERVAL_FIELDS.format('({1} >> 16)')} = '' THEN '' ELSE "
    f"{INTERVAL_FIELDS.format('({1} >> 16)')} || CASE WHEN {{1}} & 65535 = 65535 THEN '' "
    "ELSE '(' || ({1} & 65535) || ')' END END"
)
SCALAR: Final[dict[str, Spec]] = {
    **dict.fromkeys(_ALWAYS, TRUE),
    **dict.fromkeys(_NOTHING, "NULL"),
    **dict.fromkeys(_ZERO, "0"),
    **{name: f"{name}({', '.join(f'{{{i}}}' for i in range(n))})" for name, n in _SAME.items()},
    # the session
    "version": "$version",
    "current_database": "$database",
    "current_catalog": "$database",
    "current_user": "$user",
    "session_user": "$user",
    "user": "$user",
    "current_role": "$user",
    "getpgusername": "$user",
    "current_schema": "$schema",
    "current_schemas": "CASE WHEN {0} THEN $schemas_all ELSE $schemas END",
    "current_query": "$query",
    "pg_backend_pid": "$pid",
    "pg_is_in_recovery": "false",
    "pg_is_wal_replay_paused": "false",
    "pg_postmaster_start_time": "$started",
    "pg_conf_load_time": "$started",
    "pg_my_temp_schema": "0",
    "pg_is_other_temp_schema": "false",
    "pg_client_encoding": "'UTF8'",
    "getdatabaseencoding": "'UTF8'",
    "pg_blocking_pids": "CAST([] AS INTEGER[])",
    "txid_current": "$txid",
    "txid_current_if_assigned": "$txid_known",
    "pg_current_xact_id": "$txid",
    "pg_current_xact_id_if_assigned": "$txid_known",
    "pg_jit_available": "false",
    "pg_advisory_unlock_all": "NULL",
    **dict.fromkeys(
        ("now", "statement_timestamp", "clock_timestamp", "transaction_timestamp"), "$now"
    ),
    # names and definitions
    "pg_table_is_visible": (
        "(SELECT list_contains(CAST($visible AS BIGINT[]), z.relnamespace) "
        "FROM k_pg_class z WHERE z.oid = {0})"
    ),
    "pg_get_userbyid": f"coalesce({_ROLE}, 'unknown (OID=' || {{0}} || ')')",
    "pg_get_expr": {2: "{0}", 3: "CASE WHEN {2} THEN kv_bare({0}) ELSE {0} END"},
    "pg_type_is_visible": _VISIBLE.format(table="pg_type", column="typnamespace"),
    "pg_function_is_visible": _VISIBLE.format(table="pg_proc", column="pronamespace"),
    "pg_get_constraintdef": {1: _CONSTRAINT, 2: _CONSTRAINT_SHORT},
    "pg_get_indexdef": {1: _INDEX, 3: _INDEX_COLUMN},
    "pg_get_viewdef": _VIEW,
    "_serial": _SERIAL,
    "pg_get_function_result": "(SELECT z._result FROM k_pg_proc z WHERE z.oid = {0})",
    "pg_get_function_arguments": "(SELECT z._arguments FROM k_pg_proc z WHERE z.oid = {0})",
    "pg_get_function_identity_arguments": "(SELECT z._identity FROM k_pg_proc z WHERE z.oid = {0})",
    "pg_get_functiondef": "NULL",
    "obj_description": {
        1: _DESCRIPTION + "0)",
        2: _DESCRIPTION + f"0 AND z.classoid = {_OBJECT})",
    },
    "shobj_description": (
        "(SELECT min(z.description) FROM k_pg_shdescription z WHERE z.objoid = {0} "
        f"AND z.classoid = {_SHARED_OBJECT})"
    ),
    "col_description": _DESCRIPTION + "{1} AND z.classoid = 1259 AND {1} <> 0)",
    "pg_encoding_to_char": (
        "CASE WHEN {0} = 6 THEN 'UTF8' WHEN {0} = 0 THEN 'SQL_ASCII' ELSE '' END"
    ),
    "pg_char_to_encoding": "CASE upper({0}) WHEN 'UTF8' THEN 6 ELSE -1 END",
    "pg_encoding_max_length": "4",
    "pg_tablespace_location": "''",
    "pg_tablespace_databases": "CAST([] AS BIGINT[])",
    "pg_describe_object": "CAST({1} AS VARCHAR)",
    "pg_index_column_has_property": (
        "CASE WHEN {2} IN ('desc', 'nulls_first') THEN false WHEN {2} IN ('orderable', 'asc', "
        "'nulls_last', 'returnable', 'search_array', 'search_nulls', 'distance_orderable') "
        "THEN true END"
    ),
    "pg_index_has_property": "({1} = 'index_scan')",
    "pg_indexam_has_property": (
        "({1} IN ('can_order', 'can_unique', 'can_multi_col', 'can_include'))"
    ),
    "pg_column_is_updatable": f"({_TABLE})",
    "pg_relation_is_updatable": f"CASE WHEN {_TABLE} THEN 28 ELSE 0 END",
    "row_security_active": "false",
    "pg_sequence_last_value": "(SELECT z.last FROM kv_sequences z WHERE z.oid = {0})",
    # sizes
    **dict.fromkeys(("pg_relation_size", "pg_table_size"), _SIZE),
    "pg_total_relation_size": _WHOLE_SIZE,
    "pg_indexes_size": (
        "coalesce((SELECT CAST(sum(z.bytes) AS BIGINT) FROM kv_sizes z JOIN k_pg_index y "
        "ON y.indexrelid = z.oid WHERE y.indrelid = {0}), 0)"
    ),
    "pg_database_size": _DATABASE_SIZE,
    "pg_size_pretty": "kv_size({0})",
    # text
    "repeat": "kv_repeat({0}, {1})",
    "lpad": {2: "kv_lpad({0}, {1}, ' ')", 3: "kv_lpad({0}, {1}, {2})"},
    "rpad": {2: "kv_rpad({0}, {1}, ' ')", 3: "kv_rpad({0}, {1}, {2})"},
    "replace": "kv_replace({0}, {1}, {2})",
    "char_length": "length({0})",
    "character_length": "length({0})",
    "octet_length": "strlen({0})",
    "btrim": {1: "trim({0}, ' ')", 2: "trim({0}, {1})"},
    "ltrim": {1: "ltrim({0}, ' ')", 2: "ltrim({0}, {1})"},
    "rtrim": {1: "rtrim({0}, ' ')", 2: "rtrim({0}, {1})"},
    "position": "strpos({0}, {1})",
    "substring": {2: "substring({0}, {1})", 3: "substring({0}, {1}, {2})"},
    "nameconcatoid": "({0} || '_' || {1})",
    "acldefault": rights.DEFAULT,
    "pg_get_function_arg_default": "NULL",
    "substr": {2: "substring({0}, {1})", 3: "substring({0}, {1}, {2})"},
    "quote_ident": "kv_quoted({0})",
    "quote_literal": "kv_literal({0})",
    "quote_nullable": "coalesce(kv_literal({0}), 'NULL')",
    "regexp_replace": {
        3: "kv_replaced({0}, {1}, {2}, '')",
        4: "kv_replaced({0}, {1}, {2}, {3})",
    },
    "regexp_split_to_array": "kv_split({0}, {1})",
    "regexp_match": {2: "kv_match({0}, {1})"},
    "string_to_array": "kv_to_array({0}, {1})",
    "like_escape": "kv_like_escape({0}, {1})",
    "text": "{0}",
    "pg_typeof": "{0}",
    # arrays
    "array_length": "nullif(len({0}), 0)",
    "array_lower": "CASE WHEN len({0}) > 0 THEN {base} END",
    "array_upper": "CASE WHEN len({0}) > 0 THEN len({0}) - 1 + {base} END",
    "array_ndims": "CASE WHEN len({0}) > 0 THEN 1 END",
    "cardinality": "len({0})",
    "array_position": "nullif(list_position({0}, {1}), 0)",
    "array_append": "list_append({0}, {1})",
    "array_prepend": "list_prepend({0}, {1})",
    "array_cat": lists_joined("{0}", "{1}"),
    "array_remove": "list_filter({0}, lambda kv_e: kv_e IS DISTINCT FROM {1})",
    # time
    "date_trunc": "date_trunc({0}, {1})",
    "timezone": "timezone({0}, {1})",
    "extract": "date_part({0}, {1})",
    "date_part": "date_part({0}, {1})",
    "age": {1: "($now - {0})", 2: "({0} - {1})"},
}

# Names of information_schema's functions: argument numbers → text, the type of the result by name.
INFORMATION: Final[dict[str, tuple[str, str]]] = {
    "_pg_char_max_length": (
        "CASE WHEN {1} = -1 THEN NULL WHEN {0} IN (1042, 1043) THEN {1} - 4 "
        "WHEN {0} IN (1560, 1562) THEN {1} END",
        "int4",
    ),
    "_pg_char_octet_length": (
        "CASE WHEN {0} IN (25, 1042, 1043) THEN CASE WHEN {1} = -1 THEN 1073741824 "
        "ELSE ({1} - 4) * 4 END END",
        "int4",
    ),
    "_pg_numeric_precision": (
        "CASE WHEN {0} = 21 THEN 16 WHEN {0} = 23 THEN 32 WHEN {0} = 20 THEN 64 "
        "WHEN {0} = 1700 THEN CASE WHEN {1} = -1 THEN NULL ELSE (({1} - 4) >> 16) & 65535 END "
        "WHEN {0} = 700 THEN 24 WHEN {0} = 701 THEN 53 END",
        "int4",
    ),
    "_pg_numeric_precision_radix": (
        "CASE WHEN {0} IN (21, 23, 20, 700, 701) THEN 2 WHEN {0} = 1700 THEN 10 END",
        "int4",
    ),
    "_pg_numeric_scale": (
        "CASE WHEN {0} IN (21, 23, 20) THEN 0 WHEN {0} = 1700 THEN "
        "CASE WHEN {1} = -1 THEN NULL ELSE ({1} - 4) & 65535 END END",
        "int4",
    ),
    "_pg_datetime_precision": (
        "CASE WHEN {0} = 1082 THEN 0 WHEN {0} IN (1083, 1114, 1184, 1266) THEN "
        "CASE WHEN {1} < 0 THEN 6 ELSE {1} END WHEN {0} = 1186 THEN "
        "CASE WHEN {1} < 0 OR ({1} & 65535) = 65535 THEN 6 ELSE {1} & 65535 END END",
        "int4",
    ),
    "_pg_index_position": (
        "(SELECT list_position(z.indkey, {1}) FROM k_pg_index z WHERE z.indexrelid = {0})",
        "int4",
    ),
    "_pg_interval_type": (
        f"CASE WHEN {{0}} = 1186 THEN nullif(upper(ltrim({_INTERVAL_TYPE})), '') END",
        "text",
    ),
}

# What returns rows: DuckDB's text of a list, and the type of its elements.
MANY: Final[dict[str, tuple[Spec, str]]] = {
    "pg_partition_ancestors": ("CAST([] AS BIGINT[])", "regclass"),
    "pg_partition_tree": ("CAST([] AS BIGINT[])", "regclass"),
    "pg_listening_channels": ("CAST([] AS VARCHAR[])", "text"),
    "pg_stat_get_backend_idset": ("[1]", "int4"),
    "regexp_split_to_table": ("kv_split({0}, {1})", "text"),
    "string_to_table": ("kv_to_array({0}, {1})", "text"),
}

# What looks at other fed relations, by the text that it expands to.
FED: Final = ("kv_sizes", "kv_sequences")

MACROS: Final = (
    # Arguments stand there once, but inside of lambdas: they may be long, of macros themselves.
    # An expression without parentheses around the whole.
    """CREATE MACRO pgc.kv_bare(s) AS
       regexp_replace(s, '^\\(([^()]*)\\)$', '\\1')""",
    # The parts of a name, without quotes.
    """CREATE MACRO pgc.kv_parts(s) AS list_transform(
       regexp_extract_all(trim(s), '"(?:[^"]|"")*"|[^."]+'), lambda kv_e:
       CASE WHEN kv_e[1] = '"' THEN replace(kv_e[2:-2], '""', '"') ELSE lower(kv_e) END)""",
    """CREATE MACRO pgc.kv_folded(s) AS array_to_string(kv_parts(s), '.')""",
    # As `_path`: with what no name has between the parts.
    """CREATE MACRO pgc.kv_path(s) AS array_to_string(kv_parts(s), chr(31))""",
    """CREATE MACRO pgc.kv_array_item(s) AS CASE WHEN s IS NULL THEN 'NULL' WHEN s = '' OR
       regexp_matches(s, '[{},"\\\\\\s]') OR lower(s) = 'null' THEN
       '"' || replace(replace(s, '\\', '\\\\'), '"', '\\"') || '"' ELSE s END""",
    """CREATE MACRO pgc.kv_size(s) AS list_transform([s], lambda n: CASE
       WHEN abs(n) < 10240 THEN n || ' bytes'
       WHEN abs(n) < 10485247 THEN CAST((n // 512 + sign(n)) // 2 AS BIGINT) || ' kB'
       WHEN abs(n) < 10736893952 THEN CAST((n // 524288 + sign(n)) // 2 AS BIGINT) || ' MB'
       WHEN abs(n) < 10994579406848 THEN CAST((n // 536870912 + sign(n)) // 2 AS BIGINT) || ' GB'
       ELSE CAST((n // 549755813888 + sign(n)) // 2 AS BIGINT) || ' TB' END)[1]""",
)
