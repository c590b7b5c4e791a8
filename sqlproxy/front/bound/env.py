"""What an expression may ask beside its row: parameters, the time, the session, sequences."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from uuid import UUID

from sqlproxy.front.bound.exprs import Once
from sqlproxy.pg.style import DEFAULT, Style
from sqlproxy.rows.naming import PUBLIC
from sqlproxy.values.errors import UNSUPPORTED, SqlError, unsupported

PATH: Final = "search path"  # what `Env.session` has of it: no setting has a space
OWN_SCHEMA: Final = "temporary schema"  # of what only the session has; "": it has none
NO_SETTINGS: Final = frozenset(("user", "session_user", "database", "process"))
"""What `Env.session` knows that is no setting."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _no_sequences(*args: object) -> int:
    raise unsupported("a sequence here")


def _not_now(once: Once, given: Sequence[object]) -> object:
    raise unsupported("a subquery here")


def _no_acts(verb: str, given: Sequence[object]) -> Any:
    raise unsupported(f"{verb}() here")


def _no_chance() -> Any:
    raise unsupported("chance here")


def _no_locks(verb: str, numbers: Sequence[int], exclusive: bool, transaction: bool) -> bool:
    raise unsupported("an advisory lock here", hint="Take it by a SELECT without FROM.")


def _not_said(channel: str, payload: str) -> None:
    raise unsupported("pg_notify() here")


class Catalog(Protocol):
    """What functions ask of the system's relations, as of one moment
    (sqlproxy.pgcatalog.snapshot)."""

    @property
    def moment(self) -> object:
        """The same object as long as nothing of it changed but facts."""
        ...

    def get(self, relation: str, column: str, **where: object) -> Any:
        """Of the first row where these columns have these values; None: there is none."""
        ...

    def find(self, relation: str, column: str, **where: object) -> list[Any]:
        """The same of all such rows."""
        ...

    def relation(self, name: str) -> int:
        """The OID of what a text names. Raises SqlError (42P01, 3F000)."""
        ...

    def rows(self, relation: str) -> Sequence[Sequence[object]] | None:
        """All rows of `schema.name`; None: they are not known."""
        ...

    def fact(self, name: str) -> Any:
        """What is no row: `front.functions.f_catalog.ASKS`."""
        ...


class _NoCatalog:
    """Of expressions that belong to no statement: defaults, checks."""

    moment: Final[object] = None

    def get(self, relation: str, column: str, **where: object) -> Any:
        raise unsupported("a function of the system's relations here")

    find = get

    def relation(self, name: str) -> int:
        raise unsupported("a function of the system's relations here")

    fact = relation

    def rows(self, relation: str) -> Sequence[Sequence[object]] | None:
        return None


NO_CATALOG: Final = _NoCatalog()


class Wanting(SqlError):
    """What is computed needs a number that is not at hand, or a sequence set to a `value`, or what
    is computed `once` for what is `given`, before it goes on. Whoever can wait does that and
    computes it again; else it is an error as it stands.
    """

    def __init__(
        self,
        name: str,
        value: int | None = None,
        called: bool = True,
        once: Once | None = None,
        given: Sequence[object] = (),
        what: str = "",
    ) -> None:
        what = what or (once.what if once else "nextval" if value is None else "setval")
        super().__init__(
            UNSUPPORTED,
            f"{what}() in WHERE, in a join condition, in a recursive or correlated query, or in an "
            "argument of a set-returning function is not supported",
            hint="Call it in the list of a SELECT, in VALUES, SET, RETURNING or a DEFAULT.",
        )
        self.name, self.value, self.called = name, value, called
        self.once, self.given = once, given


@dataclass(slots=True)
class Env:
    """`now`: of the transaction, aware; `clock`: now, each time it is asked. `nextval(name,
    qualified text)` and its like never wait: whoever executes has reserved the values
    (`Compiled.taken`), or is asked for by Wanting; `advisory(verb, numbers, exclusive, of the
    transaction)` neither. `act(verb, given)`: what exprs.ACTING do, as Wanting says.
    `session` holds settings and NO_SETTINGS.
    """

    params: Sequence[object] = ()
    now: datetime = _EPOCH
    statement_now: datetime = _EPOCH
    session: Mapping[str, str] = field(default_factory=dict)
    style: Style = DEFAULT
    clock: Callable[[], datetime] = lambda: _EPOCH
    random: Callable[[], float] = _no_chance
    uuid: Callable[[], UUID] = _no_chance
    nextval: Callable[[str], int] = _no_sequences
    currval: Callable[[int, str], int] = _no_sequences
    lastval: Callable[[Container[int]], int] = _no_sequences
    setval: Callable[[str, int, bool], int] = _no_sequences
    once: Callable[[Once, Sequence[object]], object] = _not_now
    advisory: Callable[[str, Sequence[int], bool, bool], bool] = _no_locks
    notify: Callable[[str, str], None] = _not_said
    listening: Callable[[], list[str]] = list
    act: Callable[[str, Sequence[object]], object] = _no_acts
    catalog: Catalog = NO_CATALOG
    slept: float = 0.0  # seconds that pg_sleep asked for; whoever executes waits
    memo: dict[object, object] | None = (
        None  # what closures found once for all rows, each under its own key
    )


def path_of(env: Env) -> list[str]:
    """The schemas that are searched for names without one."""
    return [one for one in env.session.get(PATH, PUBLIC).split(",") if one]


def searched_before(env: Env) -> list[str]:
    """Those that are searched for relations before the path, unless it names them."""
    own = env.session.get(OWN_SCHEMA, "")
    return [own, "pg_catalog"] if own and own not in path_of(env) else ["pg_catalog"]
