"""What a procedure tells while it runs: events, which clients read, and go on reading from where
they were.

An event is a row that the step which emits it writes in its own transaction: it is there once if
the step counts, else not at all. Positions are whole numbers from 1 on, one after the other, in the
order of the commits. The newest PROCEDURE_EVENTS_KEPT are kept, until the procedure is forgotten.

Who reads is told of nothing: he asks for what comes after a position, and waits for more
(`Roster.listening`). So a reader costs nothing while he does not ask, however slow he is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kv.base import limits
from kv.base.keys import from_u64
from kv.base.ops import Op, delete, put
from procedures.engine import plain_data
from procedures.pools import rows
from procedures.pools.rows import Rows


class Emitted(NamedTuple):
    """What a step said."""

    name: str
    value: bytes  # plain data


class Event(NamedTuple):
    """One as it is kept."""

    position: int
    name: str
    at_ms: int
    value: object


class _Row(Protocol):
    @property
    def value(self) -> bytes: ...


class Gets(Protocol):
    """What is needed of a snapshot."""

    async def get(self, key: bytes) -> _Row | None: ...


async def ops_of(reads: Gets, id: int, said: Sequence[Emitted], now_ms: int) -> list[Op]:
    """What keeps these events of a procedure, after those that are there, and drops what is too
    old. The commit must be fenced by the procedure's record: then nobody else has written meanwhile
    what `reads` has read.
    """
    row = await reads.get(rows.shelf(id))
    return _kept(id, (1, 1) if row is None else tuple(plain_data.decode(row.value)), said, now_ms)


def first_ops(id: int, said: Sequence[Emitted], now_ms: int) -> list[Op]:
    """The same of a procedure that is not there yet."""
    return _kept(id, (1, 1), said, now_ms)


def _kept(id: int, shelf: tuple[int, ...], said: Sequence[Emitted], now_ms: int) -> list[Op]:
    first, at = shelf
    ops: list[Op] = []
    for name, value in said:
        ops.append(put(rows.event(id, at), plain_data.pack([name, now_ms, value])))
        at += 1
    old = min(max(first, at - limits.PROCEDURE_EVENTS_KEPT), first + 2 * len(said))
    ops += [delete(rows.event(id, gone)) for gone in range(first, old)]
    ops.append(put(rows.shelf(id), plain_data.pack([old, at])))
    return ops


async def after(store: Rows, id: int, position: int, limit: int) -> list[Event]:
    """The next ones after a position, as many as one page has."""
    start, end = rows.event(id, position + 1), rows.event(id, rows.POSITION_MAX)
    found = []
    for key, data, _ in (await store.scan(start, end, limit=limit)).items:
        name, at_ms, value = plain_data.decode(data)
        found.append(Event(from_u64(key, len(key) - 8), name, at_ms, plain_data.decode(value)))
    return found
