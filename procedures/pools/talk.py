"""What is said to one procedure that runs, or asked of it: signals, completions, queries, updates,
and the events that it emits.

Requests are maps, as they come over the network (control.py has the list); each may be repeated: a
signal and an update have a key, a completion its token, a query changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from kv.base import limits
from kv.base.errors import InvalidArgument, Refused, Unavailable
from kv.base.ops import Op
from procedures.engine import plain_data
from procedures.engine.executor import Executor
from procedures.engine.plain_data import Plain
from procedures.engine.queries import VALIDATES
from procedures.engine.records import Record
from procedures.engine.submission import Submission, checked_name, checked_text
from procedures.pools import emitted, inbox
from procedures.pools.rows import Rows

_KEY_CHARS_MAX: Final = limits.NONCE_CHARS_MAX - len(inbox.update_name(""))


class _Said(NamedTuple):
    """A signal, checked."""

    name: str
    payload: bytes
    key: str | None


class Talk:
    """With the procedures of one executor; `rows` are those of its store."""

    def __init__(self, executor: Executor, rows: Rows) -> None:
        self._executor, self._rows = executor, rows
        self._senders = inbox.Senders(rows)

    async def signal(self, args: Plain) -> dict[str, object]:
        return {"sent": await self._signal(id_of(args), _said(args))}

    async def _signal(self, id: int, said: _Said) -> bool:
        try:
            await self._running(id)
        except Refused:
            if not await inbox.was_sent(self._rows, id, said.key):
                raise
            return False  # it ended with it: the answer was lost
        sent = await self._senders.send(id, *said, self._executor.reign)
        self._executor.signal(inbox.signal_event(id, said.name))
        return sent

    async def start(self, sub: Submission, signal: dict[str, object]) -> int:
        """Submit it with its first signal, in one write: no procedure of this nonce is without it.
        One that is there gets it as any other.
        """
        said = _said(signal)
        if not sub.nonce:
            raise InvalidArgument("who starts with a signal gives a nonce: the procedure's name")
        if sub.name.startswith("kvorum."):
            raise InvalidArgument(f"{sub.name} is started without a signal, and then sent one")
        ts = await self._rows.now()

        def beside(id: int) -> list[Op]:
            return inbox.signal_ops(id, *said, ts)

        id, is_new = await self._executor.begin(sub, beside)
        if not is_new:
            await self._signal(id, said)
        return id

    async def complete(self, args: dict[str, object]) -> dict[str, object]:
        token = checked_text("token", args.get("token"), limits.NONCE_CHARS_MAX)
        failed = args.get("error") is not None
        if failed and args.get("result") is not None:
            raise InvalidArgument("a completion has a result or an error, not both")
        value = args.get("error") if failed else args.get("result")
        data = plain_data.encode(value, "the completion", limits.PROCEDURE_SIGNAL_BYTES_MAX)
        try:
            await self._running(inbox.owner_of(token))
        except Refused:
            if not await inbox.was_completed(self._rows, token, not failed, data):
                raise
            return {"completed": False}
        done = await inbox.complete(self._rows, token, not failed, data, self._executor.reign)
        self._executor.signal(inbox.done_event(token))
        return {"completed": done}

    async def query(self, args: dict[str, object]) -> Plain:
        name = checked_text("query", args.get("name"), limits.NAME_CHARS_MAX)
        return {"result": await self._executor.query(id_of(args), name, args.get("args"))}

    async def update(self, args: Plain) -> Plain:
        """Keep it, once, and wait for its answer as long as the caller does; he asks again."""
        id, executor = id_of(args), self._executor
        name = checked_name("update", args.get("name"))
        key = checked_text("key", args.get("key"), _KEY_CHARS_MAX)
        wait_ms = _number(args, "wait_ms", 0, limits.WAIT_MS_MAX)
        what = "the arguments of an update"
        data = plain_data.encode([key, args.get("args")], what, limits.PROCEDURE_SIGNAL_BYTES_MAX)
        until_ms = executor.now_ms() + wait_ms
        sent = False
        while True:
            with executor.listening(id) as changed:
                if (found := await inbox.answer(self._rows, id, key)) is not None:
                    break
                try:
                    record = await self._running(id)
                except Refused:
                    if (found := await inbox.answer(self._rows, id, key)) is None:
                        raise
                    break  # it ended with its answer, after we had looked for that
                if not sent:
                    sent = True
                    await self._send_update(record, _Said(name, data, key), args.get("args"))
                left_ms = until_ms - executor.now_ms()
                if left_ms <= 0:
                    return {"done": False}
                await asyncio.wait([changed], timeout=left_ms / 1000)
        ok, value = found
        return {"done": True, ("result" if ok else "error"): value}

    async def events(self, args: dict[str, object]) -> Plain:
        """What it emitted after a position; waits for more as long as the caller does."""
        id, executor = id_of(args), self._executor
        after = _number(args, "after", 0, (1 << 53) - 1)
        limit = _number(args, "limit", 1, limits.PROCEDURE_EVENTS_PAGE_MAX, 100)
        until_ms = executor.now_ms() + _number(args, "wait_ms", 0, limits.WAIT_MS_MAX)
        name = checked_name("event", args["name"]) if args.get("name") else ""
        while True:
            with executor.listening(id) as changed:
                ended = (await executor.find(id)).ended
                found = await emitted.after(self._rows, id, after, limit)
                left_ms = until_ms - executor.now_ms()
                if found or ended or left_ms <= 0:
                    break
                await asyncio.wait([changed], timeout=left_ms / 1000)
        return {
            "items": [one._asdict() for one in found if name in ("", one.name)],
            "after": found[-1].position if found else after,
            "ended": ended and not found,
        }

    async def _send_update(self, record: Record, said: _Said, args: object) -> None:
        """Keep it, unless it is kept. Raises what its validator says of it: then it is not."""
        id, own = record.id, inbox.update_name(said.key or "")
        if await inbox.was_sent(self._rows, id, own):
            return
        if said.name in self._executor.types.get(record.name, record.version).validators:
            try:
                await self._executor.query(id, VALIDATES + said.name, args)
            except InvalidArgument as error:
                if error.code != "QUERY_UNKNOWN":
                    raise
                raise Unavailable(
                    f"update {said.name}: a worker with older code was asked, which does not know "
                    "its validator; ask again"
                ) from error
        signal = inbox.update_name(said.name)
        await self._senders.send(id, signal, said.payload, own, self._executor.reign)
        self._executor.signal(inbox.signal_event(id, signal))

    async def _running(self, id: int) -> Record:
        record = await self._executor.find(id)
        if record.ended:
            raise Refused(
                f"procedure {id} ({record.name}) ended {record.state.name}: nobody would take it",
                code="ENDED",
            )
        return record


def _said(args: Plain) -> _Said:
    """Raises InvalidArgument, TooLarge."""
    payload = plain_data.encode(
        args.get("payload"), "the payload", limits.PROCEDURE_SIGNAL_BYTES_MAX
    )
    said = _Said(checked_name("signal", args.get("name")), payload, args.get("key"))
    for text in (said.name, said.key):
        if isinstance(text, str) and text.startswith(inbox.update_name("")):
            raise InvalidArgument(f"{text!r:.80} is how an update is kept: send it with update")
    inbox.check_signal(*said)
    return said


def _number(args: dict[str, object], name: str, low: int, high: int, default: int = 0) -> int:
    value = args.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise InvalidArgument(f"{name} must be {low} to {high}, got {value!r:.40}")
    return value


def id_of(args: dict[str, object]) -> int:
    """Of the procedure that is spoken of. Raises InvalidArgument."""
    id = args.get("id")
    if isinstance(id, str) and id.isascii() and id.isdigit() and len(id) <= 20:
        id = int(id)
    if type(id) is not int or not 0 < id < 1 << 64:
        raise InvalidArgument(f"id must be that of a procedure, got {id!r:.40}")
    return id
