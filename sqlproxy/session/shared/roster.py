"""The sessions of one node: what pg_stat_activity lists, and what pg_cancel_backend and
pg_terminate_backend end. A session goes by the number that its client has (BackendKeyData),
which is one of this node: other nodes have sessions of the same numbers, and are not listed. If
several processes serve SQL for the node, `others` knows those of the rest.

Whose user may not log in any more is ended by `review`, once a second, whatever it is doing.

Who asks sees all sessions, and the statements of those whose role it is a member of; these alone it
may end, those of a superuser only as one. A superuser sees and ends all.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

from kv.base.rights import Roles
from sqlproxy.pgcatalog import oids
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.values.errors import ADMIN_SHUTDOWN, INSUFFICIENT_PRIVILEGE, SqlError
from sqlproxy.wire.codec import Fatal
from sqlproxy.wire.seam import Channel

_HIDDEN: Final = "<insufficient privilege>"


class SessionRow(NamedTuple):
    """What a session says of itself, also to other processes. Times in µs since 1970; `transaction`
    0: in none.
    """

    process: int
    user: str
    mighty: bool  # a superuser's, whatever it does for now as another role (SET ROLE)
    database: str
    application: str
    state: str
    began: int
    transaction: int
    statement: int
    changed: int
    query: str


def session_row_from(row: Sequence[Any]) -> SessionRow:
    """Of what another process sent."""
    return SessionRow(*row)


class Listed(Protocol):
    """A session of this process."""

    @property
    def channel(self) -> Channel: ...

    def row(self) -> SessionRow:
        """What it says of itself."""
        ...

    def reaches(self, one: SessionRow) -> bool:
        """Whether it may see what that session does, and end it."""
        ...

    def lost(self) -> SqlError | None:
        """Why its user may not go on; None: he may."""
        ...

    def notice(self, message: str, severity: str, sqlstate: str) -> None: ...

    def interrupt(self, why: SqlError) -> None: ...


class Others(Protocol):
    """The other processes that serve SQL for this node."""

    async def sessions(self) -> Sequence[SessionRow]:
        """Theirs; a process that does not answer soon is left out."""
        ...

    def end(self, process: int, *, terminate: bool) -> None:
        """End this session of theirs, or what runs in it; not waited for."""
        ...


class Roster:
    """See the module."""

    def __init__(self) -> None:
        self._sessions: WeakSet[Listed] = WeakSet()  # one may go before its client was greeted
        self._doubted: WeakSet[Listed] = WeakSet()
        self._seen: tuple[Roles | None, Roles | None] = None, None  # by the last two reviews
        self.others: Others | None = None

    def add(self, session: Listed) -> None:
        self._sessions.add(session)

    def remove(self, session: Listed) -> None:
        self._sessions.discard(session)

    def own_rows(self) -> list[SessionRow]:
        """The sessions of this process that have a number."""
        return [one.row() for one in self._sessions if one.channel.process]

    async def rows(self, asker: Listed, cluster: Cluster) -> list[dict[str, Any]]:
        """Of pg_stat_activity, in the order of the numbers."""
        ids = {r.name: oids.role(r.name, first=not n) for n, r in enumerate(cluster.roles)}
        found = sorted(await self._all())
        return [_row(one, ids.get(one.user), asker.reaches(one)) for one in found]

    async def signal(self, asker: Listed, process: int, *, terminate: bool) -> bool:
        """End a session, or what runs in it; False: there is none. Raises SqlError (42501)."""
        one = next((one for one in self.own_rows() if one.process == process), None)
        here = one is not None
        if one is None:
            one = next((one for one in await self._all() if one.process == process), None)
        if one is None:
            asker.notice(f"PID {process} is not a PostgreSQL backend process", "WARNING", "01000")
            return False
        if not asker.reaches(one):
            _refuse(one, "terminate" if terminate else "cancel")
        if here or self.others is None:
            self.end(process, terminate=terminate)
        else:
            self.others.end(process, terminate=terminate)
        return True

    def end(self, process: int, *, terminate: bool) -> None:
        """End a session of this process, or what runs in it."""
        for one in list(self._sessions):
            if one.channel.process != process:
                continue
            if terminate:
                one.interrupt(
                    Fatal(ADMIN_SHUTDOWN, "terminating connection due to administrator command")
                )
                if one.channel.terminate is not None:
                    one.channel.terminate()
            elif one.channel.cancel is not None:
                one.channel.cancel()

    def review(self, members: Roles) -> None:
        """End the sessions of users who may not log in any more, those that rest, too: one that
        does nothing keeps locks and a place. Each has the time between two looks: it may have
        brought that about itself. Statements that came over HTTP, which have no number, are ended
        there. `members`: the roles as they are now; when they change all are looked at twice.
        """
        before, self._doubted = self._doubted, WeakSet()
        if members is self._seen[0] is self._seen[1] and not before:
            return
        with ExitStack() as reviews:  # one that breaks keeps no other from its end
            for one in self._sessions:
                reviews.callback(self._review, one, before)
        self._seen = members, self._seen[0]

    def _review(self, one: Listed, before: WeakSet[Listed]) -> None:
        why = one.lost() if one.channel.process else None
        if why is None:
            return
        self._doubted.add(one)
        if one in before:
            words = f"terminating connection because {why.message}"
            over = Fatal(ADMIN_SHUTDOWN, words, hint=why.hint)
            one.interrupt(over)
            if one.channel.end is not None:
                one.channel.end(over)

    async def _all(self) -> list[SessionRow]:
        """Of the node."""
        found = [] if self.others is None else list(await self.others.sessions())
        return found + self.own_rows()


def _refuse(one: SessionRow, verb: str) -> None:
    if one.mighty:
        raise SqlError(
            INSUFFICIENT_PRIVILEGE,
            f"must be a superuser to {verb} superuser "
            + ("process" if verb == "terminate" else "query"),
        )
    what = "process is being terminated" if verb == "terminate" else "query is being canceled"
    raise SqlError(
        INSUFFICIENT_PRIVILEGE,
        f"must be a member of the role whose {what} or member of pg_signal_backend",
    )


def _row(one: SessionRow, role: int | None, shown: bool) -> dict[str, object]:
    named = {
        "datid": oids.database(one.database),
        "datname": one.database,
        "pid": one.process,
        "usesysid": role,
        "usename": one.user,
        "application_name": one.application,
        "backend_type": "client backend",
    }
    if not shown:
        return {**named, "query": _HIDDEN}
    return {
        **named,
        "backend_start": _time(one.began),
        "xact_start": _time(one.transaction),
        "query_start": _time(one.statement),
        "state_change": _time(one.changed),
        "state": one.state,
        "query": one.query,
    }


def _time(us: int) -> datetime | None:
    return datetime.fromtimestamp(us / 1_000_000, UTC) if us else None
