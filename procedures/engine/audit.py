"""Who did what to which procedure, and why: the book of surgery (surgery.py).

    AUDIT  01               → [u64]   the number of the next entry
    AUDIT  02 [number u64]  → plain map: number, at_ms, actor, what, procedure, name, reason, key,
                              options, procedures (before and after of each, the first so many),
                              count

An entry is written by the very transaction that it describes: there is no action without its entry,
nor an entry without its action. The entry's number is taken under the condition of row 01, so
actions have one order.

It is bounded: each entry removes the one AUDIT_ROWS_MAX before it, and a few of those that are
older than AUDIT_RETENTION_MS. `key` is its author's: an action that is asked for again under the
same key (its answer was lost) is answered from here and not done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kv.base import limits, system
from kv.base.keys import from_u64, successor, table_prefix, u64
from kv.base.ops import Op, delete, put
from procedures.engine import plain_data
from procedures.engine.plain_data import Plain
from procedures.engine.store import ProcedureStore

_TABLE: Final = table_prefix(system.AUDIT)
HEAD: Final = _TABLE + b"\x01"
_ENTRIES: Final = _TABLE + b"\x02"
_SWEPT: Final = 4  # old entries that a new one removes
_REPEATS: Final = 100  # entries back to which a key is looked for

Entry = Plain
Seen = Callable[[str], bool] | None
"""Whether procedures of a type may be seen; None: all of them."""


class Book:
    """The entries of one store."""

    def __init__(self, store: ProcedureStore) -> None:
        self._store = store

    async def entry_ops(self, entry: Entry) -> list[Op]:
        """What writes `entry` as the next one; fails on HEAD if another came first."""
        reads = await self._store.reads()
        try:
            row = await reads.get(HEAD)
            number = 1 if row is None else from_u64(row.value)
            page = await reads.scan(_entry(1), successor(_ENTRIES), limit=_SWEPT)
        finally:
            await reads.close()
        old = [
            key
            for key, value, _ in page.items
            if plain_data.decode(value)["at_ms"] + limits.AUDIT_RETENTION_MS < entry["at_ms"]
        ]
        if number > limits.AUDIT_ROWS_MAX:
            old.append(_entry(number - limits.AUDIT_ROWS_MAX))
        packed = plain_data.encode({"number": number, **entry}, "an entry of the audit", limits.MiB)
        return [
            put(HEAD, u64(number + 1), cond=0 if row is None else row.version),
            put(_entry(number), packed),
            *(delete(key) for key in dict.fromkeys(old)),
        ]

    async def repeated(self, key: str) -> Entry | None:
        """The entry of this key, if it is one of the last."""
        if not key:
            return None
        newest, _ = await self.page(limit=_REPEATS)
        return next((entry for entry in newest if entry["key"] == key), None)

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
        ends early after PROCEDURE_LOOKED_MAX that were looked at, or PROCEDURE_PASSED_MAX others.
        """
        found: list[Entry] = []
        left, passed = limits.PROCEDURE_LOOKED_MAX, 0
        end = _entry(before) if before else successor(_ENTRIES)
        reads = await self._store.reads()
        try:
            while True:
                most = min(left, max(limit, limits.PROCEDURE_LIST_DEFAULT))
                page = await reads.scan(_ENTRIES, end, limit=most, reverse=True)
                for end, value, _ in page.items:
                    entry = plain_data.decode(value)
                    if seen is not None and not seen(entry["name"]):
                        passed += 1
                    else:
                        left -= 1
                        if not procedure or _is_of(entry, procedure):
                            found += seen_of([entry], seen)
                    if len(found) == limit or not left or passed == limits.PROCEDURE_PASSED_MAX:
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


def _is_of(entry: Entry, procedure: int) -> bool:
    id = str(procedure)
    return entry["procedure"] == id or any(p["procedure"] == id for p in entry["procedures"])


def _entry(number: int) -> bytes:
    return _ENTRIES + u64(number)
