"""What one session is and has: whoever runs a statement for a client is handed this."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from kv.base.accounts import Use
from kv.base.errors import Busy
from kv.base.limits import DEADLINE_MS_MAX, NAME_CHARS_MAX, SQL_ACTIVITY_CHARS
from kv.base.rights import Identity, Roles
from sqlproxy.catalog.fence import Fence
from sqlproxy.declared.database import Declared
from sqlproxy.front.bound import statements as s
from sqlproxy.front.bound.env import NO_CATALOG, Catalog
from sqlproxy.pg import zones
from sqlproxy.pg.style import Style
from sqlproxy.rows.naming import PUBLIC, TEMPORARY
from sqlproxy.session.shared.prepared import Plans, Prepared
from sqlproxy.session.shared.roster import SessionRow
from sqlproxy.session.shared.services import Services
from sqlproxy.session.state.activity import Activity
from sqlproxy.session.state.block import Block, Modes
from sqlproxy.session.state.cursors import Cursors
from sqlproxy.session.state.interrupts import Interrupts
from sqlproxy.session.state.listening import Listening
from sqlproxy.session.state.outcomes import refused
from sqlproxy.session.state.permits import Permits
from sqlproxy.session.state.prepared_statements import Statements
from sqlproxy.session.state.session_locks import Advising
from sqlproxy.session.state.settings import (
    CAUSAL_TOKEN,
    USER_SCHEMA,
    Settings,
    search_path,
)
from sqlproxy.session.state.temporary import Sequences, Temporary
from sqlproxy.session.state.variables import Variables
from sqlproxy.values.errors import (
    ACTIVE_TRANSACTION,
    READ_ONLY_TRANSACTION,
    SqlError,
    from_store,
)
from sqlproxy.values.memory import SETTING, Budget, Held
from sqlproxy.wire.seam import Channel, Notice
from txn.shared.wait_terms import Terms
from txn.transaction import Transaction

_LEVELS: Final = ("debug", "log", "info", "notice", "warning", "error")
_ENDS: Final = (s.Commit, s.Rollback, s.RollbackTo)
_IN_BLOCK: Final = "idle in transaction"
_STATES: Final = {"I": "idle", "T": _IN_BLOCK, "E": f"{_IN_BLOCK} (aborted)"}


class State:
    """See the module. `given`: settings of the client's start-up. `stranger`: the user is no role,
    and was let in all the same, from the loopback. `sqlproxy.session.shared.roster.Listed`, too.
    """

    def __init__(
        self,
        services: Services,
        identity: Identity,
        address: str,
        database: str,
        given: Mapping[str, str],
        *,
        stranger: bool,
    ) -> None:
        """Raises SqlError."""
        self.services: Final = services
        self.user: Final = identity.name
        self._identity, self._address = identity, address
        self.database: Final = database
        client = services.client
        tenants = services.tenants
        self.tenant: Final = tenants.user(identity.name)
        self.place: Final = tenants.namespace(database)
        self.settings: Final = Settings(given, services.session_defaults)
        self.budget: Final = Budget(services.memory, int(self.settings.get(SETTING)))
        self.held: Final = Held(self.budget)  # of the statement under way
        self._seen = -1  # how often settings had changed when the budget heard of them
        self.settings.fix("session_authorization", self.user)
        book = services.catalogs.roles
        self.permits: Final = Permits(identity, self.settings, book, stranger=stranger)
        self.permits.check_role(self.settings.get("role"))
        self.settings.fix("is_superuser", "on" if self.permits.free else "off")
        self.use: Final = Use(self.tenant, self.place, asked=not self.permits.free)
        self.budget.serve(self.use)
        self.channel: Final = Channel(parameters=self.settings.reported())
        self.activity: Final = Activity(services.clock, client.timers)
        self.temporary: Temporary | None = None  # what it has for itself
        self.numbers: Final = Sequences(services.numbers, lambda: self.temporary)
        fence = Fence(database, client.timers, services.catalogs.presence)
        self.block: Final = Block(client, fence)
        self.statements: Final = Statements(self.activity.now_us, self.budget)
        self.cursors: Final = Cursors(self.block, self.activity)
        self.interrupts: Final = Interrupts(
            self.settings,
            services.cancel_after,
            lambda error: refused(error, self.block.outcomes),
            self.turn,
            self.use,
            services.tenants.turns,
        )
        self.variables: Final = Variables(
            *(self.settings, self.block, self.permits, self.channel, self.modes),
            lambda: client.causal_token,
        )
        self.advising: Final = Advising(
            services.advisory,
            services.token,
            database,
            self.block,
            self.settings,
            owner=lambda: self.owner,
            warn=lambda message: self.notice(message, "WARNING", "01000"),
        )
        self.listening: Final = Listening(services.notifier, database, self.channel)
        self.catalog: Catalog = NO_CATALOG  # what functions ask, of the last statement that asks …
        self.brought = frozenset[str]()  # … this (front.front.BoundWith.asks)
        self.currvals: Final[dict[int, int]] = {}
        self._along: tuple[Declared, int, Roles, Declared] | None = None
        self.setvals: Final[list[tuple[str, int, bool]]] = []  # asked for by what runs

    def check(self, prepared: Prepared) -> None:
        """Whether its user may run that, reported to the audit. Raises SqlError (42501, 28000)."""
        audit = self.services.audit
        refused: SqlError | None = None
        try:
            self.permits.check(prepared)
        except SqlError as error:
            refused = error
            raise
        finally:
            if audit is not None:
                audit.decided(
                    *(self._identity, self._address, self.settings.get("application_name")),
                    type(prepared.bound).__name__.lower(),
                    [need.relation for need in prepared.needs],
                    refused,
                )

    def connect(self) -> None:
        """Its client has come; the session's end disconnects. Raises Busy."""
        self.tenant.connect(asked=self.use.asked)
        try:
            self.place.connect(asked=self.use.asked)
        except Busy:
            self.tenant.disconnect()
            raise

    def asks(self, bound: object) -> None:
        """A statement of its client begins. Raises SqlError (53400): its tenants have had their
        shares. What ends a transaction is always taken.
        """
        try:
            if self.use.limited and not isinstance(bound, _ENDS):
                self.use.begin()
                self.use.end()
                return
        except Busy as error:
            raise from_store(error) from error
        self.tenant.requests += 1
        self.place.requests += 1

    async def turn(self) -> None:
        """Before the next piece of what computes, reads or writes long: what was written counts,
        others have theirs, and what its tenants have used beyond their rates is waited for. Raises
        SqlError (53200).
        """
        self.written()
        if wait_ms := self.use.wait_ms():
            self.tenant.waited += 1
            await asyncio.sleep(wait_ms / 1_000)
        await self.services.tenants.turns.turn(self.tenant)

    # -- what is declared

    async def declared(self) -> Declared:
        """What the database declares now."""
        catalogs = self.services.catalogs
        found = catalogs.fresh(self.database) or await catalogs.declared(self.database)
        return self.along(found)

    def along(self, declared: Declared) -> Declared:
        """The same with the schemas that are searched for names without one: those of the path, and
        public after them, that may be used. It is asked for every statement, so it is remembered as
        long as neither that nor settings and roles change.
        """
        if self.temporary is not None:
            declared = self.temporary.over(declared)
        changes, members, known = self.settings.changes, self.permits.members, self._along
        if known is None or known[:2] != (declared, changes) or known[2] is not members:
            path = self.path if PUBLIC in self.path else (*self.path, PUBLIC)
            found = declared.along(self.permits.usable(declared, path))
            known = self._along = declared, changes, members, found
        return known[3]

    async def begin_temporary(self) -> Temporary:
        """From now on it has a schema of its own."""
        if self.temporary is None:
            process, owner = self.channel.process, self.permits.role
            made = Temporary(self.services, self.block, self.database, process, owner)
            await made.begin()
            self.temporary = made
        return self.temporary

    @property
    def plans(self) -> Plans:
        """Where statements are remembered: what depends on what only this session has, here."""
        return self.services.plans if self.temporary is None else self.temporary.plans

    @property
    def path(self) -> tuple[str, ...]:
        """The schemas that are searched for names without one, whether or not they are there."""
        said = search_path(self.settings.get("search_path"))
        if self.temporary is not None and TEMPORARY in said:
            said = tuple(self.temporary.schema if one == TEMPORARY else one for one in said)
        if USER_SCHEMA not in said:
            return said
        return tuple(self.permits.acting if one == USER_SCHEMA else one for one in said)

    @property
    def searched(self) -> tuple[str, ...]:
        """Those of the path that are there, as far as is known."""
        declared = self.services.catalogs.fresh(self.database)
        return self.path if declared is None else self.along(declared).path

    def bound(self, declared: Declared, *, adds: bool = False) -> None:
        """The transaction makes a change that is bound to this. `adds`: it adds rows."""
        looked = self.services.catalogs.looked(declared)
        self.block.fence.bound(looked, declared.version, adds=adds)

    async def rebound(self, before: Declared) -> None:
        """A definition of the transaction's own came behind its changes: they are bound to what was
        declared before that.
        """
        if not self.block.fence.moves(before.version):
            return
        now = await self.declared()
        if now.extends(before):
            self.block.fence.moved(self.services.catalogs.looked(now), now.version)

    @property
    def style(self) -> Style:
        """Of the text of values."""
        return Style(zones.shown(self.settings.get("TimeZone")), self.activity.transaction_now)

    # -- the transaction

    async def work(self) -> Transaction:
        """The store's transaction; begun now if there is none."""
        return self.block.transaction or await self.block.work(self.modes())

    def modes(self) -> Modes:
        """Of a transaction that begins now."""
        get, sealed = self.settings.get, self.settings.only_reads
        return Modes(
            get("default_transaction_isolation"),
            sealed or get("default_transaction_read_only") == "on",
            get("default_transaction_deferrable") == "on",
            sealed=sealed,
            terms=Terms(lock_wait_ms=self._lock_wait_ms, owner=self.owner),
        )

    @property
    def _lock_wait_ms(self) -> int | None:
        return min(self.settings.ms("lock_timeout"), DEADLINE_MS_MAX) or None

    def bounded(self) -> None:
        """A statement begins: it may hold what the settings say now."""
        if self.settings.changes != self._seen:
            self._seen = self.settings.changes
            self.budget.limit = int(self.settings.get(SETTING))
            self.block.wait(self._lock_wait_ms)
        self.held.end()
        self.budget.fresh()
        self._still_written()

    def written(self) -> None:
        """What the transaction has in memory counts. Raises SqlError (53200)."""
        t, beside = self.block.transaction, self.block.beside
        size = 0 if self.temporary is None else self.temporary.bytes
        if t is not None:
            size += t.memory_bytes
        elif beside is not None:
            size += beside.memory_bytes
        self.budget.write(size)

    def _still_written(self) -> None:
        """The same of what is there; what was too much failed then, and is to be taken back."""
        with suppress(SqlError):
            self.written()

    def rests(self) -> None:
        """A message has been worked on."""
        self.held.end()
        self._still_written()
        if self.services.trimming is not None:
            self.services.trimming.look()

    def check_writable(self, what: str) -> None:
        """Raises SqlError (25006)."""
        block = self.block
        if block.settled:
            refused = block.modes.read_only or bool(block.modes.at)
        else:
            only_reads = self.settings.only_reads
            refused = only_reads or self.settings.get("default_transaction_read_only") == "on"
        if refused:
            why = "in a read-only transaction"
        elif self.settings.get("kvorum.as_of"):
            why = "while kvorum.as_of reads the past"
        else:
            return
        raise SqlError(READ_ONLY_TRANSACTION, f"cannot execute {what} {why}")

    async def assign(self, name: str, value: str | None, *, local: bool = False) -> None:
        """SET; `value` None: its default. Raises SqlError."""
        if name.lower() == CAUSAL_TOKEN and value is not None:
            await self.hear(self.settings.checked(CAUSAL_TOKEN, value))
        self.variables.assign(name, value, local=local)

    async def hear(self, token: str) -> None:
        """What begins from now on is after all that another session had seen, whose token that is;
        "": of nobody. Raises SqlError (25001), KvorumError.
        """
        if token and self.block.transaction is not None:  # its snapshot does not move
            raise SqlError(ACTIVE_TRANSACTION, f"{CAUSAL_TOKEN} must be set before any query")
        await self.services.client.hear(int(token or 0))

    # -- the client, and others

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
            self.channel.add(Notice(severity, sqlstate, message, detail))

    def report_progress(self, message: str) -> None:
        """Tell the client at once, while it waits."""
        if self._wants("NOTICE"):
            self.channel.tell(Notice("NOTICE", "00000", message))

    def _wants(self, severity: str) -> bool:
        wanted = self.settings.get("client_min_messages").rstrip("12345")
        return severity == "INFO" or _LEVELS.index(severity.lower()) >= _LEVELS.index(wanted)

    def row(self) -> SessionRow:
        """What pg_stat_activity says of it."""
        activity, block = self.activity, self.block
        began = activity.statement_us
        busy = activity.working or self.interrupts.running
        in_transaction = block.explicit or block.transaction is not None
        return SessionRow(
            process=self.channel.process,
            user=self.user,
            mighty=self.permits.free or self.permits.members.superuser(self.user),
            database=self.database,
            application=self.settings.get("application_name"),
            state="active" if busy else _STATES[block.status],
            began=activity.began_us,
            transaction=activity.transaction_us if in_transaction else 0,
            statement=began,
            changed=began if busy else max(began, activity.rested_us),
            query=activity.query[:SQL_ACTIVITY_CHARS],
        )

    def reaches(self, one: SessionRow) -> bool:
        """Whether it may see what that session does, and end it."""
        own = self.channel.process == one.process
        return own or self.permits.reach(one.user, mighty=one.mighty)

    def lost(self) -> SqlError | None:
        """See Listed."""
        return self.permits.lost()

    def interrupt(self, why: SqlError) -> None:
        """What runs ends with this error."""
        self.interrupts.interrupt(why)
