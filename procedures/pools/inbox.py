"""What reaches a running procedure from outside: signals with a payload, and completions.

A signal is a row of its own, so that it neither waits for the step under way nor fences it. A step
takes it in its own transaction (`ctx.receive`): it is gone exactly when the step commits, so it is
taken once. Waking is in memory (`Roster.signal`), after the row is durable; whoever is woken looks.

A signal may have a key, and is sent once with it: the newest PROCEDURE_KEYS_KEPT keys of a
procedure are known, with the answers of updates among them. So one that lives for ever keeps no
more than that.

A completion ends what a step asked of an outside system: the step gets a token (`ctx.external`),
hands it out and waits; whoever has the token completes it once, with a result or an error.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Final, Protocol

from kv.base import limits
from kv.base.errors import ConditionFailed, InvalidArgument, KvorumError, Refused, TooLarge
from kv.base.keys import from_u64, u64, unescape
from kv.base.ops import Op, check, delete, put
from procedures.engine import plain_data
from procedures.engine.grants import REIGN, deposed
from procedures.engine.procedure import State
from procedures.engine.records import Record
from procedures.engine.submission import checked_name, checked_text
from procedures.pools import rows
from procedures.pools.rows import Rows
from txn.results import ScanPage

_ERROR: Final = "an error of a completion"


class Scans(Protocol):
    """What is needed of a step's transaction, or of Rows."""

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> ScanPage: ...


_SIGNAL: Final = "signal:"
_DONE: Final = "done:"


def signal_event(id: int, name: str) -> str:
    """The event under which a procedure waits for a signal."""
    return f"{_SIGNAL}{id}:{name}"


def done_event(token: str) -> str:
    return f"{_DONE}{token}"


def kept(id: int, event: str) -> tuple[bytes, bytes] | None:
    """The range of rows that this procedure waits for with `event`. None: of such an event nothing
    is kept, only who waits for it already hears of it.
    """
    if event.startswith(own := f"{_SIGNAL}{id}:"):
        return rows.signals(id, event[len(own) :])
    if event.startswith(_DONE):
        row = rows.done(id, event[len(_DONE) :])
        return row, row + b"\x00"
    return None


async def is_there(reads: Scans, span: tuple[bytes, bytes]) -> bool:
    """Whether anything is kept in a range of `kept`."""
    return bool((await reads.scan(*span, limit=1)).items)


def update_name(name: str) -> str:
    """The signal as which an update is kept."""
    return f"update:{name}"


def answer_row(id: int, key: str) -> bytes:
    """Where the answer of an update is, as long as its procedure is kept: [ok, value]."""
    return rows.done(id, f"update:{key}")


def answered_before(error: ConditionFailed, id: int) -> str:
    """The key of the update that was to be answered once more; "": it was refused for another
    reason.
    """
    row, start = error.details.get("key"), rows.done(id, "update:")[:-2]
    if not isinstance(row, bytes) or not row.startswith(start):
        return ""
    return unescape(row, len(start) - len("update:"))[0].decode().removeprefix("update:")


async def answer(store: Rows, id: int, key: str) -> tuple[bool, object] | None:
    """How an update was answered; None: it was not yet."""
    data, _ = await store.get(answer_row(id, key))
    return None if data is None else read_done(data)


def token_of(step_token: str) -> str:
    """The token that `ctx.external` hands out; it names the procedure (`salt-id-seq`)."""
    return f"ext-{step_token}"


def owner_of(token: str) -> int:
    """The procedure that handed out a token. Raises InvalidArgument."""
    parts = token.split("-")
    good = len(parts) == 4 and parts[0] == "ext" and parts[2].isascii() and parts[2].isdigit()
    if not good or (owner := int(parts[2][:21])) >> 64:
        raise InvalidArgument(f"{token!r:.80} is no token of ctx.external()")
    return owner


