"""What expressions of one run may ask: `sqlproxy.front.env.Env` of a session.

Values of sequences are reserved before a run and handed out in it; what is left over is a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlproxy.errors import NOT_IN_SEQUENCE, SqlError
from sqlproxy.front.env import Env

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession


class Numbers:
    """Values of sequences that were reserved for one run, by name; `currval` of the session."""

    def __init__(self, currvals: dict[str, int]) -> None:
        self._left: dict[str, deque[int]] = {}
        self._currvals = currvals

    def left(self, name: str) -> int:
        return len(self._left.get(name, ()))

    def add(self, name: str, values: Sequence[int]) -> None:
        self._left.setdefault(name, deque()).extend(values)

    def nextval(self, name: str) -> int:
        value = self._left[name].popleft()
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
            case "user" | "session_user":
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


def environment(session: SqlSession, values: Sequence[Any]) -> tuple[Env, Numbers]:
    """For one run of a statement with these values."""
    numbers = Numbers(session.currvals)
    services = session.services
    env = Env(
        params=values,
        now=session.now(),
        statement_now=session.clock_time(),
        session=session.told,
        style=session.style,
        clock=session.clock_time,
        random=services.random,
        uuid=services.uuid,
        nextval=numbers.nextval,
        currval=numbers.currval,
        lastval=numbers.lastval,
    )
    return env, numbers
