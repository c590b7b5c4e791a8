"""The seam between the wire and the session: what a statement is once it is parsed, and how its
rows are fetched. The wire knows nothing of tables, the session nothing of bytes.

    parse(text, oids) ─▶ Statement(parameters, fields) ─ bind(values) ─▶ Portal ─ fetch(n) … tag()

A simple query is split by the session (`split`), and each part goes the same way with no
parameters. `sync` ends what was begun implicitly (a simple query's message, or the Sync of the
extended protocol): it commits, unless BEGIN opened a transaction. After an error the wire calls
`failed`, once, and then `sync`. The names of statements and portals are the session's, because
DEALLOCATE, CLOSE, DECLARE and the end of a transaction change them, too: the wire puts in and looks
up what Parse and Bind name ("" = unnamed); the session closes and removes portals when their
transaction ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from kv.base.accounts import Use
from kv.base.rights import Identity
from sqlproxy.catalog.notifications import Notification
from sqlproxy.pg.answers import Answered, CopyFormat, Field, Part, Row, Values
from sqlproxy.values.errors import SqlError
from sqlproxy.values.memory import Budget

_NOTICE_BYTES: Final = 100  # of one, besides its words
Status = Literal["I", "T", "E"]  # idle, in a transaction, in a failed transaction


@dataclass(frozen=True, slots=True)
class Notice:
    severity: str  # NOTICE, WARNING, INFO, LOG, DEBUG
    sqlstate: str
    message: str
    detail: str = ""
    hint: str = ""


@dataclass(slots=True)
class Channel:
    """What a session tells its client out of turn; the wire sends it before the next reply, or at
    once after `tell`. Parameters that the wire itself obeys: TimeZone (of text formats).
    Notifications go out when no transaction is under way; `heard` after some have come. And by
    which number the client knows the session, and how others end what runs in it, or it (the
    wire's, too).
    """

    notices: list[Notice] = field(default_factory=list)
    parameters: dict[str, str] = field(default_factory=dict)  # changed settings to report
    wake: Callable[[], None] | None = None  # the wire's
    notifications: list[Notification] = field(default_factory=list)
    heard: Callable[[], None] | None = None  # the wire's
    end: Callable[[SqlError], None] | None = None  # the wire's: tell the client, and hang up
    process: int = 0
    cancel: Callable[[], None] | None = None
    terminate: Callable[[], None] | None = None
    room: int | None = None  # bytes of notices that are kept; None: they are sent on
    left_out: int = 0  # notices for which there was none

    def add(self, notice: Notice) -> None:
        """A notice; it is kept until the wire sends it, if there is room."""
        if self.room is not None:
            size = len(notice.message) + len(notice.detail) + len(notice.hint) + _NOTICE_BYTES
            if size > self.room:
                self.left_out += 1
                return
            self.room -= size
        self.notices.append(notice)

    def tell(self, notice: Notice) -> None:
        """A notice that should not wait for the statement's end, e.g. of progress."""
        self.add(notice)
        if self.wake is not None:
            self.wake()


Done = Callable[[Answered | SqlError | None], None]
"""None: nothing was done; it has to go the usual way."""


class Statement(Protocol):
    """One parsed statement; kept for as long as the client keeps its name. Sessions may share it.
    `wire`: what the wire compiled for it; None at first, and the session leaves it alone. `short`:
    None if it can only go the usual way; else whether `Session.start` takes it is seen there.
    """

    wire: Any
    short: Any

    @property
    def parameters(self) -> Sequence[int]:
        """The OID of each parameter, $1 first."""
        ...

    @property
    def fields(self) -> Sequence[Field] | None:
        """None: it returns no rows."""
        ...


class Portal(Protocol):
    """A statement with its values, being executed. `copy_in`, `copy_out`: a COPY under way, whose
    bytes are the wire's: rows out come from `fetch`, rows in go to `take`. `wire`: as Statement's.
    `ends`: it ends a transaction, so that it runs in one that has failed, too.
    """

    wire: Any
    ends: bool

    @property
    def fields(self) -> Sequence[Field] | None: ...

    @property
    def copy_in(self) -> CopyFormat | None: ...

    @property
    def copy_out(self) -> CopyFormat | None: ...

    async def fetch(self, rows_max: int) -> Sequence[Row]:
        """The next rows, at most `rows_max`; none when it has ended. The first call executes."""
        ...

    async def take(self, rows: Sequence[Row]) -> None:
        """Rows of a COPY FROM STDIN, in the order of `fields`, in user form."""
        ...

    async def take_parts(self, parts: Sequence[Part]) -> None:
        """The same, in parts, of which some are column by column."""
        ...

    async def finish(self) -> None:
        """All rows of a COPY FROM STDIN have been given."""
        ...

    def tag(self) -> str:
        """The command tag, e.g. `SELECT 3`, of the rows since it was last asked for; known when the
        portal has ended. "" for an empty query.
        """
        ...

    async def close(self) -> None:
        """Give up what it holds; fine twice."""
        ...


class Session(Protocol):
    """One client's connection. Calls come one at a time, except `cancel`. `lone`: a sync follows
    the statement under way, so that it is a transaction by itself if none is open; the wire says
    so of what it executes, the session of what it splits.
    """

    lone: bool

    @property
    def status(self) -> Status: ...

    @property
    def channel(self) -> Channel: ...

    @property
    def use(self) -> Use:
        """Whom it counts for; the wire adds what it reads and writes."""
        ...

    @property
    def budget(self) -> Budget:
        """What it holds; the wire adds what it holds for it."""
        ...

    @property
    def statements(self) -> MutableMapping[str, Statement]:
        """By name; "" is the unnamed one."""
        ...

    @property
    def portals(self) -> MutableMapping[str, Portal]:
        """By name, those of DECLARE included; "" is the unnamed one."""
        ...

    @property
    def idle_ms_max(self) -> int:
        """How long the client may stay silent in the present state (idle_session_timeout,
        idle_in_transaction_session_timeout); 0: as long as it likes.
        """
        ...

    async def split(self, text: str) -> list[str]:
        """The statements of a simple query, each as it stands there (the wire finds its offset for
        the positions of errors); none for an empty one. Raises SqlError (syntax).
        """
        ...

    async def parse(self, text: str, oids: Sequence[int]) -> Statement:
        """`oids`: what the client declared, 0 = find it out. Raises SqlError."""
        ...

    def known(self, text: str, oids: Sequence[int]) -> Statement | None:
        """What `parse` would answer, if it is remembered."""
        ...

    async def look_again(self) -> None:
        """Somebody else may have declared something just now."""
        ...

    async def bind(self, statement: Statement, values: Values) -> Portal:
        """`values` in user form. Raises SqlError."""
        ...

    def start(self, statement: Statement, values: Values, done: Done) -> bool:
        """Begin a statement that is a transaction by itself, without a task: between two
        transactions, for a client that waits for nothing else. False: it has to go the usual way.
        True: `done` is called, once and later; until then nothing else is called.
        """
        ...

    async def guard(self, work: Awaitable[object]) -> Any:
        """Await something of a statement outside of its portal; `cancel` ends it, too. Raises
        SqlError.
        """
        ...

    async def failed(self, error: BaseException) -> None:
        """The message under way ended so: an explicit transaction is failed, an implicit one is
        gone.
        """
        ...

    async def word(self, error: BaseException) -> None:
        """An error of `sync` in the words of its user: without what he may not see, and with the
        schemas that he has to be told. `failed` does it by itself.
        """
        ...

    async def sync(self) -> None:
        """End what was implicit. Raises SqlError: the commit failed."""
        ...

    def cancel(self) -> None:
        """Whatever runs ends with 57014. From another task."""
        ...

    async def close(self) -> None:
        """The client is gone: abort what is open."""
        ...


class Sessions(Protocol):
    """Makes sessions; what the server is given. All of it raises KvorumError where the store does
    not answer.
    """

    async def open(
        self, identity: Identity, address: str, database: str, settings: Mapping[str, str]
    ) -> Session:
        """Raises SqlError: no such database, too many connections, stopping."""
        ...

    async def verifier(self, user: str) -> str | None:
        """The SCRAM-SHA-256 verifier of a user as PostgreSQL stores it; None: no password is right,
        because there is none, or no such user.
        """
        ...

    async def trusted(self, loopback: bool) -> bool:
        """Whether a client from there needs no password: while nobody can log in, on loopback."""
        ...
