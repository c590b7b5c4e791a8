"""Opens sessions for the wire: databases, roles, passwords (`sqlproxy.wire.seam.Sessions`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from kv.base.errors import Busy
from kv.base.rights import LOOPBACK, Identity, Roles
from sqlproxy.catalog import role_settings, roles
from sqlproxy.catalog.privileges import Rights
from sqlproxy.session.session import SqlSession
from sqlproxy.session.shared.services import Services
from sqlproxy.session.state.permits import check_role
from sqlproxy.session.state.settings import CAUSAL_TOKEN, Settings
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import (
    INSUFFICIENT_PRIVILEGE,
    INVALID_AUTHORIZATION,
    TOO_MANY_CONNECTIONS,
    SqlError,
)

_CONNECTION: Final = frozenset({"user", "database", "replication", "options"})


class SqlSessions:
    """See the protocol."""

    def __init__(self, services: Services) -> None:
        self.services = services

    async def open(
        self, identity: Identity, address: str, database: str, settings: Mapping[str, str]
    ) -> SqlSession:
        user = identity.name
        declared = await self.services.catalogs.declared(database)
        role = await roles.find(self.services.client, user)
        book = self.services.catalogs.roles
        if role is not None and book.members.get(user) is None:
            book.forget()  # it is new
        members = await book.look()
        if role is None and identity.credential != LOOPBACK.credential:
            raise SqlError(INVALID_AUTHORIZATION, f'role "{user}" does not exist')
        if role is not None and not role.login:
            raise SqlError(INVALID_AUTHORIZATION, f'role "{user}" is not permitted to log in')
        if role is not None and not Rights(members, {}, declared.place).allows_in_database(
            user, "c"
        ):
            raise SqlError(
                INSUFFICIENT_PRIVILEGE,
                f'permission denied for database "{database}"',
                detail="User does not have CONNECT privilege.",
            )
        given = {name: value for name, value in settings.items() if name not in _CONNECTION}
        stranger = role is None
        given = {**await self._defaults(user, database, members, stranger=stranger), **given}
        state = State(self.services, identity, address, database, given, stranger=stranger)
        await state.hear(state.settings[CAUSAL_TOKEN])
        try:
            state.connect()
        except Busy as error:
            raise SqlError(TOO_MANY_CONNECTIONS, error.message) from error
        self.services.roster.add(state)
        return SqlSession(state)

    async def _defaults(
        self, user: str, database: str, members: Roles, *, stranger: bool
    ) -> dict[str, str]:
        """What ALTER ROLE and ALTER DATABASE … SET say, as far as it still means something, so that
        nobody is locked out by it.
        """
        found = await role_settings.beginning(self.services.client, user, database)
        good = {}
        for name, value in found.items():
            key = name.lower()
            if key == CAUSAL_TOKEN:  # of another cluster's time, perhaps
                continue
            with suppress(SqlError):
                checked = Settings.checked(key, value)
                if key == "role":
                    check_role(user, checked, members, stranger=stranger)
                good[name] = checked
        return good

    async def verifier(self, user: str) -> str | None:
        role = await roles.find(self.services.client, user)
        return None if role is None or not role.login else role.verifier

    async def trusted(self, loopback: bool) -> bool:
        if not loopback:
            return False
        there = await roles.all_roles(self.services.client)
        return not await roles.closed(self.services.client, there)
