"""Table ids of the system's own tables, all in the meta range. Never renumber: they are on disk."""

from __future__ import annotations

from typing import Final

from kv.base.ids import TableId

NAMESPACES: Final = TableId(1)  # esc(name) → namespace descriptor
TABLES: Final = TableId(2)  # esc(namespace) esc(name) → table descriptor
TABLES_BY_ID: Final = TableId(3)  # u32 table id → (namespace, name)
COUNTERS: Final = TableId(4)  # esc(name) → u64: next table id, next partition id, next procedure id
PARTITIONS: Final = TableId(5)  # esc(start key) → partition descriptor
RELATIONS: Final = TableId(6)  # esc(namespace) esc(name) → views, sequences, names of indexes
SEQUENCES: Final = TableId(7)  # u32 sequence id → where it stands
SCHEMAS: Final = TableId(8)  # esc(namespace) → how often anything in it was changed
PROXIES: Final = TableId(9)  # esc(proxy) → what it uses (sqlproxy/catalog/declaration_users.py)
PROCEDURES: Final = TableId(10)  # u64 procedure id → record
PROCEDURE_STEPS: Final = TableId(11)  # u64 procedure id, u32 sequence → step history
NONCES: Final = TableId(12)  # esc(owner) esc(nonce) → u64 procedure id
NATIVE_WRITERS: Final = TableId(14)  # u32 table id → somebody writes it without SQL
LOCKS: Final = TableId(15)  # who holds which resource (procedures/engine/grants.py)
RUNNABLE: Final = TableId(13)  # due time and procedure id of what must run, wait or be cleaned
WORKERS: Final = TableId(16)  # workers, types, queues, … (procedures/pools/rows.py)
AUDIT: Final = TableId(17)  # what operators did to procedures (procedures/engine/audit.py)
SINK_ATTEMPTS: Final = TableId(20)  # esc(attempt) → state, lease, tasks
SINK_CHUNKS: Final = TableId(21)  # esc(attempt) esc(task) u32 seq → staged rows
SINK_MARKERS: Final = TableId(22)  # esc(application) u32 table → last version, query id
SINK_PLACES: Final = TableId(24)  # u32 table → attempt that lays rows in it in place
ROLES: Final = TableId(23)  # esc(name) → a role of SQL (sqlproxy/catalog/roles.py)
TOKENS: Final = TableId(25)  # esc(id) → an API token (sqlproxy/catalog/tokens.py)
GRANTS: Final = TableId(26)  # esc(role) → what it was granted (sqlproxy/catalog/grants.py)
NOTIFICATIONS: Final = TableId(27)  # esc(database) u64 txn u32 number → what NOTIFY said
ROLE_SETTINGS: Final = TableId(28)  # esc(role) esc(database) → what sessions begin with
STATISTICS: Final = TableId(29)  # 0 u32 table → its size; 1 u32 table → statistics of its columns
CLUSTER: Final = TableId(30)  # nodes, settings, that it was restored (kvorum/native/epoch.py)

UNVERSIONED: Final = frozenset({SINK_CHUNKS.to_bytes(4, "big")})
"""Prefixes of the tables whose replaced and deleted records are not kept for older snapshots:
large, read at the newest state only, by those who wrote them.
"""
