"""What is said to one procedure that runs, or asked of it: signals, completions, queries, updates.

Requests are maps, as they come over the network (control.py has the list); each may be repeated: a
signal and an update have a key, a completion its token, a query changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

from kv.base import limits
from kv.base.errors import InvalidArgument, Refused
from procedures.engine import plain_data
from procedures.engine.executor import Executor
from procedures.engine.submission import checked_text
from procedures.pools import inbox
from procedures.pools.rows import Rows

_KEY_CHARS_MAX: Final = limits.NONCE_CHARS_MAX - len(inbox.update_name(""))
_LOOK_MS: Final = 500  # the procedure may end without an answer


class Talk:
    """With the procedures of one executor; `rows` are those of its store."""

    def __init__(self, executor: Executor, rows: Rows) -> None:
        self._executor, self._rows = executor, rows

    async def signal(self, args: dict[str, Any]) -> dict[str, Any]:
        id = id_of(args)
        payload = plain_data.encode(
            args.get("payload"), "the payload", limits.PROCEDURE_SIGNAL_BYTES_MAX
        )
        name = checked_text("signal", args.get("name"), limits.NAME_CHARS_MAX)
        for said in (name, args.get("key")):
            if isinstance(said, str) and said.startswith(inbox.update_name("")):
                raise InvalidArgument(f"{said!r:.80} is how an update is kept: send it with update")
        try:
            await self._running(id)
        except Refused:
            if not await inbox.was_sent(self._rows, id, args.get("key")):
                raise
            return {"sent": False}  # it ended with it: the answer was lost
        reign = self._executor.reign
        sent = await inbox.send(self._rows, id, name, payload, args.get("key"), reign)
        self._executor.signal(inbox.signal_event(id, name))
        return {"sent": sent}

    async def complete(self, args: dict[str, Any]) -> dict[str, Any]:
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

    async def query(self, args: dict[str, Any]) -> dict[str, Any]:
        name = checked_text("query", args.get("name"), limits.NAME_CHARS_MAX)
        return {"result": await self._executor.query(id_of(args), name, args.get("args"))}

    async def update(self, args: dict[str, Any]) -> dict[str, Any]:
        """Keep it, once, and wait for its answer as long as the caller does; he asks again."""
        id, executor = id_of(args), self._executor
        name = checked_text("update", args.get("name"), limits.NAME_CHARS_MAX)
        key = checked_text("key", args.get("key"), _KEY_CHARS_MAX)
        wait_ms = args.get("wait_ms") or 0
        if type(wait_ms) is not int or not 0 <= wait_ms <= limits.WAIT_MS_MAX:
            raise InvalidArgument(f"wait_ms must be 0 to {limits.WAIT_MS_MAX}, got {wait_ms!r:.40}")
        what = "the arguments of an update"
        data = plain_data.encode([key, args.get("args")], what, limits.PROCEDURE_SIGNAL_BYTES_MAX)
        until_ms = executor.now_ms() + wait_ms
        sent = False
        while (found := await inbox.answer(self._rows, id, key)) is None:
            try:
                await self._running(id)
            except Refused:
                if (found := await inbox.answer(self._rows, id, key)) is None:
                    raise
                break  # it ended with its answer, after we had looked for that
            signal = inbox.update_name(name)
            if not sent:
                sent = True
                own = inbox.update_name(key)
                await inbox.send(self._rows, id, signal, data, own, executor.reign)
                executor.signal(inbox.signal_event(id, signal))
            left_ms = until_ms - executor.now_ms()
            if left_ms <= 0:
                return {"done": False}
            await executor.heard(inbox.answer_event(id, key), min(left_ms, _LOOK_MS))
        ok, value = found
        return {"done": True, ("result" if ok else "error"): value}

    async def _running(self, id: int) -> None:
        record = await self._executor.find(id)
        if record.ended:
            raise Refused(
                f"procedure {id} ({record.name}) ended {record.state.name}: nobody would take it",
                code="ENDED",
            )


def id_of(args: dict[str, object]) -> int:
    """Of the procedure that is spoken of. Raises InvalidArgument."""
    id = args.get("id")
    if isinstance(id, str) and id.isascii() and id.isdigit() and len(id) <= 20:
        id = int(id)
    if type(id) is not int or not 0 < id < 1 << 64:
        raise InvalidArgument(f"id must be that of a procedure, got {id!r:.40}")
    return id
