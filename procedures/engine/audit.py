"""Who did what to which procedure, and why: the book of surgery (surgery.py).

    AUDIT  01               → [u64]   the number of the next entry
    AUDIT  02 [number u64]  → plain map: number, at_ms, actor, what, procedure, name, reason, key,
                              options, procedures (before and after of each, the first so many),
                              count; together (true: of several actions)
    AUDIT  03 esc(actor) esc(what) esc(key) esc(name)  → [u64 …]  numbers of the key's entries, of
                              procedures of this type

An entry is written by the very transaction that it describes: there is no action without its entry,
nor an entry without its action. The entry's number is taken under the condition of row 01, so
actions have one order.

It is bounded: each entry removes the one AUDIT_ROWS_MAX before it, and a few of those that are
older than AUDIT_RETENTION_MS. `key` is its author's: an action that is asked for again under the
same key (its answer was lost) is answered from here and not done twice.

Actions on very many would push out all others: so those that are `together` share a key, and up to
AUDIT_PROCEDURES_NAMED_MAX of them on procedures of one type an entry, which each of them writes
anew. It names each of its procedures, those that were changed with it after it (`under`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kv.base import limits, system
from kv.base.keys import escape, from_u64, successor, table_prefix, u64
from kv.base.ops import Op, delete, put
from procedures.engine import plain_data
from procedures.engine.plain_data import Plain
from procedures.engine.store import ProcedureStore, Reads

_TABLE: Final = table_prefix(system.AUDIT)
HEAD: Final = _TABLE + b"\x01"
_ENTRIES: Final = _TABLE + b"\x02"
_KEYS: Final = _TABLE + b"\x03"
_SWEPT: Final = 4  # old entries that a new one removes
_SHARED_BYTES_MAX: Final = 64 * limits.KiB  # an entry that has so much takes no other action in
_NUMBERS_MAX: Final = 64  # entries of one key that are remembered

Entry = Plain
Seen = Callable[[str], bool] | None
"""Whether procedures of a type may be seen; None: all of them."""


class Book:
    """The entries of one store."""

    def __init__(self, store: ProcedureStore) -> None:
        self._store = store

    async def entry_ops(self, entry: Entry) -> list[Op]:
        """What writes `entry` as the next one, or into the one of its key that it shares; fails on
        HEAD if another came first.
        """
        key = _key(entry)
        if entry.get("together"):
            entry = {**entry, "procedures": _with_root(entry)}
        reads = await self._store.reads()
        try:
            row = await reads.get(HEAD)
            number = 1 if row is None else from_u64(row.value)
            mine = await reads.get(key) if key else None
            numbers = () if mine is None else _numbers(mine.value)
            if row is not None and numbers and entry.get("together"):
                last = await reads.get(_entry(numbers[-1]))
                if last is not None and (shared := _joined(last.value, entry)):
                    return [
                        put(HEAD, row.value, cond=row.version),
                        put(_entry(numbers[-1]), shared),
                    ]
            old = await _outdated(reads, number, entry["at_ms"])
        finally:
            await reads.close()
        if key:
            old.pop(key, None)
            kept = [*numbers, number][-_NUMBERS_MAX:]
            old[key] = put(key, b"".join(map(u64, kept)))
        return [
            put(HEAD, u64(number + 1), cond=0 if row is None else row.version),
            put(_entry(number), _packed({"number": number, **entry})),
            *old.values(),
        ]

    async def repeated(self, what: str, actor: str, key: str, procedure: int) -> Entry | None:
        """What is written of this action, which has a key; of those that share it, on this
        procedure.
        """
        if not key:
            return None
        span = _keys_of(actor, what, key)
        reads = await self._store.reads()
        try:
            page = await reads.scan(span, successor(span), limit=_NUMBERS_MAX)
            for _, value, _ in page.items:
                for number in reversed(_numbers(value)):
                    row = await reads.get(_entry(number))
                    entry: Entry | None = None if row is None else plain_data.decode(row.value)
                    if entry is not None and not entry.get("together"):
                        return entry
                    if entry is not None and (found := _own(entry, str(procedure))):
                        options = found[0].get("options", entry["options"])
                        own = {
                            "procedure": str(procedure),
                            "procedures": found,
                            "count": len(found),
                        }
                        return {**entry, **own, "options": options}
        finally:
            await reads.close()
        return None

    async def page(
        self,
        *,
        procedure: int = 0,
        before: int = 0,
        limit: int,
        seen: Seen = None,
    ) -> tuple[list[Entry], int]:
        """The newest first, with numbers below `before` (0 = all); of one procedure, or all; of
        types that are `seen`. And the number below which to ask on, 0: the book has no more. It
        ends early after PROCEDURE_LOOKED_MAX that were looked at, PROCEDURE_PASSED_MAX others, or
        with so many bytes.
        """
        found: list[Entry] = []
        left, passed, size = limits.PROCEDURE_LOOKED_MAX, 0, 0
        end = _entry(before) if before else successor(_ENTRIES)
        reads = await self._store.reads()
        try:
            while True:
                most = min(left, max(limit, limits.PROCEDURE_LIST_DEFAULT))
                page = await reads.scan(_ENTRIES, end, limit=most, reverse=True)
                for end, value, _ in page.items:
                    entry, size = plain_data.decode(value), size + len(value)
                    if seen is not None and not seen(entry["name"]):
                        passed += 1
                    else:
                        left -= 1
                        if not procedure or _is_of(entry, procedure):
                            found += seen_of([entry], seen)
                    full = len(found) == limit or (found and size >= limits.SCAN_PAGE_BYTES_MAX)
                    if full or not left or passed == limits.PROCEDURE_PASSED_MAX:
                        return found, from_u64(end[len(_ENTRIES) :])
                if page.resume is None or not page.items:
                    return found, 0
        finally:
            await reads.close()


def seen_of(entries: Sequence[Entry], seen: Seen) -> list[Entry]:
    """Those about procedures of types that are `seen`, without others that were changed, too."""
    if seen is None:
        return list(entries)
    return [
        {**entry, "procedures": [one for one in entry["procedures"] if seen(one["name"])]}
        for entry in entries
        if seen(entry["name"])
    ]


async def _outdated(reads: Reads, number: int, now_ms: int) -> dict[bytes, Op]:
    """What goes when an entry of this number is written."""
    page = await reads.scan(_entry(1), successor(_ENTRIES), limit=_SWEPT)
    gone: dict[bytes, Op] = {}
    for at, value, _ in page.items:
        old = plain_data.decode(value)
        kept_ms = old["at_ms"] + limits.AUDIT_RETENTION_MS
        if kept_ms >= now_ms and old["number"] + limits.AUDIT_ROWS_MAX > number:
            continue
        gone[at] = delete(at)
        key = _key(old)
        row = await reads.get(key) if key else None
        if row is not None and _numbers(row.value)[-1] == old["number"]:
            gone[key] = delete(key)
    return gone


def _with_root(entry: Entry) -> list[Plain]:
    """Its procedures, itself first, each saying with which one it was changed."""
    id, named = entry["procedure"], entry["procedures"]
    if not any(one["procedure"] == id for one in named):
        nothing: Plain = {"before": {}, "after": {}, "locks_released": []}
        named = [{"procedure": id, "name": entry["name"], **nothing}, *named]
    return [one if one["procedure"] == id else {**one, "under": id} for one in named]


def _joined(packed: bytes, entry: Entry) -> bytes:
    """An entry with one action more; b"": it has no place."""
    there, most = plain_data.decode(packed), limits.AUDIT_PROCEDURES_NAMED_MAX
    roots = sum("under" not in one for one in there["procedures"])
    if len(packed) >= _SHARED_BYTES_MAX or roots >= most:
        return b""
    below = max(0, most - len(there["procedures"]))
    named = [one for one in entry["procedures"] if "under" not in one]
    if entry["options"] != there["options"]:
        named = [{**one, "options": entry["options"]} for one in named]
    named += [one for one in entry["procedures"] if "under" in one][:below]
    there["procedures"] += named
    there["count"] += entry["count"]
    return _packed({**there, "at_ms": entry["at_ms"]})


def _own(entry: Entry, id: str) -> list[Plain]:
    """What an entry of several says of one of them, and what was changed with it."""
    return [one for one in entry["procedures"] if one.get("under", one["procedure"]) == id]


def _packed(entry: Entry) -> bytes:
    return plain_data.encode(entry, "an entry of the audit", limits.MiB)


def _numbers(value: bytes) -> tuple[int, ...]:
    return tuple(from_u64(value[at : at + 8]) for at in range(0, len(value), 8))


def _key(entry: Entry) -> bytes:
    """The row of its key; b"": it has none."""
    if not entry["key"]:
        return b""
    return _keys_of(entry["actor"], entry["what"], entry["key"]) + escape(entry["name"].encode())


def _keys_of(actor: str, what: str, key: str) -> bytes:
    return _KEYS + b"".join(escape(part.encode()) for part in (actor, what, key))


def _is_of(entry: Entry, procedure: int) -> bool:
    id = str(procedure)
    return entry["procedure"] == id or any(p["procedure"] == id for p in entry["procedures"])


def _entry(number: int) -> bytes:
    return _ENTRIES + u64(number)
