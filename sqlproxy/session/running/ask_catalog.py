"""What a statement reads of the system's relations, asked for this session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions.f_catalog import CATALOG, TRANSACTION
from sqlproxy.front.functions.object_names import HELD_AS_OIDS, shower
from sqlproxy.pg.answers import Row
from sqlproxy.pgcatalog.contents import Session as Asker
from sqlproxy.session.running.environment import environment
from sqlproxy.session.running.reports import sees
from sqlproxy.session.running.shown_statistics import pg_stats
from sqlproxy.session.shared.prepared import Prepared
from sqlproxy.session.state.activity import moment
from sqlproxy.session.state.portals import Batches, given_up
from sqlproxy.session.state.state import State

PROCEDURES: Final = "kvorum.procedures"
"""The relation that has a past."""
Shower = Callable[[Env, Any], str]


async def bring_catalog(session: State, asks: frozenset[str], at: int = 0) -> None:
    """What a statement asks of the system's relations (`Env.catalog`). `at`: the moment for those
    that have a past. Raises SqlError, SnapshotTooOld.
    """
    if CATALOG not in asks:
        return
    services = session.services
    declared, cluster = await session.declared(), await services.cluster()
    facts: dict[str, object] = {
        "query": session.activity.query,
        "started": moment(session.activity.began_us),
        TRANSACTION: await _transaction(session, TRANSACTION in asks),
    }
    visible = sees(session.permits, declared)
    statistics = services.statistics
    sizes = {} if statistics is None else await statistics.sizes()
    found = await services.system.snapshot(
        cluster, declared.contents, declared.relations(), asks, facts, visible, sizes
    )
    for relation in sorted(one for one in asks if "." in one):
        if found.rows(relation) is None:
            found.reported[relation] = await _reported(session, relation, at)
    session.catalog, session.brought = found, asks


async def keep_catalog(session: State, asks: frozenset[str]) -> None:
    """The same, unless it is what was asked last: others may have been bound before it runs."""
    if session.brought is not asks:
        await bring_catalog(session, asks)


async def _transaction(session: State, wanted: bool) -> int | None:
    """The number of the transaction: one that is asked for it has one."""
    block = session.block
    if not wanted:
        return None if block.transaction is None else block.transaction.start_ts
    if block.explicit:
        return (await session.work()).start_ts
    return await session.services.client.now()


async def _reported(session: State, relation: str, at: int) -> Sequence[Row]:
    """The rows of a relation of the system that is no table. Raises SqlError."""
    services, declared = session.services, await session.declared()
    name = relation.rpartition(".")[2]
    own: dict[str, Sequence[Mapping[str, object]]] = {}
    if name == "pg_stat_activity":
        own[name] = await services.roster.rows(session, await services.cluster())
    elif name == "pg_prepared_statements":
        own[name] = list(session.statements.rows())
    elif name == "pg_stats":
        own[name] = await pg_stats(session)
    elif name == "pg_cursors":
        own[name] = list(session.cursors.rows())
    asker = Asker(
        session.activity.transaction_now(),
        session.variables.shown(),
        own,
        sees(session.permits, declared),
    )
    return await services.system.reported(relation, declared.contents, asker, at)


def with_names(session: State, prepared: Prepared, rows: Batches) -> Batches:
    """Rows as a client gets them: what is held as the OID of an object is its name."""
    if not prepared.asks:
        return rows
    fields = enumerate(prepared.fields or ())
    shown = [(at, shower(field.oid)) for at, field in fields if field.oid in HELD_AS_OIDS]
    return _named(session, shown, rows) if shown else rows


async def _named(session: State, shown: Sequence[tuple[int, Shower]], rows: Batches) -> Batches:
    env, _ = environment(session, ())
    try:
        async for batch in rows:
            made = [list(row) for row in batch]
            for row in made:
                for at, show in shown:
                    if (value := row[at]) is not None:
                        row[at] = show(env, value)
            yield [tuple(row) for row in made]
    finally:
        await given_up(rows)
