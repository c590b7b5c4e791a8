"""One client's session: statements in, portals out, and the transaction around them.

    parse ─▶ Prepared (bound statement + what was compiled for it; remembered for all sessions)
    bind  ─▶ Portal   ─ fetch ─▶ `running` (queries, changes), `commands`, `definitions`
    sync  ─▶ an implicit transaction is committed

A statement that is a transaction by itself is run again when its commit met a conflict, with the
same values, until it fits or SQL_RUNS_MAX is reached; its rows went out already, so it may only end
as it ended before: otherwise the client is told of the conflict (40001), as inside a block.

Errors leave as SqlError; what the store refuses is translated in one place (`_translated`). A
condition of an INSERT that did not hold at the commit is a duplicate key (23505).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from kv.base.errors import ConditionFailed, KvorumError, WriteConflict
from kv.base.limits import (
    DEADLINE_MS_MAX,
    NAME_CHARS_MAX,
    RETRY_WAIT_MS_FIRST,
    RETRY_WAIT_MS_MAX,
    SQL_ACTIVITY_CHARS,
    SQL_RUNS_MAX,
)
from sqlproxy.answers import Channel, Done, Notice, Portal, Statement, Status
from sqlproxy.aside import aside
from sqlproxy.catalog.fence import Fence
from sqlproxy.declared import Declared
from sqlproxy.front import front
from sqlproxy.front import statements as s
from sqlproxy.pg import zones
from sqlproxy.pg.style import Style
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.pgcatalog.contents import Session as CatalogSession
from sqlproxy.pgcatalog.model import SIGNAL, Needs
from sqlproxy.session import running, short_requests
from sqlproxy.session.advising import Advising
from sqlproxy.session.block import Block, Modes, is_conflict
from sqlproxy.session.environment import Told, environment, moment
from sqlproxy.session.frozen import frozen, thawed
from sqlproxy.session.permits import Permits
from sqlproxy.session.portals import Portal as CursorPortal
from sqlproxy.session.prepared import Prepared, newer, plan_of, prepare, remembered
from sqlproxy.session.services import Services
from sqlproxy.session.session_relations import Statements, cursors
from sqlproxy.session.settings import Settings, shown_name
from sqlproxy.tables.reading import Touched
from sqlproxy.tables.referring import check_deferred
from sqlproxy.tables.writing import Outcome
from sqlproxy.values.errors import (
    QUERY_CANCELED,
    READ_ONLY_TRANSACTION,
    UNSUPPORTED,
    SqlError,
    from_store,
    in_failed_transaction,
)
from txn.terms import Terms
from txn.transaction import Transaction

PortalOf = Callable[["SqlSession", Prepared, Sequence[Any]], Awaitable[Portal]]
_EXITS: Final = (s.Commit, s.Rollback, s.RollbackTo)
_REFERRING: Final = (s.Execute, s.Fetch)
"""What is described by something else of the session."""
_OF_TRANSACTION: Final = {
    "transaction_isolation": "isolation",
    "transaction_read_only": "read_only",
    "transaction_deferrable": "deferrable",
}
"""Settings that are modes of the transaction under way."""
_EXIT_KINDS: Final = frozenset(
    {"TRANS_STMT_COMMIT", "TRANS_STMT_ROLLBACK", "TRANS_STMT_ROLLBACK_TO"}
)


@dataclass(slots=True)
class _Sole:
    """The one statement of an implicit transaction, in case that it has to run again."""

    again: Callable[[], Awaitable[Outcome]]
    outcome: Outcome


class SqlSession:
    """See the module, and `sqlproxy.answers.Session` for what the wire calls."""

    def __init__(
        self,
        services: Services,
        user: str,
        database: str,
        given: Mapping[str, str],
        portal_of: PortalOf,
        *,
        stranger: bool,
    ) -> None:
        """`given`: settings of the client's start-up. `portal_of`: sqlproxy.session.dispatch.
        `stranger`: the user is no role, and was let in all the same.
        """
        self.services = services
        self.user, self.database = user, database
        self._portal_of = portal_of
        self.settings = Settings(given)
        self.settings.told("session_authorization", user)
        self.permits = Permits(self, stranger=stranger)
        self.permits.check_role(self.settings.get("role"))
        self.settings.told("is_superuser", "on" if self.permits.free else "off")
        self.statements = Statements(self._now_us)
        self.portals: MutableMapping[str, Portal] = {}
        self.channel = Channel(parameters=self.settings.reported())
        fence = Fence(database, services.client.timers, services.catalogs.presence)
        self.block = Block(services.client, fence)
        self.currvals: dict[str, int | str] = {}
        self.setvals: list[tuple[str, int, bool]] = []  # asked for by what runs
        self.told = Told(self)
        self.held: set[str] = set()  # cursors WITH HOLD …
        self.held_now: set[str] = set()  # … that were declared in this transaction
        self.advising = Advising(self)
        self.sole: _Sole | None = None
        self.outcomes: list[Outcome] = []  # of the transaction: what a refused condition may mean
        self.began_us = services.clock.now_ms() * 1000
        self.transaction_us = 0  # when the transaction began, for now()
        self.message = ""  # the text of several statements that came together
        self.query = ""  # the statement that runs, or ran last, …
        self._statement_us = 0  # … and when it began: the wall clock …
        self._began_s: float | None = None  # … or the loop's, which costs less to ask
        self._moment = services.client.timers.monotonic
        self.rested_us = 0  # since when the session is ready for another one
        self._working = False  # a statement was bound, and nothing ended it yet
        self._running: asyncio.Task[Any] | None = None
        self._why: SqlError | None = None  # why the running task is being cancelled
        self.lone = False  # see the protocol
        self._deaf = False  # a commit is under way, which nothing cancels

    # -- what the wire asks

    @property
    def status(self) -> Status:
        return self.block.status

    @property
    def statement_us(self) -> int:
        """When the statement began that runs, or ran last."""
        if self._began_s is not None:
            ago_us = int((self._moment() - self._began_s) * 1_000_000)
            self.statement_us = self.services.clock.now_ms() * 1000 - ago_us
        return self._statement_us

    @statement_us.setter
    def statement_us(self, us: int) -> None:
        self._statement_us, self._began_s = us, None

    @property
    def busy(self) -> bool:
        """Whether a statement runs: until its client is told that the session is ready again."""
        return self._running is not None or self._working

    @property
    def idle_ms_max(self) -> int:
        if self.block.status == "I":
            return self.settings.ms("idle_session_timeout")
        return self.settings.ms("idle_in_transaction_session_timeout")

    async def split(self, text: str) -> list[str]:
        parts = await aside(text, front.split, text)
        self.lone = len(parts) == 1
        self.block.implicit = len(parts) > 1
        self.message = text
        return parts

    async def parse(self, text: str, oids: Sequence[int]) -> Prepared:
        found = None if self.block.status == "E" else self.known(text, oids)
        if found is None:
            parsed = await aside(text, front.parse, text)
            self._check_allowed(parsed)
            found = await self._guarded(prepare(self, text, parsed, tuple(oids)))
        return self._told_of(found) if type(found.bound) in _REFERRING else found

    def _told_of(self, statement: Prepared) -> Prepared:
        """What has the rows of something else of the session, with what that has now."""
        bound = statement.bound
        if isinstance(bound, s.Execute):
            one: Any = self.statements.get(bound.name)
        else:
            one = None if bound.move else self.portals.get(bound.cursor)
        return replace(statement, fields=None if one is None else one.fields)

    def known(self, text: str, oids: Sequence[int]) -> Prepared | None:
        declared = self.services.catalogs.fresh(self.database)
        return None if declared is None else remembered(self, text, tuple(oids), declared)

    def _check_allowed(self, parsed: Any) -> None:
        """Raises SqlError (25P02): nothing but an end is allowed in a failed transaction."""
        if self.block.status != "E" or parsed is None:
            return
        if parsed.kind == "TransactionStmt" and parsed.body["kind"] in _EXIT_KINDS:
            return
        raise in_failed_transaction()

    async def bind(self, statement: Statement, values: Sequence[Any]) -> Portal:
        assert isinstance(statement, Prepared)
        self.query, self.statement_us = statement.text, self.services.clock.now_ms() * 1000
        self._working = True
        self.advising.check()
        if self.block.status == "E" and not isinstance(statement.bound, _EXITS):
            raise in_failed_transaction()
        self.block.comes(type(statement.bound))
        current = await self._current(statement)
        if (table := frozen(current.bound)) is not None:
            current = await self._guarded(thawed(self, table, lambda: self._current(statement)))
        self.permits.check(current)
        found = await self._portal_of(self, current, tuple(values))
        if isinstance(found, CursorPortal):
            self._mark(found, current.text)
        return found

    def _mark(self, portal: CursorPortal, text: str) -> None:
        """Say of a portal where it was made, and by what."""
        portal.text, portal.made_us = text, self._statement_us
        portal.depth = self.block.depth

    def declare(self, name: str, portal: CursorPortal, text: str, *, hold: bool) -> None:
        """DECLARE CURSOR, which is in this text."""
        self._mark(portal, text)
        self.portals[name] = portal
        if hold:
            self.held.add(name)
            self.held_now.add(name)

    async def drop_cursor(self, name: str) -> None:
        """CLOSE, and the end of a savepoint that it was declared behind."""
        portal = self.portals.pop(name)
        self.held.discard(name)
        self.held_now.discard(name)
        await portal.close()

    async def drop_deeper(self) -> None:
        """Portals that were made behind a savepoint that is gone back to."""
        depth = self.block.depth
        for name, portal in list(self.portals.items()):
            if isinstance(portal, CursorPortal) and portal.depth >= depth:
                await self.drop_cursor(name)

    def lift_cursors(self) -> None:
        """A savepoint is released: what was made behind it belongs to the one before."""
        for portal in self.portals.values():
            if isinstance(portal, CursorPortal):
                portal.depth = min(portal.depth, self.block.depth)

    async def allowed(self, statement: Prepared) -> Prepared:
        """Another statement than the one that runs, as it is bound now. Raises SqlError."""
        current = await self._current(statement)
        self.permits.check(current)
        return current

    async def _current(self, statement: Prepared) -> Prepared:
        """The statement as it is bound to what is declared now."""
        declared = await self.declared()
        if statement.declared is None or statement.declared is declared:
            return statement
        oids = tuple(statement.parameters)  # as the client was told, and writes its values
        parsed = await aside(statement.text, front.parse, statement.text)
        again = await prepare(self, statement.text, parsed, oids)
        if type(again.bound) not in _REFERRING and not _described_alike(again, statement):
            raise SqlError(
                UNSUPPORTED,
                "cached plan must not change result type",
                routine="RevalidateCachedQuery",  # by this asyncpg and pgjdbc prepare it anew
            )
        return again

    def start(self, statement: Statement, values: Sequence[Any], done: Done) -> bool:
        assert isinstance(statement, Prepared)
        declared = self.services.catalogs.fresh(self.database)
        if declared is not None and statement.declared is not declared:  # see `_current`
            again = remembered(self, statement.text, tuple(statement.parameters), declared)
            if again is None or not _described_alike(again, statement):
                return False
            statement = again
        if declared is None or self.advising.any or not self.permits.holds(statement):
            return False
        self.query, self._began_s = statement.text, self._moment()
        return short_requests.start(self, declared, statement, values, done)

    async def failed(self, error: BaseException) -> None:
        self.sole = None
        explicit = self.block.explicit
        await self.block.fail()
        if self.advising.any and not self.block.has_savepoints:
            await self.advising.end_transaction()
        if self.block.transaction is None:  # else ROLLBACK TO may go on, with what was written
            self.outcomes.clear()
        if not explicit:
            self._told(self.settings.end(committed=False))
            self._settle_cursors(committed=False)
            await self._close_portals(self.held)

    async def sync(self) -> None:
        self.lone = self.block.implicit = False
        self.message = ""
        if self.block.explicit:
            self._rest()
            return
        committed = False
        try:
            if self.held_now:
                await self._hold_or_close()
            if self.block.transaction is not None:
                await self.commit()
            else:
                self.block.rest()
            committed = True
        finally:
            self._told(self.settings.end(committed=committed))
            self.transaction_us = 0
            if self.held_now:
                self._settle_cursors(committed=committed)
            if self.portals.keys() - self.held:
                await self._close_portals(self.held)
            self._rest()
            if self.advising.any:
                await self.advising.end_transaction()

    def _rest(self) -> None:
        """The client is told that it is its turn."""
        self._working, self.rested_us = False, self.services.clock.now_ms() * 1000
        if len(self.query) > SQL_ACTIVITY_CHARS:
            self.query = self.query[:SQL_ACTIVITY_CHARS]

    def cancel(self) -> None:
        self.interrupt(SqlError(QUERY_CANCELED, "canceling statement due to user request"))

    async def close(self) -> None:
        self.services.roster.remove(self)
        self.advising.close()
        await self._close_portals()
        await self.block.roll_back()
        self.statements.clear()

    # -- for those who run statements

    async def declared(self) -> Any:
        """What the database declares now."""
        catalogs = self.services.catalogs
        return catalogs.fresh(self.database) or await catalogs.declared(self.database)

    async def look_again(self) -> None:
        """Whatever was remembered of the database: look at it now."""
        self.services.catalogs.forget(self.database)
        await self.declared()

    def bound(self, declared: Declared) -> None:
        """The transaction makes a change that is bound to this."""
        self.block.fence.bound(self.services.catalogs.looked(declared), declared.version)

    @property
    def style(self) -> Style:
        """Of the text of values."""
        return Style(zones.shown(self.settings.get("TimeZone")), self.now)

    def now(self) -> datetime:
        """When the transaction began."""
        if not self.transaction_us:
            self.transaction_us = self.services.clock.now_ms() * 1000
        return moment(self.transaction_us)

    def shown(self) -> dict[str, str]:
        """All settings as SHOW tells them."""
        found = {name: value for name, value, _ in self.settings.all()}
        return found | {name: self.setting(name) for name in _OF_TRANSACTION}

    def setting(self, name: str) -> str:
        """One as SHOW tells it: modes are those of the transaction, or of the next one. Raises
        SqlError.
        """
        of = _OF_TRANSACTION.get(name.lower())
        if of is None:
            return self.settings.get(name)
        value = getattr(self.block.modes if self.block.settled else self.modes(), of)
        return value if isinstance(value, str) else "on" if value else "off"

    def assign(self, name: str, value: str | None, *, local: bool = False) -> None:
        """SET; `value` None: its default. Raises SqlError."""
        key = name.lower()
        if key == "role" and value is not None:
            self.permits.check_role(value)
        of = _OF_TRANSACTION.get(key)
        if of is not None or key.removeprefix("default_") in _OF_TRANSACTION:
            self.block.settle(self.modes())  # what is a default now is the next one's
        if of is None:
            self.settings.set(name, value, local=local)
            self.changed(shown_name(name))
            return
        told = self.settings.checked(key, value or self.settings.get("default_" + key))
        said: dict[str, Any] = {of: told if of == "isolation" else told == "on"}
        self.block.change(s.Begin(**said))

    def modes(self) -> Modes:
        """Of a transaction that begins now."""
        get = self.settings.get
        return Modes(
            get("default_transaction_isolation"),
            get("default_transaction_read_only") == "on",
            get("default_transaction_deferrable") == "on",
            terms=self._terms(),
        )

    def check_writable(self, what: str) -> None:
        """Raises SqlError (25006)."""
        block = self.block
        if block.settled:
            refused = block.modes.read_only or bool(block.modes.at)
        else:
            refused = self.settings.get("default_transaction_read_only") == "on"
        if refused:
            why = "in a read-only transaction"
        elif self.settings.get("kvorum.as_of"):
            why = "while kvorum.as_of reads the past"
        else:
            return
        raise SqlError(READ_ONLY_TRANSACTION, f"cannot execute {what} {why}")

    def _terms(self) -> Terms:
        wait_ms = min(self.settings.ms("lock_timeout"), DEADLINE_MS_MAX)
        return Terms(lock_wait_ms=wait_ms or None, owner=self.owner)

    @property
    def owner(self) -> str:
        """Who this is, for people."""
        name = self.settings.get("application_name")
        owner = f"sql {self.user}@{self.database}" + (f" ({name})" if name else "")
        return owner[:NAME_CHARS_MAX]  # a client may call itself anything

    def notice(
        self, message: str, severity: str = "NOTICE", sqlstate: str = "00000", detail: str = ""
    ) -> None:
        """Tell the client."""
        if self._wants(severity):
            self.channel.notices.append(Notice(severity, sqlstate, message, detail))

    def tell_progress(self, message: str) -> None:
        """Tell the client at once, while it waits."""
        if self._wants("NOTICE"):
            self.channel.tell(Notice("NOTICE", "00000", message))

    def _wants(self, severity: str) -> bool:
        levels = ("debug", "log", "info", "notice", "warning", "error")
        wanted = self.settings.get("client_min_messages").rstrip("12345")
        return severity == "INFO" or levels.index(severity.lower()) >= levels.index(wanted)

    def _told(self, changed: Mapping[str, str]) -> None:
        self.channel.parameters.update(changed)

    def changed(self, name: str) -> None:
        """A setting was set: the client is told if it is one of those."""
        reported = self.settings.reported()
        if name in reported:
            self.channel.parameters[name] = reported[name]

    def _now_us(self) -> int:
        return self.services.clock.now_ms() * 1000

    def clock_time(self) -> datetime:
        """Now, each time it is asked."""
        return moment(self.services.clock.now_ms() * 1000)

    def set_sole(self, again: Callable[[], Awaitable[Outcome]], outcome: Outcome) -> None:
        """The statement under way is a transaction by itself, which may run again."""
        self.sole = _Sole(again, outcome)

    def tell_settings(self, changed: Mapping[str, str]) -> None:
        """What the client is told of settings."""
        self._told(changed)

    async def ask_catalog(self, system: Any, values: Sequence[Any]) -> list[Any]:
        """The rows of a query over the system's relations. Raises SqlError."""
        services = self.services
        declared, cluster = await self.declared(), await services.cluster()
        who = CatalogSession(
            user=self.permits.acting,
            database=self.database,
            settings=self.shown(),
            now_us=self.transaction_us or services.clock.now_ms() * 1000,
            started_us=self.began_us,
            pid=self.channel.process,
            query=self.query,
            **await self._told_of_sessions(system.translated.needs, cluster),
        )
        contents = declared.contents
        try:
            answer = await services.system.execute(system, values, who, cluster, contents)
        except SqlError as error:  # a regclass
            contents = (await newer(self, declared, error)).contents
            answer = await services.system.execute(system, values, who, cluster, contents)
        for change in answer.changes:
            if change.name == SIGNAL:
                if change.value is not None:
                    process = int(change.value)
                    await services.roster.signal(self, process, terminate=change.local)
                    await asyncio.sleep(0)  # if it was this session its statement ends here
                continue
            self.assign(change.name, change.value, local=change.local)
        return answer.rows

    async def _told_of_sessions(self, needs: Needs, cluster: Cluster) -> dict[str, Any]:
        """What a query of the catalog asks of sessions and transactions: most ask nothing."""
        found: dict[str, Any] = {}
        if "txid" in needs.facts:  # a transaction that is asked for its number has one
            if self.block.explicit:
                found["txid"] = (await self.block.work(self.modes())).start_ts
            else:
                found["txid"] = await self.services.client.now()
        elif self.block.transaction is not None:
            found["txid"] = self.block.transaction.start_ts
        if "pids" in needs.facts or "pg_stat_activity" in " ".join(needs.feeds):
            found["activity"] = await self.services.roster.rows(self, cluster)
        found["own"] = {
            name: list(rows)
            for name, rows in (
                ("pg_prepared_statements", self.statements.rows()),
                ("pg_cursors", cursors(self)),
            )
            if f"kv_{name}" in needs.feeds
        }
        return found

    async def fill(self, table: str, columns: Sequence[str], select: s.Select) -> int:
        """INSERT INTO a table that was just made; the number of rows."""
        declared = await self.declared()
        there = declared.table(table)
        assert there is not None
        named = [there.column(name) for name in columns]
        item = s.TableItem(alias=table, columns=(), offset=0, table=there)
        insert = s.Insert(text="", tree={}, target=item, columns=tuple(named), select=select)
        prepared = Prepared("", (), insert, declared, None, (), plan=plan_of(insert))
        return (await running.change(self, prepared, (), Touched())).count

    async def hold_cursors(self) -> None:
        """Cursors WITH HOLD keep their rows beyond the transaction: all are read now."""
        for name in self.held_now:
            portal = self.portals.get(name)
            if isinstance(portal, CursorPortal):
                await portal.keep()

    async def _hold_or_close(self) -> None:
        """Raises SqlError, KvorumError: the transaction is over, and they with it."""
        try:
            await self.hold_cursors()
        except BaseException:
            self._settle_cursors(committed=False)
            await self.block.roll_back()
            raise

    def _settle_cursors(self, *, committed: bool) -> None:
        """Those WITH HOLD of a transaction that failed go with it; older ones stay."""
        if not committed:
            self.held -= self.held_now
        for name in self.held_now & self.held:
            portal = self.portals[name]
            assert isinstance(portal, CursorPortal)
            portal.depth = 0  # no savepoint of a later transaction takes it back
        self.held_now.clear()

    async def close_cursors(self) -> None:
        """CLOSE ALL."""
        self.held.clear()
        self.held_now.clear()
        await self._close_portals()

    async def ended(self, *, committed: bool) -> None:
        """A block is over."""
        if self.advising.any:
            await self.advising.end_transaction()
        self._told(self.settings.end(committed=committed))
        self.transaction_us = 0
        self.sole = None
        self.outcomes.clear()
        self._settle_cursors(committed=committed)
        await self._close_portals(self.held)

    async def commit(self) -> None:
        """Commit the transaction, explicit or not. Raises SqlError; it is over anyway."""
        sole, outcomes = self.sole, self.outcomes
        self.sole, self.outcomes = None, []
        try:
            self.advising.check()
            await self._check_deferred()
            await self.undisturbed(self._commit(sole, outcomes))
        except BaseException:
            # What ran again behind a conflict, and failed then, has begun a transaction: what it
            # wrote there must not be committed with the next statement.
            await self.block.roll_back()
            raise

    async def _check_deferred(self) -> None:
        """Raises SqlError (23503)."""
        if self.block.deferred and self.block.transaction is not None:
            await self._guarded(self.check_constraints(every=True))

    async def check_constraints(self, *, every: bool) -> None:
        """Those that were deferred, as things are now; `every`: also those that still are. Raises
        SqlError (23503), KvorumError.
        """
        block = self.block
        if block.deferred and block.transaction is not None:
            env, _ = environment(self, ())
            declared = await self.declared()
            deferred = block.deferred
            done = await check_deferred(block.transaction, declared, env, deferred, every=every)
            if not block.has_savepoints:
                deferred.forget(done)

    async def undisturbed(self, commit: Awaitable[None]) -> None:
        """A commit, which nothing cancels."""
        self._deaf = True
        try:
            await commit
        finally:
            self._deaf = False

    async def _commit(self, sole: _Sole | None, outcomes: Sequence[Outcome]) -> None:
        runs = 1
        while True:
            modes, t = self.block.modes, self.block.transaction
            try:
                await self.block.commit()
                return
            except KvorumError as error:
                conflict = is_conflict(error) or _again(error, outcomes)
                if sole is None or not conflict or runs >= SQL_RUNS_MAX:
                    assert t is not None
                    duplicate = await self._duplicate(t, error, outcomes)
                    raise duplicate or self._refused(error, outcomes) from error
            most = min(RETRY_WAIT_MS_MAX, RETRY_WAIT_MS_FIRST << runs)
            await asyncio.sleep(most * self.services.random() / 1000)
            runs += 1
            await self.block.work(modes)
            before = sole.outcome
            outcome = await sole.again()
            await self.check_constraints(every=True)
            if (outcome.count, outcome.rows) != (before.count, before.rows):
                await self.block.roll_back()
                raise SqlError(
                    "40001",
                    "could not serialize access due to concurrent update",
                    hint="Run the statement again.",
                )
            outcomes = [outcome]

    async def _duplicate(
        self, t: Transaction, error: KvorumError, outcomes: Sequence[Outcome]
    ) -> SqlError | None:
        """A conflict at a key that was to be new is a duplicate, if the key is there by now: to run
        the transaction again would not help.
        """
        key = error.details.get("key")
        if not isinstance(error, WriteConflict) or not isinstance(key, bytes):
            return None
        if not t.creates(key) or (told := _violated(key, outcomes)) is None:
            return None
        try:
            found, _ = await self.services.client.get(key)
        except KvorumError:
            return None  # the conflict is true, too
        return told if found is not None else None

    @staticmethod
    def _refused(error: KvorumError, outcomes: Sequence[Outcome]) -> SqlError:
        if isinstance(error, ConditionFailed) and not _again(error, outcomes):
            key = error.details.get("key")
            if isinstance(key, bytes) and (told := _violated(key, outcomes)) is not None:
                return told
        if isinstance(error, ConditionFailed):
            return SqlError(
                "40001",
                "could not serialize access due to concurrent update",
                detail=error.message,
                hint="Run the whole transaction again.",
            )
        return from_store(error)

    async def _close_portals(self, kept: Collection[str] = ()) -> None:
        for name in [name for name in self.portals if name not in kept]:
            await self.portals.pop(name).close()

    # -- cancellation and deadlines

    async def guard(self, work: Awaitable[Any]) -> Any:
        """Await one piece of a statement: it can be cancelled, ends at statement_timeout, and what
        the store refuses is SQL's error.
        """
        return await self._guarded(work)

    async def _guarded(self, work: Awaitable[Any]) -> Any:
        outer = self._running
        task = asyncio.current_task()
        self._running = task
        ms = self.settings.ms("statement_timeout")
        timer = None
        if ms:
            timer = self.services.cancel_after(ms / 1000, self._timed_out)
        try:
            return await work
        except KvorumError as error:
            raise self._refused(error, self.outcomes) from error
        except asyncio.CancelledError:
            if self._why is None or task is None:
                raise
            why, self._why = self._why, None
            task.uncancel()
            raise why from None
        finally:
            self._running = outer
            if timer is not None:
                timer.cancel()

    def explain(self, detail: str) -> None:
        """What the error of the statement that is being cancelled says besides."""
        if self._why is not None:
            self._why.detail = detail

    def _timed_out(self) -> None:
        self.interrupt(SqlError(QUERY_CANCELED, "canceling statement due to statement timeout"))

    def interrupt(self, why: SqlError) -> None:
        """What runs ends with this error; nothing else does."""
        if self._running is not None and not self._deaf and self._why is None:
            self._why = why
            self._running.cancel()


def _described_alike(one: Prepared, other: Prepared) -> bool:
    """Whether a client that was told the one's columns reads the other's rows. Which table they are
    of does not matter: it has another OID when it was emptied, or made anew.
    """
    if one.fields is other.fields or one.fields is None or other.fields is None:
        return one.fields is other.fields
    told, now = ([(f.name, f.oid, f.typmod) for f in p.fields or ()] for p in (one, other))
    return told == now


def _violated(key: bytes, outcomes: Sequence[Outcome]) -> SqlError | None:
    """What it means for these changes that somebody else has the key."""
    writers = (writer for outcome in outcomes for writer in outcome.writers)
    return next((told for one in writers if (told := one.violated(key)) is not None), None)


def _again(error: KvorumError, outcomes: Sequence[Outcome]) -> bool:
    """Whether a refused condition only says that somebody was faster than ON CONFLICT."""
    return isinstance(error, ConditionFailed) and any(outcome.again for outcome in outcomes)
