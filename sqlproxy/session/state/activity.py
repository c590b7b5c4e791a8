"""What a session does, and since when, as now() and pg_stat_activity show it: in µs since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from kv.base.limits import SQL_ACTIVITY_CHARS
from kv.base.ports import Clock, Timers


class Activity:
    """Of one session."""

    __slots__ = (
        "_clock",
        "_monotonic",
        "_statement_us",
        "_working",
        "began_us",
        "message",
        "query",
        "rested_us",
        "started_s",
        "transaction_us",
    )

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock, self._monotonic = clock, timers.monotonic
        self.began_us: Final = clock.now_ms() * 1000
        self.transaction_us = 0  # when the transaction began, for now(); 0: nobody asked yet
        self.message = ""  # the text of several statements that came together
        self.query = ""  # the statement that runs, or ran last, …
        self._statement_us = 0  # … and when it began: the wall clock …
        self.started_s: float | None = None  # … or the loop's, of one that goes the short way
        self.rested_us = 0  # since when the session is ready for another one
        self._working = False  # a statement was bound, and nothing ended it yet

    def now_us(self) -> int:
        """Now, each time it is asked."""
        return self._clock.now_ms() * 1000

    def now(self) -> datetime:
        """The same as a time."""
        return moment(self.now_us())

    @property
    def statement_us(self) -> int:
        """When the statement began that runs, or ran last."""
        if self.started_s is not None:
            ago_us = int((self._monotonic() - self.started_s) * 1_000_000)
            self.statement_us = self.now_us() - ago_us
        return self._statement_us

    @statement_us.setter
    def statement_us(self, us: int) -> None:
        self._statement_us, self.started_s = us, None

    def transaction_now(self) -> datetime:
        """When the transaction began."""
        if not self.transaction_us:
            self.transaction_us = self.now_us()
        return moment(self.transaction_us)

    @property
    def working(self) -> bool:
        """Whether a statement is under way: until its client gets ReadyForQuery."""
        return self._working

    def begins(self, text: str) -> None:
        """This statement does."""
        self.query, self.statement_us = text, self.now_us()
        self._working = True

    def rests(self) -> None:
        """The client gets ReadyForQuery."""
        self._working, self.rested_us = False, self.now_us()
        if len(self.query) > SQL_ACTIVITY_CHARS:
            self.query = self.query[:SQL_ACTIVITY_CHARS]


def moment(us: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)
