"""The sessions of one node: what pg_stat_activity lists, and what pg_cancel_backend and
pg_terminate_backend end. A session goes by the number that its client was told (BackendKeyData),
which is one of this node: other nodes have sessions of the same numbers, and are not listed. If
several processes serve SQL for the node, `others` knows those of the rest.

Who asks sees all sessions, and the statements of those whose role it is a member of; these alone it
may end, those of a superuser only as one. A superuser sees and ends all.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from weakref import WeakSet

from kv.base.limits import SQL_ACTIVITY_CHARS
from sqlproxy.pgcatalog import oids
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.values.errors import ADMIN_SHUTDOWN, INSUFFICIENT_PRIVILEGE, SqlError
from sqlproxy.wire.codec import Fatal

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession

_HIDDEN: Final = "<insufficient privilege>"


class Told(NamedTuple):
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


def told_from(row: Sequence[Any]) -> Told:
    """Of what another process sent."""
    return Told(*row)


class Others(Protocol):
    """The other processes that serve SQL for this node."""

    async def sessions(self) -> Sequence[Told]:
        """Theirs; a process that does not answer soon is left out."""
        ...

    def end(self, process: int, *, terminate: bool) -> None:
        """End this session of theirs, or what runs in it; not waited for."""
        ...


class Roster:
    """See the module."""

    def __init__(self) -> None:
        self._sessions: WeakSet[SqlSession] = WeakSet()  # one may go before its client was greeted
        self.others: Others | None = None

    def add(self, session: SqlSession) -> None:
        self._sessions.add(session)

    def remove(self, session: SqlSession) -> None:
        self._sessions.discard(session)

    def told(self) -> list[Told]:
        """The sessions of this process that have a number."""
        return [_told(one) for one in self._sessions if one.channel.process]

    async def rows(self, asker: SqlSession, cluster: Cluster) -> list[dict[str, Any]]:
        """Of pg_stat_activity, in the order of the numbers."""
        ids = {r.name: oids.role(r.name, first=not n) for n, r in enumerate(cluster.roles)}
        found = sorted(await self._all())
        return [_row(one, ids.get(one.user), _may(asker, one)) for one in found]

    async def signal(self, asker: SqlSession, process: int, *, terminate: bool) -> None:
        """End a session, or what runs in it. Raises SqlError (42501)."""
        one = next((one for one in self.told() if one.process == process), None)
        here = one is not None
        if one is None:
            one = next((one for one in await self._all() if one.process == process), None)
        if one is None:
            asker.notice(f"PID {process} is not a PostgreSQL backend process", "WARNING", "01000")
            return
        if not _may(asker, one):
            _refuse(one, "terminate" if terminate else "cancel")
        if here or self.others is None:
            self.end(process, terminate=terminate)
        else:
            self.others.end(process, terminate=terminate)

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

    async def _all(self) -> list[Told]:
        """Of the node."""
        found = [] if self.others is None else list(await self.others.sessions())
        return found + self.told()


def _told(one: SqlSession) -> Told:
    began = one.statement_us
    in_transaction = one.block.explicit or one.block.transaction is not None
    return Told(
        process=one.channel.process,
        user=one.user,
        mighty=one.permits.free or one.permits.members.superuser(one.user),
        database=one.database,
        application=one.settings.get("application_name"),
        state=_state(one),
        began=one.began_us,
        transaction=one.transaction_us if in_transaction else 0,
        statement=began,
        changed=began if one.busy else max(began, one.rested_us),
        query=one.query[:SQL_ACTIVITY_CHARS],
    )


def _may(asker: SqlSession, one: Told) -> bool:
    """Whether it may see what the session does, and end it."""
    if asker.channel.process == one.process or asker.permits.free:
        return True
    members = asker.permits.members
    return not one.mighty and one.user in members.roles_of(asker.permits.acting)


def _refuse(one: Told, verb: str) -> None:
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


def _row(one: Told, role: int | None, shown: bool) -> dict[str, Any]:
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


def _state(one: SqlSession) -> str:
    if one.busy:
        return "active"
    return {"I": "idle", "T": "idle in transaction"}.get(
        one.status, "idle in transaction (aborted)"
    )


def _time(us: int) -> datetime | None:
    return datetime.fromtimestamp(us / 1_000_000, UTC) if us else None
