"""Heartbeats of one run of a step: that it lives, and how far it has come.

A step that declares `heartbeat_ms` says so at least so often (`ctx.heartbeat(details)`); a run that
is silent for longer is ended, and counts as a failed attempt. The next attempt, wherever it runs,
reads the last details (`ctx.last_heartbeat`), and goes on from there.

Details are progress, not state: of a run that ends the last ones are stored before the next begins;
of one whose process, or machine, ends under it perhaps those of a second ago. A step may say them
as often as it likes: they are kept in memory, and stored once a second (`Turns._kept_beats`).

In the row, which the next one of the same procedure replaces: {token of an execution: details}; the
steps of one gather have a token each.

A step that a workflow calls with `heartbeat_ms` is *bound*: while one is, its silence counts, not
that of the execution around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kv.base import limits
from kv.base.errors import InvalidArgument, TooLarge
from procedures.engine import plain_data
from procedures.engine.retries import Retry
from procedures.engine.typed_values import plain_of

_NOTHING: Final[Mapping[str, bytes]] = {}


@dataclass(slots=True)
class Bound:
    """A step of a workflow that has a limit of its own."""

    name: str
    ms: int
    policy: Retry | None
    slack_ms: int = 0  # after which the run around it is ended with it
    since: float = 0.0


class Heart:
    """Of one run. All but `begin` may be called in any thread."""

    __slots__ = (
        "_bound",
        "_loop",
        "_since",
        "_time",
        "_timer",
        "details",
        "dirty",
        "late",
        "ms",
        "on_beat",
        "on_bound",
        "silent",
        "slack_ms",
    )

    def __init__(self, ms: int = 0, known: Mapping[str, bytes] = _NOTHING) -> None:
        """`known`: what was said in this execution before this run."""
        self.ms = ms  # 0 = the step has not declared any
        self.slack_ms = 0  # what is on its way from another process
        self.details = dict(known)
        self.dirty = False  # some of these are not stored
        self.late = False  # it was silent for too long …
        self.silent: Bound | None = None  # … or rather this step of it
        self.on_beat: Callable[[str, bytes], None] | None = None
        self.on_bound: Callable[[str, Bound | None], None] | None = None
        self._bound: dict[str, Bound] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._since = 0.0  # the last sign of life, in the loop's time
        self._time: asyncio.Timeout | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, time: asyncio.Timeout | None = None) -> None:
        """It is called now. `time` is ended when it is silent for too long."""
        self._loop = asyncio.get_running_loop()
        self._since, self._time = self._loop.time(), time
        if self.ms and time is not None:
            self._timer = self._loop.call_at(self.due, self._look)

    @property
    def due(self) -> float:
        """When it will have been silent for too long."""
        slack_s, bound = self.slack_ms / 1000, list(self._bound.values())
        if not bound:
            return self._since + self.ms / 1000 + slack_s
        return min(one.since + (one.ms + one.slack_ms) / 1000 for one in bound) + slack_s

    def end(self) -> None:
        """It is over."""
        self._time = None
        if self._timer is not None:
            self._timer.cancel()  # it may be far away
            self._timer = None
        self.check()

    def bind(self, key: str, bound: Bound | None) -> None:
        """A step begins that has a limit of its own; None: it is over."""
        self.check()
        if self._loop is not None:
            self._since = self._loop.time()
        if bound is None:
            self._bound.pop(key, None)
        else:
            bound.since = self._since
            self._bound[key] = bound
        if self.on_bound is not None:
            self.on_bound(key, bound)

    def left_s(self, key: str) -> float:
        """For so long the step of this key may still be silent."""
        assert self._loop is not None
        bound = self._bound[key]
        return bound.since + bound.ms / 1000 - self._loop.time()

    def beat(self, key: str, details: object, name: str) -> None:
        """Raises InvalidArgument, TooLarge."""
        if not self.ms:
            raise InvalidArgument(
                f"{name} says heartbeats, but declares none: heartbeat_ms= says how long a run may "
                "be silent"
            )
        what, most = f"the details of a heartbeat of {name}", limits.PROCEDURE_HEARTBEAT_BYTES_MAX
        data = plain_data.encode(plain_of(details, what), what, most)
        if key not in self.details and len(self.details) >= limits.PROCEDURE_HEARTS_MAX:
            raise TooLarge(
                f"{what}: more than {limits.PROCEDURE_HEARTS_MAX} steps at once say some"
            )
        self.told(key, data)

    def told(self, key: str, data: bytes) -> None:
        """It said this, here or elsewhere."""
        self.check()
        if self._loop is not None:
            self._since = self._loop.time()
            if (bound := self._bound.get(key)) is not None:
                bound.since = self._since
        self.details[key] = data
        self.dirty = True
        if self.on_beat is not None:
            self.on_beat(key, data)

    def last(self, key: str) -> Any:
        data = self.details.get(key)
        return None if data is None else plain_data.decode(data)

    def stored(self) -> bytes:
        """What is to be stored, which counts as stored now."""
        self.dirty = False
        return plain_data.pack(dict(self.details))

    def check(self) -> bool:
        """Whether it was silent for too long."""
        if self.ms and self._loop is not None and self._loop.time() >= self.due and not self.late:
            self.late = True
            silent = min(
                self._bound.values(), key=lambda one: one.since + one.ms / 1000, default=None
            )
            self.silent = silent
        return self.late

    def _look(self) -> None:
        time, loop = self._time, self._loop
        if time is None or loop is None or time.expired():
            return
        if not self.check():
            self._timer = loop.call_at(self.due, self._look)
            return
        time.reschedule(loop.time())


NO_HEART: Final = Heart()


def key_of(token: str, round: int) -> str:
    """Of one execution; each round of `again` is one."""
    return f"{token}#{round}"


def of_execution(said: Mapping[str, bytes], token: str, round: int) -> dict[str, bytes]:
    """What was said in it, also by the steps of a workflow that it carries out."""
    mine, end = (key_of(token, round), f"{token}."), f"#{round}"
    return {key: data for key, data in said.items() if key.startswith(mine) and key.endswith(end)}


def read(data: bytes | None) -> Mapping[str, bytes]:
    """What a row says."""
    return _NOTHING if data is None else dict(plain_data.decode(data))
