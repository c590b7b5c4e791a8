"""What a step has to do with the world outside: signals, completions, progress.

The base of `StepContext`. Reads and takings go through the step's own transaction, so that a signal
is taken exactly when the step commits. In a plain (not async) step the calls block its thread; in
an async one they are awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from kv.base import limits
from kv.base.errors import InvalidArgument
from procedures.engine import plain_data
from procedures.engine.procedure import Suspend
from procedures.engine.submission import checked_name
from procedures.engine.typed_values import plain_of
from procedures.pools import inbox, rows


class Signal(NamedTuple):
    """A signal that this step took."""

    payload: object
    sent: int  # its timestamp: signals of one name are taken in this order


class Completion(NamedTuple):
    """How an outside system ended what it was asked: `result`, or `error` (code, message, …)."""

    ok: bool
    result: Any
    error: Any


class Update(NamedTuple):
    """An update that this step took: it must be answered, or refused, by a step of this procedure;
    whoever sent it waits for that.
    """

    key: str
    args: Any


class Outside:
    """See the module."""

    __slots__ = ()

    id: int
    txn: Any
    missing: set[str]  # events of which this step's snapshot keeps nothing
    _progress: Callable[[int, float, str], None]

    @property
    def token(self) -> str:
        raise NotImplementedError

    def signal(self, event: str) -> None:
        raise NotImplementedError

    def receive(self, name: str) -> Any:
        """Take the oldest signal of this name (a Signal), None if there is none. It is gone when
        the step commits.
        """
        checked_name("signal", name)
        return self._run(self._receive(name))

    def until_signal(self, name: str, *, then: str, timeout_ms: int = 0) -> Suspend:
        """An outcome: wait for a signal of this name, then run `then`, which takes it with
        `receive`. One that is there already, and that this step did not take, is not waited for.
        After `timeout_ms` `then` runs without one: `ctx.wake` is "timeout". That time is counted
        from now on, also over restarts and failovers.
        """
        checked_name("signal", name)
        return Suspend(then, inbox.signal_event(self.id, name), timeout_ms)

    def external(self, number: int = 0) -> str:
        """A token for an outside system, which completes it with `db.complete(token, …)`. The same
        for every attempt of this execution; another one for each `number`.
        """
        if type(number) is not int or not 0 <= number < 1 << 32:
            raise InvalidArgument(f"the number of a token is a whole number, got {number!r:.40}")
        return inbox.token_of(f"{self.token}.{number}" if number else self.token)

    def until_done(self, token: str, *, then: str, timeout_ms: int = 0) -> Suspend:
        """An outcome: wait until `token` is completed, which it may be already, then run `then`;
        `timeout_ms` as in `until_signal`.
        """
        self._own(token)
        return Suspend(then, inbox.done_event(token), timeout_ms)

    def completed(self, token: str) -> object:
        """How `token` was completed (a Completion), None = not yet."""
        self._own(token)
        return self._run(self._completed(token))

    def receive_update(self, name: str) -> Any:
        """Take the oldest update of this name (an Update), None if there is none. It is gone when
        the step commits; `answer` or `refuse` it, here or in a later step.
        """
        checked_name("update", name)
        return self._run(self._received_update(name))

    def until_update(self, name: str, *, then: str, timeout_ms: int = 0) -> Suspend:
        """An outcome: wait for an update of this name, as `until_signal`."""
        checked_name("update", name)
        return Suspend(then, inbox.signal_event(self.id, inbox.update_name(name)), timeout_ms)

    def answer(self, update: Update, result: object = None) -> None:
        """End an update with a result, together with what else this step writes."""
        what = "the result of an update"
        self._answered(update, True, plain_of(result, what), what)

    def refuse(self, update: Update, code: str, message: str) -> None:
        """End an update with an error, which its sender gets."""
        error = {"code": str(code), "message": str(message)}
        self._answered(update, False, error, "the error of an update")

    def progress(self, part: float, text: str = "") -> None:
        """Say how far it is, 0 to 1, and in words. Shown while it runs, and not kept."""
        if type(part) not in (int, float) or not 0 <= part <= 1:
            raise InvalidArgument(f"progress is a number from 0 to 1, got {part!r:.40}")
        if not isinstance(text, str):
            raise InvalidArgument(f"the words of a progress are text, not {text!r:.40}")
        text = text[: limits.PROCEDURE_PROGRESS_CHARS_MAX].encode("utf-8", "replace").decode()
        self._progress(self.id, float(part), text)

    # -- details
    async def _receive(self, name: str) -> Signal | None:
        txn = self._inner()
        low, high = rows.signals(self.id, name)
        page = await txn.scan(low, high, limit=1)
        if not page.items:
            self.missing.add(inbox.signal_event(self.id, name))
            return None
        key, payload, _ = page.items[0]
        txn.delete(key)
        return Signal(plain_data.decode(payload), int.from_bytes(key[-8:], "big"))

    async def _completed(self, token: str) -> Completion | None:
        row = await self._inner().get(rows.done(self.id, token))
        if row is None:
            self.missing.add(inbox.done_event(token))
            return None
        ok, value = inbox.read_done(row.value)
        return Completion(ok, value if ok else None, None if ok else value)

    async def _received_update(self, name: str) -> Update | None:
        signal = await self._receive(inbox.update_name(name))
        return None if signal is None else Update(*signal.payload)  # type: ignore[misc]

    def _answered(self, update: Update, ok: bool, value: object, what: str) -> None:
        data = plain_data.encode(value, what, limits.PROCEDURE_SIGNAL_BYTES_MAX)
        key = inbox.answer_row(self.id, update.key)
        self._inner().put(key, plain_data.pack([ok, data]), cond=0)

    def _own(self, token: str) -> None:
        if inbox.owner_of(token) != self.id:
            raise InvalidArgument(f"the token {token!r:.80} is not one of procedure {self.id}")

    def _inner(self) -> Any:
        return getattr(self.txn, "inner", self.txn)

    def _run(self, coro: Coroutine[object, None, object]) -> object:
        """To be awaited in an async step; its result in a plain one."""
        wait = getattr(self.txn, "wait", None)
        return coro if wait is None else wait(coro)
