"""Identifiers: plain integers or strings on the wire; NewTypes keep them apart in the code."""

from __future__ import annotations

from typing import NewType

NodeId = NewType("NodeId", int)
PartitionId = NewType("PartitionId", int)  # also the id of its Raft group
TableId = NewType("TableId", int)
TxnId = NewType("TxnId", int)  # = start_ts: unique, because the oracle never repeats
ProcedureId = NewType("ProcedureId", int)

META_PARTITION = PartitionId(1)
FIRST_USER_TABLE = TableId(100)
FIRST_PRIVATE_TABLE = TableId(0xF800_0000)
"""From here on tables are one session's (txn/private.py): no partition has their rows."""