class _Counted:
    """What is kept of one procedure, as far as this reign knows."""

    __slots__ = ("keys", "lock", "oldest", "signals")

    def __init__(self, signals: int, keys: int, oldest: bytes) -> None:
        self.signals = signals  # at most so many that nobody took
        self.keys = keys  # just so many, with their times
        self.oldest = oldest  # where the first one is that nobody drops yet
        self.lock = asyncio.Lock()  # of several at a time each drops others


class Senders:
    """Keeps signals, for one reign: nobody else does meanwhile, so it counts once what there is."""

    def __init__(self, store: Rows) -> None:
        self._store = store
        self._reign = 0
        self._counted: OrderedDict[int, _Counted] = OrderedDict()

    async def send(self, id: int, name: str, payload: bytes, key: str | None, reign: int) -> bool:
        """Keep a signal until it is taken; False: one with this key was sent before. The procedure
        exists. Raises TooLarge (too many that nobody takes), Unavailable: this reign is over, and
        whoever waits would not be woken.
        """
        check_signal(name, payload, key)
        if key is not None and (await self._store.get(rows.signal_key(id, key)))[0] is not None:
            return False  # however many there are by now
        counted = await self._count(id, reign)
        ops = signal_ops(id, name, payload, key, await self._store.now())
        ops.append(check(REIGN, reign))
        if key is not None:
            ops += await self._outdated(id, counted)
        counted.signals += 1  # whatever becomes of it
        try:
            await self._store.write(ops)
        except ConditionFailed as error:
            self._counted.pop(id, None)
            _refuse_deposed(error)
            return False
        except KvorumError:
            self._counted.pop(id, None)
            raise
        return True

    async def _count(self, id: int, reign: int) -> _Counted:
        if reign != self._reign:
            self._reign = reign
            self._counted.clear()
        counted, most = self._counted.get(id), limits.PROCEDURE_SIGNALS_MAX
        if counted is None:
            signals = await self._rows(rows.signals(id), most)
            keys = await self._rows(rows.key_times(id), 2 * limits.PROCEDURE_KEYS_KEPT)
            new = _Counted(signals, keys, rows.key_times(id)[0])
            counted = self._counted.setdefault(id, new)
            if len(self._counted) > limits.PROCEDURE_TALKS_REMEMBERED:
                self._counted.popitem(last=False)
        elif counted.signals >= most:
            counted.signals = await self._rows(rows.signals(id), most)  # some were taken, perhaps
        if counted.signals >= most:
            raise TooLarge(
                f"procedure {id} has {counted.signals} signals that it did not take, the limit is "
                f"{most}",
                details={"limit": most, "actual": counted.signals},
            )
        return counted

    async def _rows(self, span: tuple[bytes, bytes], most: int) -> int:
        start, end = span
        found = 0
        while True:
            page = await self._store.scan(start, end, limit=most - found)
            found += len(page.items)
            if page.resume is None or found >= most:
                return found
            start = page.resume

    async def _outdated(self, id: int, counted: _Counted) -> list[Op]:
        """One more: what goes with the oldest keys, if that is too many."""
        counted.keys += 1
        ops: list[Op] = []
        async with counted.lock:
            surplus = counted.keys - limits.PROCEDURE_KEYS_KEPT
            surplus = min(surplus, limits.PROCEDURE_KEYS_DROPPED)
            if surplus <= 0:
                return []
            end = rows.key_times(id)[1]
            for row, _, _ in (await self._store.scan(counted.oldest, end, limit=surplus)).items:
                key = rows.key_of(row)
                ops += [delete(row), delete(rows.signal_key(id, key))]
                if key.startswith(update_name("")):
                    ops.append(delete(rows.done(id, key)))
                counted.keys -= 1
                counted.oldest = row + b"\x00"
        return ops


def check_signal(name: str, payload: bytes, key: str | None) -> None:
    """Raises InvalidArgument, TooLarge."""
    checked_name("signal", name)
    _check_size(payload)
    if key is not None:
        checked_text("key", key, limits.NONCE_CHARS_MAX)


