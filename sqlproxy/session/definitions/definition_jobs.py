"""A definition is a procedure of the master, waited for.

Each is a job of its own, beside the client's transaction. After it the transaction goes on with a
new snapshot, which sees what was declared; once it has written it keeps its snapshot, so that only
what makes something new and empty is allowed then (`_FRESH`), the rest is refused (0A000). It is
not undone by a ROLLBACK, nor are the changes before it where kvorum.autocommit_before_ddl committed
them; clients that put DDL into BEGIN … COMMIT (migrations) get what they expect
as long as nothing fails between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlproxy.front.bound import statements as s
from sqlproxy.rows.naming import (
    InSchema,
    bare,
    is_temporary,
    namespace_of,
    reference,
    schema_in,
)
from sqlproxy.rows.schema import Table
from sqlproxy.session.commands.run_commands import commit
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import UNSUPPORTED, SqlError

_FRESH: Final = frozenset({"CreateTable", "CreateSequence", "CreateView", "CreateEnum"})
"""What they make is empty in every snapshot: a transaction may have written before."""

_OWNED: Final = _FRESH | {"CreateNamespace", "CreateFunction"}  # what they make is who asked's


async def run(session: State, procedure: str, args: Mapping[str, object]) -> Any:
    """A definition's procedure, to its end. Raises SqlError, KvorumError."""
    namespace = args.get("namespace") or namespace_of(session.database, schema_in(named_in(args)))
    own = session.temporary
    if own is not None and namespace == own.namespace:
        session.check_writable(procedure)
        return await own.run(procedure, _whole(session, procedure, namespace, args))
    fresh = procedure in _FRESH
    if session.block.wrote and not fresh:
        await _commit_changes(session)
    session.check_writable(procedure)
    before = await session.declared() if session.block.wrote else None
    try:
        whole = _whole(session, procedure, namespace, args)
        found = await session.services.run(procedure, whole, session.report_progress)
    except asyncio.CancelledError:
        session.interrupts.explain(
            f"{procedure} is a job of its own: if it was begun it goes on, SHOW JOBS tells."
        )
        raise
    finally:
        session.services.catalogs.forget(session.database)
        if not session.block.wrote:
            await session.block.renew(keep=fresh)
    if before is not None:
        await session.rebound(before)
    return found


def _whole(
    session: State, procedure: str, namespace: object, args: Mapping[str, object]
) -> dict[str, object]:
    """The arguments as procedures get them."""
    whole = {name: plain(value) for name, value in args.items()}
    whole["namespace"] = namespace
    if procedure in _OWNED and (owner := session.permits.role):
        whole.setdefault("owner", owner)
    return whole


def named_in(args: Mapping[str, object]) -> str:
    """What a procedure is about: of several names, which are in one schema, the first."""
    names: Any = args.get("names") or args.get("name") or ""
    found: str = names if isinstance(names, str) else names[0]
    return found


def by_schema(names: Iterable[str]) -> list[list[str]]:
    """The names, those of one schema together."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(schema_in(name), []).append(name)
    return list(found.values())


def together(names: Iterable[str]) -> list[list[Any]]:
    """The names for one definition, as references behind the first; those that only this session
    has by themselves.
    """
    own, others = list[str](), list[str]()
    for name in names:
        (own if is_temporary(schema_in(name)) else others).append(name)
    return [[part[0], *(reference(n, part[0]) for n in part[1:])] for part in (others, own) if part]


def plain(value: object) -> object:
    """A name as procedures get it: their namespace says where it is."""
    match value:
        case InSchema():
            return bare(value)
        case Mapping():
            return {key: plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case _:
            return value


async def _commit_changes(session: State) -> None:
    """If the client asked for that (kvorum.autocommit_before_ddl); the block goes on. Raises
    SqlError: of the commit, or 0A000.
    """
    asked = session.settings.get("kvorum.autocommit_before_ddl") == "on"
    if not asked or not session.block.explicit or session.block.has_savepoints:
        raise SqlError(
            UNSUPPORTED,
            "definitions after changes in one transaction are not supported",
            hint="Commit the changes first: a definition is a job of its own."
            if asked
            else "Commit the changes first: a definition is a job of its own; or SET "
            "kvorum.autocommit_before_ddl = on, which commits them.",
        )
    await commit(session, s.Commit(chain=True))


async def make(
    session: State, procedure: str, name: str | None, args: Mapping[str, object], *, lenient: bool
) -> bool:
    """Run what makes a relation; False: it is there already, which IF NOT EXISTS (`lenient`) lets
    pass. Raises SqlError, KvorumError.
    """
    found = await run(session, procedure, {**args, "if_not_exists": lenient})
    if found.get("exists"):
        session.notice(f'relation "{name}" already exists, skipping', sqlstate="42P07")
    return not found.get("exists")


def known_options(session: State, options: Mapping[str, object]) -> dict[str, object]:
    """The storage parameters that mean something; one that does not is a notice."""
    if "fillfactor" in options:
        session.notice("fillfactor has no effect: rows do not lie in a heap", "WARNING")
    return {name: value for name, value in options.items() if name != "fillfactor"}


def tell_cascaded(session: State, cascaded: Sequence[str]) -> None:
    """What went along."""
    lines = [f"drop cascades to {one}" for one in cascaded]
    if len(lines) == 1:
        session.notice(lines[0])
    elif lines:
        what = f"drop cascades to {len(lines)} other objects"
        session.notice(what, detail="\n".join(lines))


async def table_now(session: State, name: str) -> Table:
    """As it is now: an action before may have changed it."""
    found: Table | None = (await session.declared()).table(name)
    if found is None:
        raise SqlError("42P01", f'relation "{name}" does not exist')
    return found
