"""Names of storage shards: what keeps the rows of some partitions apart from all others' at a node.

    shard    NAME or NAME:POLICY; "" = the default one, which is always there
    family   NAME of the default shard's, `cur@NAME:POLICY` of another's

The policy says how files are arranged and merged (docs/decisions/1450): `leveled` where nothing is
said. It is part of the name, because RocksDB cannot change it while the database is open: another
policy is another shard, with files of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

LEVELED: Final = "leveled"
UNIVERSAL: Final = "universal"
POLICIES: Final = (LEVELED, UNIVERSAL)
SHARD_RULE: Final = (
    "NAME or NAME:POLICY: 1 to 32 lower-case letters, digits, '_' and '-', the first one a letter "
    f"or digit; the policy is {' or '.join(POLICIES)}"
)
SHARDED: Final = ("cur", "hist", "lock")
"""The families that a shard has of its own: what grows with users' rows. Records of transactions
and guards are few, and the collector's queue is one for the node."""
_SHARD: Final = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,31}}(:({'|'.join(POLICIES)}))?")
_PROPOSED_RATE_MIN: Final = 10.0  # requests per second below which a mix means nothing
_WRITTEN_SHARE: Final = 0.9  # of the requests from which on files are best merged seldom …
_READ_SHARE: Final = 0.5  # … and up to which a read should look into few; between: as it is
_APART: Final = "@"


def is_shard(shard: object) -> bool:
    """Whether it may name a shard, the default one, too."""
    return type(shard) is str and (not shard or _SHARD.fullmatch(shard) is not None)


def canonical(shard: str) -> str:
    """The one name of those that mean the same."""
    return shard.removesuffix(f":{LEVELED}")


def policy_of(shard: str) -> str:
    return shard.partition(":")[2] or LEVELED


def proposed_policy(shard: str, reads: float, writes: float) -> str:
    """The policy that fits so many requests per second: universal compaction writes a row fewer
    times, leveled has it in fewer files.
    """
    total = reads + writes
    if total >= _PROPOSED_RATE_MIN:
        if writes >= _WRITTEN_SHARE * total:
            return UNIVERSAL
        if writes <= _READ_SHARE * total:
            return LEVELED
    return policy_of(shard)


def family_of(family: str, shard: str) -> str:
    """The family of a shard that has what `family` has of the default one."""
    return f"{family}{_APART}{shard}" if shard else family


def parted(family: str) -> tuple[str, str]:
    """The reverse: which family it is of which shard."""
    name, _, shard = family.partition(_APART)
    return name, shard


def shards_of(families: Iterable[str]) -> list[str]:
    """The shards that these families are of, in order."""
    return sorted({shard for _, shard in map(parted, families) if shard})


def unwanted(families: Iterable[str], wanted: Collection[str]) -> list[str]:
    """Those of shards, but for the wanted ones."""
    return [name for name in families if (shard := parted(name)[1]) and shard not in wanted]