def signal_ops(id: int, name: str, payload: bytes, key: str | None, ts: int) -> list[Op]:
    """What keeps a signal; it is refused (ConditionFailed) if one has this key."""
    ops = [put(rows.signal(id, name, ts), payload)]
    if key is not None:
        ops.append(put(rows.signal_key(id, key), name.encode(), cond=0))
        ops.append(put(rows.key_time(id, ts, key), b""))
    return ops


async def complete(store: Rows, token: str, ok: bool, value: bytes, reign: int) -> bool:
    """Keep the end of what `token` stands for; False: it was completed so before. Raises Refused
    (ALREADY_COMPLETED) if it was completed otherwise, Unavailable as `send`.
    """
    _check_size(value)
    row, data = rows.done(owner_of(token), token), plain_data.pack([ok, value])
    try:
        await store.write([put(row, data, cond=0), check(REIGN, reign)])
    except ConditionFailed as error:
        _refuse_deposed(error)
        known, _ = await store.get(row)
        if known == data:
            return False
        raise Refused(
            "this token was completed before, with something else", code="ALREADY_COMPLETED"
        ) from None
    return True


def told(record: Record) -> list[Op]:
    """What the end of a started procedure writes for its starter."""
    if not (record.ended and record.tells):
        return []
    ok = record.state is State.SUCCESS
    value = record.result
    if not ok:
        error = record.error
        known = (record.state.name, "") if error is None else (error.code, error.message)
        names = {"code": known[0], "message": known[1], "procedure": str(record.id)}
        value = plain_data.pack(names | {"type": "" if error is None else error.type})
    return [put(rows.done(record.starter, record.tells), plain_data.pack([ok, value]))]


async def was_sent(store: Rows, id: int, key: str | None) -> bool:
    """Whether a signal with this key was sent to a procedure that has ended."""
    if key is None:
        return False
    checked_text("key", key, limits.NONCE_CHARS_MAX)
    return (await store.get(rows.signal_key(id, key)))[0] is not None


async def was_completed(store: Rows, token: str, ok: bool, value: bytes) -> bool:
    """Whether `token` was completed just so, of a procedure that has ended."""
    known, _ = await store.get(rows.done(owner_of(token), token))
    return known == plain_data.pack([ok, value])


def read_done(data: bytes) -> tuple[bool, object]:
    """What a completion says: whether it went well, and its result or error."""
    ok, value = plain_data.decode(data)
    return ok, plain_data.decode(value)


async def owners(store: Rows) -> AsyncIterator[int]:
    """The procedures that anything is kept for, one after the other (some more than once)."""
    for family, end in rows.ALL_LEFT:
        start = family
        while (page := await store.scan(start, end, limit=1)).items:
            id = from_u64(page.items[0][0], len(family))
            yield id
            start = family + u64(id + 1)


async def forget(store: Rows, id: int) -> None:
    """Remove what nobody took of a procedure that is forgotten."""
    for span in rows.left_of(id):
        ops: list[Op] = []
        async for key, _, _ in rows.every(store, span):
            ops.append(delete(key))
        for at in range(0, len(ops), limits.PROCEDURE_PAGE_MAX):
            await store.write(ops[at : at + limits.PROCEDURE_PAGE_MAX])


def _refuse_deposed(error: ConditionFailed) -> None:
    if error.details.get("key") == REIGN:
        raise deposed() from error


def _check_size(payload: bytes) -> None:
    if len(payload) > limits.PROCEDURE_SIGNAL_BYTES_MAX:
        raise TooLarge(
            f"a payload of {len(payload)} bytes, the limit is {limits.PROCEDURE_SIGNAL_BYTES_MAX}; "
            "keep large data in a table and send its key",
            details={"limit": limits.PROCEDURE_SIGNAL_BYTES_MAX, "actual": len(payload)},
        )
