"""What expressions of one run may ask: `sqlproxy.front.bound.env.Env` of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlproxy.front.bound.env import NO_SETTINGS, Env
from sqlproxy.front.bound.exprs import Once
from sqlproxy.pg.answers import Values
from sqlproxy.pg.style import Style
from sqlproxy.pgcatalog.static import shown_settings
from sqlproxy.session.running.numbers import Numbers
from sqlproxy.session.shared.advisory_locks import Key
from sqlproxy.session.state.activity import moment
from sqlproxy.session.state.session_locks import Request
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import SqlError


class CurrentSettings(Mapping[str, str]):
    """What `current_setting` and `current_user` ask: settings, the user, the process."""

    def __init__(self, session: State) -> None:
        self._session = session

    def __getitem__(self, name: str) -> str:
        match name:
            case "user":
                return self._session.permits.acting
            case "session_user":
                return self._session.user
            case "database":
                return self._session.database
            case "search path":
                return ",".join(self._session.searched)
            case "temporary schema":
                own = self._session.temporary
                return "" if own is None else own.schema
            case "process":
                return str(self._session.channel.process)
            case _:
                try:
                    return self._session.variables.get(name)
                except SqlError:
                    if (known := shown_settings().get(name.lower())) is None:
                        raise
                    return known  # pg_settings has it, too

    def __iter__(self) -> Iterator[str]:
        yield from NO_SETTINGS
        yield from (name for name, _, _ in self._session.settings.all())

    def __len__(self) -> int:
        return len(NO_SETTINGS) + len(self._session.settings.all())


class SessionEnv(Env):
    """Of one run. Most statements ask none of it but `params`, so it is found when it is asked."""

    __slots__ = ("_acts", "_began_us", "_now_us", "_session", "numbers")

    def __init__(self, session: State, values: Values, numbers: Numbers) -> None:
        self.params = values
        self.slept = 0.0
        self.memo = None
        self.catalog = session.catalog  # a cursor goes on beside statements that ask other things
        self._session, self.numbers = session, numbers
        self._acts: dict[str, Once] | None = None
        activity = session.activity
        self._began_us = activity.statement_us = session.services.clock.now_ms() * 1000
        if not activity.transaction_us:
            activity.transaction_us = self._began_us
        self._now_us = activity.transaction_us

    def __getattr__(self, name: str) -> datetime | Mapping[str, str] | Style:
        """What is not kept: it is found each time it is asked."""
        match name:
            case "now":
                return self.transaction_time()
            case "statement_now":
                return self.statement_time()
            case "session":
                return CurrentSettings(self._session)
            case "style":
                return self._session.style
            case _:
                raise AttributeError(name)

    def transaction_time(self) -> datetime:
        """Of now()."""
        return moment(self._now_us)

    def statement_time(self) -> datetime:
        """Of statement_timestamp()."""
        return moment(self._began_us)

    def clock(self) -> datetime:
        return self._session.activity.now()

    def random(self) -> float:
        return self._session.services.random()

    def uuid(self) -> UUID:
        return self._session.services.uuid()

    def nextval(self, name: str) -> int:
        return self.numbers.nextval(name)

    def currval(self, number: int, name: str) -> int:
        return self.numbers.currval(number, name)

    def lastval(self, there: Container[int]) -> int:
        return self.numbers.lastval(there)

    def once(self, once: Once, given: Sequence[object]) -> object:
        return self.numbers.once(once, given)

    def act(self, verb: str, given: Sequence[object]) -> object:
        """Raises Wanting, where it is not done yet."""
        if self._acts is None:
            self._acts = {}
        if (once := self._acts.get(verb)) is None:
            once = self._acts[verb] = Once(partial(_ACTS[verb], self._session), what=verb)
        return self.numbers.once(once, given)

    def setval(self, name: str, value: int, called: bool) -> int:
        """It is done at once where somebody waits for it, else after the last row: expressions
        never wait themselves.
        """
        self._session.check_writable("setval()")
        if self.numbers.setval(name, value, called):
            return value
        self._session.setvals.append((name, value, called))
        return value

    def notify(self, channel: str, payload: str) -> None:
        """It is sent when the transaction commits."""
        self._session.block.notes.say(channel, payload)

    def listening(self) -> list[str]:
        return list(self._session.listening.channels)

    def advisory(
        self, verb: str, numbers: Sequence[int], exclusive: bool, transaction: bool
    ) -> bool:
        """Raises Unanswered: it is answered in the background, then the statement runs again."""
        key = Key.of(numbers) if numbers else None
        return self._session.advising.answer(Request(verb, key, exclusive, transaction))


async def _set_config(session: State, given: Sequence[Any]) -> str | None:
    name, value, local = given
    await session.assign(name, value, local=bool(local))
    return value  # type: ignore[no-any-return]


async def _signal(session: State, given: Sequence[Any], *, terminate: bool) -> bool:
    there = await session.services.roster.signal(session, given[0], terminate=terminate)
    await asyncio.sleep(0)  # if it was this session its statement ends here
    return there


_ACTS: Final[dict[str, Callable[[State, Sequence[object]], Awaitable[object]]]] = {
    "set_config": _set_config,
    "pg_cancel_backend": partial(_signal, terminate=False),
    "pg_terminate_backend": partial(_signal, terminate=True),
}


def environment(session: State, values: Values) -> tuple[Env, Numbers]:
    """For one run of a statement with these values."""
    numbers = Numbers(session.currvals)
    return SessionEnv(session, values, numbers), numbers
