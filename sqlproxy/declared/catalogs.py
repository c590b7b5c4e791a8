"""What is declared in each database, as a process knows it.

It looks at most once per `ttl_s` whether a database's schema version has risen (one row), and at
once after a definition of its own. However many sessions need it, one of them asks the store and
the others wait for its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kv.base.errors import NotFound
from kv.base.limits import SQL_POLL_MS, SQL_POLL_SOON_MS
from kv.base.ports import Timers
from sqlproxy.catalog import catalog, relations
from sqlproxy.catalog.catalog import Reader
from sqlproxy.catalog.declaration_users import Presence, Use
from sqlproxy.catalog.fence import NEVER
from sqlproxy.catalog.privileges import Place
from sqlproxy.catalog.roles import RoleBook
from sqlproxy.declared.database import Declared
from sqlproxy.pgcatalog.contents import Contents
from sqlproxy.rows.naming import database_of
from sqlproxy.values.errors import UNDEFINED_DATABASE, SqlError
from txn.shared.deadlines import sleep

_DATABASES_MAX: Final = 1_000  # remembered
_SLOWER_S: Final = 0.5  # after it, what is waited for is asked for less often


@dataclass(slots=True)
class _Known:
    declared: Declared
    looked: float
    good_until: float
    used: bool = True  # since it was looked at last


class Catalogs:
    """The databases of one node's clients."""

    def __init__(
        self, reader: Reader, timers: Timers, ttl_s: float, presence: Presence | None = None
    ) -> None:
        """`presence`: tells schema changes what is used here; without it they wait by time."""
        self.presence = presence
        self.roles = RoleBook(reader, timers.monotonic, ttl_s)
        if presence is not None:
            presence.tell(self.forget, self._saw)
        self._reader = reader
        self._now = timers.monotonic
        self._ttl_s = ttl_s
        self._known: dict[str, _Known] = {}
        self._timers = timers
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._asking: dict[str, asyncio.Future[None]] = {}
        self._forgotten: dict[str, float] = {}  # when: who asked before may not know

    def fresh(self, database: str) -> Declared | None:
        """What `declared` would answer without asking."""
        known = self._known.get(database)
        if known is None or known.good_until <= self._now():
            return None
        declared, presence = known.declared, self.presence
        if presence is not None and declared.version < presence.floor(database):
            return None
        known.used = True
        return declared

    async def _saw(self, database: str, version: int, asked: float) -> bool:
        """The process has read the version for another reason (`Presence.poll`): as good as a look,
        for what is in use. So statements that come all the time never wait for one.
        """
        known = self._known.get(database)
        if known is None or not known.used:
            return False
        await self.roles.look()
        if self._known.get(database) is not known:
            return False
        if known.declared.version != version:
            if asked > known.looked:
                known.good_until = NEVER  # another process declared something: look sooner
            return False
        if asked <= known.looked or self._outdated(known.declared):
            return False
        known.looked, known.good_until = asked, self._good_until(database, asked)
        known.used = False
        return True

    def _outdated(self, declared: Declared) -> bool:
        """Whether this process has said that it uses nothing so old any more."""
        presence = self.presence
        return presence is not None and declared.version < presence.floor(declared.database)

    async def declared(self, database: str) -> Declared:
        """Raises SqlError (3D000)."""
        return await self._asked(database, lambda: self.fresh(database))

    def moment(self) -> float:
        """Now, for `declared_since`."""
        return self._now()

    async def declared_since(self, database: str, moment: float) -> Declared:
        """What a look finds that began no earlier: another process may just have declared what a
        statement names. However many wait, one of them looks. Raises SqlError (3D000).
        """

        def known() -> Declared | None:
            one = self._known.get(database)
            if one is None or one.looked < moment or self._outdated(one.declared):
                return None
            return one.declared

        return await self._asked(database, known)

    async def _asked(self, database: str, known: Callable[[], Declared | None]) -> Declared:
        """What is `known`, or else what this look finds, or one that somebody else began."""
        if (found := known()) is not None:
            return found
        while (other := self._asking.get(database)) is not None:
            await asyncio.wait([other])
            if (found := known()) is not None:
                return found
        mine = asyncio.get_running_loop().create_future()
        self._asking[database] = mine
        try:
            return await self._look(database)
        finally:
            if self._asking.get(database) is mine:
                del self._asking[database]
            mine.set_result(None)

    async def _look(self, database: str) -> Declared:
        await self.roles.look()
        while True:
            asked = self._now()  # its age counts from before the read
            version = await self._version(database)
            known = self._known.get(database)
            if known is not None and known.declared.version == version:
                known.looked, known.good_until = asked, self._good_until(database, asked)
                found = known.declared
            else:
                found = await self._load(database, version, asked)
            if not self._outdated(found):
                return found

    async def _version(self, database: str) -> int:
        if self.presence is not None:
            return await self.presence.look(database)
        return await catalog.schema_version(self._reader, database)

    def looked(self, declared: Declared) -> float:
        """When (on the monotonic clock) it was last known to be what is declared; NEVER if
        something newer is known, or was acknowledged: a schema change does not wait any more for
        what is bound to it from now on (a COPY whose rows come late, a statement that runs again).
        """
        known = self._known.get(declared.database)
        if known is None or known.declared is not declared.stored:
            return NEVER
        presence = self.presence
        if presence is not None and declared.version < presence.acknowledged(declared.database):
            return NEVER
        return known.looked

    def use(self, declared: Declared) -> Use:
        """A statement that is bound to it begins; end it when that does not matter any more."""
        return Use(self.presence, declared.database, declared.version)

    async def _load(self, database: str, version: int, asked: float) -> Declared:
        try:
            space = await catalog.lookup_namespace(self._reader, database_of(database))
            if space.name != database:
                raise NotFound(f"{database} is a schema of {space.name}")
        except NotFound:
            self._known.pop(database, None)
            raise SqlError(UNDEFINED_DATABASE, f'database "{database}" does not exist') from None
        # What is read after the version may be newer, never older: then it is read once more.
        found = await relations.list_database(self._reader, database)
        if len(self._known) >= _DATABASES_MAX:
            self._known.clear()
        if (known := self._known.get(database)) is not None:
            if known.looked > asked:  # by somebody who asked later and was answered sooner
                return known.declared
            found = _same_objects(known.declared.contents, found)
        place = Place(
            space.name,
            space.owner,
            space.acl,
            space.schema_acl,
            space.comment,
            space.schema_comment,
        )
        declared = Declared(found, version, place)
        self._known[database] = _Known(declared, asked, self._good_until(database, asked))
        return declared

    def _good_until(self, database: str, asked: float) -> float:
        if asked < self._forgotten.get(database, NEVER):
            return NEVER
        return asked + self._ttl_s

    def forget(self, database: str) -> None:
        """Something in it was changed from here: look before the next statement."""
        if len(self._forgotten) >= _DATABASES_MAX:
            self._forgotten.clear()
            self._known.clear()
        self._forgotten[database] = self._now()
        self._asking.pop(database, None)
        if (known := self._known.get(database)) is not None:
            known.good_until = NEVER

    def forget_roles(self) -> None:
        """They were changed from here: ask before the next statement in any database."""
        self.roles.forget()
        for database in {*self._known, *self._asking}:
            self.forget(database)

    async def changed(self, before: Declared, until: float) -> None:
        """Until something else is declared in its database, or `until` (monotonic). However many
        wait, one of them asks, and the less often the longer it takes.
        """
        before = before.stored
        database, began = before.database, self._now()
        while self._now() < until:
            other = self._waiting.get(database)
            if other is not None:
                await asyncio.wait([other], timeout=until - self._now())
                known = self._known.get(database)
                if known is not None and known.declared is not before:
                    return
                continue
            mine = asyncio.get_running_loop().create_future()
            self._waiting[database] = mine
            try:
                while self._now() < until:
                    soon = self._now() - began < _SLOWER_S
                    await sleep(self._timers, (SQL_POLL_SOON_MS if soon else SQL_POLL_MS) / 1000)
                    self.forget(database)
                    if await self.declared(database) is not before:
                        return
            finally:
                del self._waiting[database]
                mine.set_result(None)


def _same_objects(before: Contents, found: relations.Relations) -> relations.Relations:
    """What did not change stays the same object: codecs and the system catalog know it by that."""

    def kept(one: Any) -> Any:
        old = before.everything.get(int(one.id))
        return old if old == one else one

    return relations.Relations(
        found.namespace,
        tuple(kept(table) for table in found.tables),
        tuple(kept(view) for view in found.views),
        tuple(kept(sequence) for sequence in found.sequences),
        tuple(kept(one) for one in found.types),
        tuple(kept(one) for one in found.functions),
        found.spaces,
    )
