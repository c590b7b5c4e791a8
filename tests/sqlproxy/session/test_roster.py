"""Sessions of users who may not log in any more end, each for itself."""

from __future__ import annotations

import pytest

from kv.base.rights import Roles
from sqlproxy.session.shared.roster import Roster, SessionRow
from sqlproxy.values.errors import INVALID_AUTHORIZATION, SqlError
from sqlproxy.wire.seam import Channel

ROLES = Roles({}, {})


class Session:
    """One that may not go on, or breaks when it is asked."""

    def __init__(self, process: int, *, breaks: bool = False) -> None:
        self.channel = Channel(process=process)
        self.breaks = breaks
        self.right = False
        self.interrupted = self.asked = 0
        self.told: list[SqlError] = []
        self.channel.end = self.told.append

    def row(self) -> SessionRow:
        raise NotImplementedError

    def reaches(self, one: SessionRow) -> bool:
        raise NotImplementedError

    def notice(self, message: str, severity: str, sqlstate: str) -> None:
        raise NotImplementedError

    def lost(self) -> SqlError | None:
        self.asked += 1
        if self.breaks:
            raise ZeroDivisionError
        return None if self.right else SqlError(INVALID_AUTHORIZATION, "its role may not log in")

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
            roster.review(ROLES)
    assert [one.interrupted for one in sessions] == [0, 1] * 4
    for one in sessions[1::2]:
        (why,) = one.told
        assert (why.sqlstate, why.severity) == ("57P01", "FATAL")  # drivers connect again
        assert why.message == "terminating connection because its role may not log in"


def test_sessions_are_looked_at_when_roles_have_changed() -> None:
    """All were, each second: ten thousand held the loop for a tenth of it."""
    roster, one = Roster(), Session(1)
    roster.add(one)
    one.right = True
    for roles in (ROLES,) * 5:
        roster.review(roles)
    assert one.asked == 2
    one.right = False
    changed = Roles({}, {})
    for times in (0, 1, 2):
        roster.review(changed)
        assert one.interrupted == times
