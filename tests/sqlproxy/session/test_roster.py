"""Sessions of users who may not log in any more end, each for itself."""

from __future__ import annotations

import pytest

from sqlproxy.session.shared.roster import Roster, SessionRow
from sqlproxy.values.errors import INVALID_AUTHORIZATION, SqlError
from sqlproxy.wire.seam import Channel


class Session:
    """One that may not go on, or breaks when it is asked."""

    def __init__(self, process: int, *, breaks: bool = False) -> None:
        self.channel = Channel(process=process)
        self.breaks = breaks
        self.interrupted = 0

    def row(self) -> SessionRow:
        raise NotImplementedError

    def reaches(self, one: SessionRow) -> bool:
        raise NotImplementedError

    def notice(self, message: str, severity: str, sqlstate: str) -> None:
        raise NotImplementedError

    def lost(self) -> SqlError | None:
        if self.breaks:
            raise ZeroDivisionError
        return SqlError(INVALID_AUTHORIZATION, "its role may not log in")

    def interrupt(self, why: SqlError) -> None:
        self.interrupted += 1


def test_a_session_that_breaks_keeps_no_other_from_its_end() -> None:
    """Others would go on, with their locks, under logins that do not count any more."""
    roster = Roster()
    sessions = [Session(number, breaks=number % 2 == 1) for number in range(1, 9)]
    for one in sessions:
        roster.add(one)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):  # whoever runs it notes it
            roster.review()
    assert [one.interrupted for one in sessions] == [0, 1] * 4
