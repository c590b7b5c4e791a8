"""What belongs to a backup, and what a restore does with each of the system's tables. Pure.

Everything in the meta range is copied but what is not versioned or only means something to the
running cluster; every user table and index is. In a restore each system table has a rule:

    DROP      means something only in the cluster that it was taken of: members, map, locks of the
              moment, attempts and staged rows of Spark (a batch that was not committed at the
              backup's timestamp is written again by its query)
    EARLY     written before anybody can see the tables: records of ended procedures and what
              belongs to them
    LATE      in the one transaction that makes everything visible at once
    LIVE      procedures that had not ended, with their locks: at the very end

Tables of later versions that this program does not know are LATE, so that nothing is lost.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from kv.base import system
from kv.base.ids import FIRST_USER_TABLE, TableId
from kv.base.keys import table_range, u32


class Rule(Enum):
    DROP = auto()
    EARLY = auto()
    LATE = auto()
    LIVE = auto()


RULES: Final[dict[int, Rule]] = {
    system.NAMESPACES: Rule.LATE,
    system.TABLES: Rule.LATE,
    system.TABLES_BY_ID: Rule.LATE,
    system.COUNTERS: Rule.LATE,
    system.PARTITIONS: Rule.DROP,  # read for where ranges were cut
    system.RELATIONS: Rule.LATE,
    system.SEQUENCES: Rule.LATE,
    system.SCHEMAS: Rule.LATE,
    system.PROXIES: Rule.DROP,
    system.PROCEDURES: Rule.EARLY,  # those that had not ended: LIVE
    system.PROCEDURE_STEPS: Rule.EARLY,
    system.NONCES: Rule.EARLY,
    system.RUNNABLE: Rule.EARLY,
    system.NATIVE_WRITERS: Rule.LATE,
    system.LOCKS: Rule.LIVE,
    system.WORKERS: Rule.LATE,
    system.AUDIT: Rule.LATE,
    system.SINK_ATTEMPTS: Rule.DROP,
    system.SINK_CHUNKS: Rule.DROP,
    system.SINK_MARKERS: Rule.LATE,
    system.SINK_PLACES: Rule.DROP,
    system.ROLES: Rule.LATE,
    system.TOKENS: Rule.LATE,
    system.GRANTS: Rule.LATE,
    system.NOTIFICATIONS: Rule.DROP,
    system.ROLE_SETTINGS: Rule.LATE,
    system.STATISTICS: Rule.DROP,  # they are made again
    system.CLUSTER: Rule.LATE,
}
NOT_COPIED: Final = frozenset(
    {
        system.SINK_CHUNKS,
        system.SINK_ATTEMPTS,
        system.SINK_PLACES,
        system.PROXIES,
        system.NOTIFICATIONS,
        system.STATISTICS,
    }
)
SYSTEM_IDS: Final = tuple(
    TableId(number) for number in range(1, FIRST_USER_TABLE) if number not in NOT_COPIED
)


def rule_of(table: int) -> Rule:
    return RULES.get(table, Rule.LATE)


def is_system(key: bytes) -> bool:
    return key[:4] < u32(FIRST_USER_TABLE)


def table_of(key: bytes) -> int:
    """The id that a storage key begins with."""
    return int.from_bytes(key[:4], "big")


def system_spans() -> list[tuple[bytes, bytes]]:
    """The key ranges of the system's tables that are copied, neighbours joined."""
    spans: list[tuple[bytes, bytes]] = []
    for number in SYSTEM_IDS:
        low, high = table_range(number)
        if spans and spans[-1][1] == low:
            spans[-1] = spans[-1][0], high
        else:
            spans.append((low, high))
    return spans
