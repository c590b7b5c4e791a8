"""The sessions of one process: what pg_stat_activity lists, and what pg_cancel_backend and
pg_terminate_backend end. A session goes by the number that its client was told (BackendKeyData),
which is one of this process: other nodes have sessions of the same numbers, and are not listed.

Who asks sees all sessions, and the statements of those whose role it is a member of; these alone it
may end, those of a superuser only as one. A superuser sees and ends all.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from kv.base.limits import SQL_ACTIVITY_CHARS
from sqlproxy.errors import ADMIN_SHUTDOWN, INSUFFICIENT_PRIVILEGE, SqlError
from sqlproxy.pgcatalog import oids
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.wire.codec import Fatal

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession

_HIDDEN: Final = "<insufficient privilege>"


class Roster:
    """See the module."""

    def __init__(self) -> None:
        self._sessions: WeakSet[SqlSession] = WeakSet()  # one may go before its client was greeted

    def add(self, session: SqlSession) -> None:
        self._sessions.add(session)

    def remove(self, session: SqlSession) -> None:
        self._sessions.discard(session)

    def all(self) -> list[SqlSession]:
        """Those that have a number, in its order."""
        found = [one for one in self._sessions if one.channel.process]
        return sorted(found, key=lambda one: one.channel.process)

    def rows(self, asker: SqlSession, cluster: Cluster) -> list[dict[str, Any]]:
        """Of pg_stat_activity."""
        ids = {r.name: oids.role(r.name, first=not n) for n, r in enumerate(cluster.roles)}
        return [_row(one, ids.get(one.user), _may(asker, one)) for one in self.all()]

    def signal(self, asker: SqlSession, process: int, *, terminate: bool) -> None:
        """End a session, or what runs in it. Raises SqlError (42501)."""
        for one in self.all():
            if one.channel.process == process:
                break
        else:
            asker.notice(f"PID {process} is not a PostgreSQL backend process", "WARNING", "01000")
            return
        if not _may(asker, one):
            _refuse(one, "terminate" if terminate else "cancel")
        if terminate:
            one.interrupt(
                Fatal(ADMIN_SHUTDOWN, "terminating connection due to administrator command")
            )
            if one.channel.terminate is not None:
                one.channel.terminate()
        elif one.channel.cancel is not None:
            one.channel.cancel()


def _may(asker: SqlSession, one: SqlSession) -> bool:
    """Whether it may see what the session does, and end it."""
    if asker is one or asker.permits.free:
        return True
    members = asker.permits.members
    return not _mighty(one) and one.user in members.roles_of(asker.permits.acting)


def _mighty(one: SqlSession) -> bool:
    """A superuser's, whatever it does for now as another role (SET ROLE)."""
    return one.permits.free or one.permits.members.superuser(one.user)


def _refuse(one: SqlSession, verb: str) -> None:
    if _mighty(one):
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


def _row(one: SqlSession, role: int | None, shown: bool) -> dict[str, Any]:
    if not shown:
        return {**_named(one, role), "query": _HIDDEN}
    began = one.statement_us
    changed = began if one.busy else max(began, one.rested_us)
    in_transaction = one.block.explicit or one.block.transaction is not None
    return {
        **_named(one, role),
        "backend_start": _time(one.began_us),
        "xact_start": _time(one.transaction_us) if in_transaction else None,
        "query_start": _time(began),
        "state_change": _time(changed),
        "state": _state(one),
        "query": one.query[:SQL_ACTIVITY_CHARS],
    }


def _named(one: SqlSession, role: int | None) -> dict[str, Any]:
    return {
        "datid": oids.database(one.database),
        "datname": one.database,
        "pid": one.channel.process,
        "usesysid": role,
        "usename": one.user,
        "application_name": one.settings.get("application_name"),
        "backend_type": "client backend",
    }


def _state(one: SqlSession) -> str:
    if one.busy:
        return "active"
    return {"I": "idle", "T": "idle in transaction"}.get(
        one.status, "idle in transaction (aborted)"
    )


def _time(us: int | None) -> datetime | None:
    return datetime.fromtimestamp(us / 1_000_000, UTC) if us else None
