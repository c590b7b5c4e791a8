"""What becomes of the system's rows in a restore. Pure: rows in, rows out.

Procedures that had not ended at the backup's timestamp go on, with their locks, if they are users',
or locks of users' code (`kvorum.lock`). The product's own had to do with the cluster that is gone
(replicas to be moved, a batch half committed): they are shown as failed with the code RESTORED, so
that whoever asks with their nonce or their id learns it. A backup does not appear in itself.

A lock is written in the transaction that writes the record of its holder, with GRANTED_HERE: so
the new token is the version of both, as if it were granted now; it is larger than every token of
before, and whoever writes with an old one is fenced off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Final

from msgspec.structs import replace

from kv.base import system
from kv.base.checksum import CRC_BYTES, intact
from kv.base.errors import Corruption
from kv.base.keys import escape, from_u64, table_prefix, unescape
from kv.base.ops import Op, put
from kvorum.transfer.backup_scope import Rule, rule_of, table_of
from kvorum.transfer.blocks import Row
from procedures.bus import settings
from procedures.engine import kv_store, records
from procedures.engine.grants import key_of
from procedures.engine.lock_procedure import LOCK
from procedures.engine.procedure import State
from procedures.engine.records import GRANTED_HERE, Failure, Record
from procedures.pools import rows as pools
from sqlproxy.rows.records import (
    FORMAT,
    RELATION_FORMATS,
    decode_table,
    decode_type,
    encode_table,
    encode_type,
    opened,
    sealed,
)
from sqlproxy.values import enums

RESTORED: Final = "RESTORED"
_BACKUPS: Final = frozenset({"kvorum.backup", "kvorum.backup_here"})
_NODE_COUNTER: Final = table_prefix(system.COUNTERS) + escape(b"node")
_SETTINGS: Final = table_prefix(system.CLUSTER) + escape(settings.SETTING.encode())
_NO_APPLICATION: Final = table_prefix(system.SINK_MARKERS) + escape(b"")
_DUE: Final = table_prefix(system.RUNNABLE) + b"\x02"


def goes_on(record: Record, own: Collection[str]) -> bool:
    """Whether it is taken up again; `own`: names of the product's procedures."""
    return not record.ended and (record.name == LOCK or record.name not in own)


def early(row: Row, own: Collection[str], now_ms: int) -> list[Op]:
    """What is written of one row before anybody can see it."""
    key, value, _, _ = row
    table = table_of(key)
    if rule_of(table) is not Rule.EARLY:
        return []
    if table == system.PROCEDURES:
        return _record(key, value, own, now_ms)
    if table == system.RUNNABLE and not key.startswith(_DUE):
        return []  # live: with its record
    return [put(key, value)]


def _record(key: bytes, value: bytes, own: Collection[str], now_ms: int) -> list[Op]:
    record = records.decode(value, f"procedure {kv_store.id_in(key)} of the backup")
    if record.ended:
        return [put(key, value)]
    if goes_on(record, own) or record.name in _BACKUPS:
        return []
    why = (
        "the cluster was restored from a backup in which this had not ended; start it again if it "
        "is still wanted"
    )
    over = replace(
        record,
        state=State.FAILED,
        error=Failure(RESTORED, why),
        updated_ms=now_ms,
        event="",
        due_ms=0,
        waits_for=False,
        locks=(),
        grant=0,
    )
    due = () if record.parent else (put(kv_store.due_key(over), b""),)
    return [put(key, records.encode(over)), *due]


def live(rows: Iterable[Row], own: Collection[str]) -> list[Record]:
    """The procedures that go on: those that hold locks first, each with its mark."""
    found = []
    for key, value, version, _ in rows:
        if table_of(key) != system.PROCEDURES:
            continue
        record = records.decode(value, f"procedure {kv_store.id_in(key)} of the backup")
        if goes_on(record, own):
            found.append(record.settled(version))
    return sorted(found, key=lambda record: (not record.grant, record.id))


def live_ops(record: Record) -> list[Op]:
    """The rows of one that goes on; it has its locks again."""
    grant = GRANTED_HERE if record.grant else 0
    ops = [
        put(kv_store.record_key(record.id), records.encode(replace(record, grant=grant))),
        put(kv_store.live_key(record.id), b""),
    ]
    if grant:
        ops += [put(key_of(name, record.id), mode.encode()) for mode, name in record.locks]
    return ops


def late(rows: Iterable[Row]) -> list[tuple[bytes, bytes, int]]:
    """(key, value, when it expires) of what is written at once, when everything else is there.
    Counters, schema versions and settings still have to be compared with what there is (`merged`).
    """
    return [
        (key, value, expire)
        for key, value, _, expire in rows
        if rule_of(table_of(key)) is Rule.LATE and _wanted(key)
    ]


def _wanted(key: bytes) -> bool:
    match table_of(key):
        case system.CLUSTER:
            return key.startswith(_SETTINGS)
        case system.COUNTERS:
            return key != _NODE_COUNTER
        case system.WORKERS:
            return not pools.ALL_WORKERS[0] <= key < pools.ALL_WORKERS[1]
        case system.SINK_MARKERS:
            return not key.startswith(_NO_APPLICATION)
        case _:
            return True


def merged(key: bytes, value: bytes, here: bytes | None) -> bytes:
    """The value to write where something may be there already. Raises Corruption."""
    table = table_of(key)
    if table == system.COUNTERS:
        return value if here is None or _counted(key, value) >= _counted(key, here) else here
    if table == system.SCHEMAS:  # above both: who remembers either looks again
        versions = [int(opened(key, row)[1]) for row in (value, here) if row is not None]
        return sealed(key, [FORMAT, max(versions) + 1])
    if table == system.CLUSTER:
        name = unescape(key, len(_SETTINGS))[0].decode()
        version, wanted = settings.decode_setting(name, value)
        there = settings.decode_setting(name, here)[0] if here is not None else 0
        return settings.encode_setting(name, max(version, there) + 1, wanted)
    return value


def _counted(key: bytes, value: bytes) -> int:
    if len(value) != 8 + CRC_BYTES or not intact(key, value):
        raise Corruption("a counter is damaged", details={"key": key})
    return from_u64(value)


def with_version(key: bytes, value: bytes, version: int) -> bytes:
    """A type, or a table with columns of types, as this version of them, which is above any there
    was: processes that live on know other types under these names since the backup, and would go
    on by that. Raises Corruption.
    """
    match table_of(key):
        case system.RELATIONS:
            prefix = table_prefix(system.RELATIONS)
            row = opened(key, value, RELATION_FORMATS)
            if row[1] != "enum":
                return value
            namespace, rest = unescape(key, len(prefix))
            one = decode_type(namespace.decode(), unescape(key, rest)[0].decode(), row)
            one = dataclasses.replace(one, enum=dataclasses.replace(one.enum, version=version))
            return sealed(key, encode_type(one))
        case system.TABLES:
            table = decode_table(key, value)
            if not any(enums.oid_in(column.type) for column in table.columns):
                return value
            columns = tuple(
                dataclasses.replace(column, type=_type_at(column.type, version))
                for column in table.columns
            )
            return sealed(key, encode_table(dataclasses.replace(table, columns=columns)))
        case _:
            return value


def _type_at(kind: str, version: int) -> str:
    if not enums.oid_in(kind):
        return kind
    one = dataclasses.replace(enums.parsed(kind.removesuffix("[]")), version=version)
    return enums.text_of(one) + ("[]" if kind.endswith("[]") else "")


MERGED: Final = frozenset({system.COUNTERS, system.SCHEMAS, system.CLUSTER})
"""Tables whose rows `merged` compares with what there is."""
