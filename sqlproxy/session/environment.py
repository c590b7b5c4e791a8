"""What expressions of one run may ask: `sqlproxy.front.env.Env` of a session.

Values of sequences are reserved before a run and handed out in it; what is left over is a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlproxy.advisory import Key
from sqlproxy.errors import NOT_IN_SEQUENCE, UNSUPPORTED, SqlError
from sqlproxy.front.env import Env
from sqlproxy.pg.style import Style
from sqlproxy.session.advising import Request

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession


_NOTHING: Final[dict[str, list[int]]] = {}  # never changed


class Numbers:
    """Values of sequences that were reserved for one run, by name; `currval` of the session."""

    __slots__ = ("_currvals", "_left")

    def __init__(self, currvals: dict[str, int]) -> None:
        self._left = _NOTHING  # the next one last; nearly all statements take none
        self._currvals = currvals

    def left(self, name: str) -> int:
        return len(self._left.get(name, ()))

    def add(self, name: str, values: Sequence[int]) -> None:
        if len(values) > 1:
            values = values[::-1]
        if self._left is _NOTHING:
            self._left = {name: [*values]}
        else:
            self._left[name] = [*values, *self._left.get(name, ())]

    def nextval(self, name: str) -> int:
        left = self._left.get(name)
        if not left:
            raise SqlError(
                UNSUPPORTED,
                f'nextval() of sequence "{name}" for the rows of a query, or in RETURNING, is not '
                "supported",
                hint="Defaults, VALUES, SET and a SELECT without FROM take numbers.",
            )
        value = left.pop()
        self._currvals[name] = value
        self._currvals[""] = value  # of lastval()
        return value

    def currval(self, name: str) -> int:
        """Raises SqlError (55000)."""
        if name not in self._currvals:
            raise SqlError(
                NOT_IN_SEQUENCE,
                f'currval of sequence "{name}" is not yet defined in this session',
            )
        return self._currvals[name]

    def lastval(self) -> int:
        """Raises SqlError (55000)."""
        if "" not in self._currvals:
            raise SqlError(NOT_IN_SEQUENCE, "lastval is not yet defined in this session")
        return self._currvals[""]

    def set(self, name: str, value: int, called: bool) -> None:
        if called:
            self._currvals[name] = self._currvals[""] = value


class Told(Mapping[str, str]):
    """What `current_setting` and `current_user` ask: settings, the user, the database."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def __getitem__(self, name: str) -> str:
        match name:
            case "user":
                return self._session.permits.acting
            case "session_user":
                return self._session.user
            case "database":
                return self._session.database
            case _:
                return self._session.settings.get(name)

    def __iter__(self) -> Iterator[str]:
        yield from ("user", "session_user", "database")
        yield from (name for name, _, _ in self._session.settings.all())

    def __len__(self) -> int:
        return 3 + len(self._session.settings.all())


class SessionEnv(Env):
    """Of one run. Most statements ask none of it but `params`, so it is found when it is asked."""

    __slots__ = ("_began_us", "_now_us", "_session", "numbers")

    def __init__(self, session: SqlSession, values: Sequence[Any], numbers: Numbers) -> None:
        self.params = values
        self.slept = 0.0
        self._session, self.numbers = session, numbers
        self._began_us = session.statement_us = session.services.clock.now_ms() * 1000
        if not session.transaction_us:
            session.transaction_us = self._began_us
        self._now_us = session.transaction_us

    @property
    def now(self) -> datetime:  # type: ignore[override]
        return moment(self._now_us)

    @property
    def statement_now(self) -> datetime:  # type: ignore[override]
        return moment(self._began_us)

    @property
    def session(self) -> Mapping[str, str]:  # type: ignore[override]
        return self._session.told

    @property
    def style(self) -> Style:  # type: ignore[override]
        return self._session.style

    def clock(self) -> datetime:
        return self._session.clock_time()

    def random(self) -> float:
        return self._session.services.random()

    def uuid(self) -> UUID:
        return self._session.services.uuid()

    def nextval(self, name: str) -> int:
        return self.numbers.nextval(name)

    def currval(self, name: str) -> int:
        return self.numbers.currval(name)

    def lastval(self) -> int:
        return self.numbers.lastval()

    def setval(self, name: str, value: int, called: bool) -> int:
        """It is done behind the last row: expressions never wait themselves."""
        self._session.check_writable("setval()")
        self._session.setvals.append((name, value, called))
        return value

    def advisory(
        self, verb: str, numbers: Sequence[int], exclusive: bool, transaction: bool
    ) -> bool:
        """Raises Unanswered: it is answered behind the scenes, then the statement runs again."""
        key = Key.of(numbers) if numbers else None
        return self._session.advising.answer(Request(verb, key, exclusive, transaction))


def moment(us: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def environment(session: SqlSession, values: Sequence[Any]) -> tuple[Env, Numbers]:
    """For one run of a statement with these values."""
    numbers = Numbers(session.currvals)
    return SessionEnv(session, values, numbers), numbers
