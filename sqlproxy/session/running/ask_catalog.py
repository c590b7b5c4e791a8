"""Queries over the system's relations, asked for this session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions.f_catalog import CATALOG, TRANSACTION
from sqlproxy.front.functions.object_names import HELD_AS_OIDS, shower
from sqlproxy.pg.answers import Row, Values
from sqlproxy.pgcatalog.catalog import Prepared as SystemQuery
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.pgcatalog.contents import Session as Asker
from sqlproxy.pgcatalog.model import SIGNAL, Needs
from sqlproxy.session.preparing import newer
from sqlproxy.session.running.environment import environment
from sqlproxy.session.running.reports import sees
from sqlproxy.session.shared.prepared import Prepared
from sqlproxy.session.state.activity import moment
from sqlproxy.session.state.portals import Batches, given_up
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import SqlError

Shower = Callable[[Env, Any], str]


async def bring_catalog(session: State, asks: Collection[str]) -> None:
    """What functions of a statement ask (`Env.catalog`). Raises SqlError."""
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
    session.catalog = await services.system.snapshot(
        cluster, declared.contents, declared.relations(), asks, facts, visible
    )


async def _transaction(session: State, wanted: bool) -> int | None:
    """The number of the transaction: one that is asked for it has one."""
    block = session.block
    if not wanted:
        return None if block.transaction is None else block.transaction.start_ts
    if block.explicit:
        return (await session.work()).start_ts
    return await session.services.client.now()


async def ask_catalog(session: State, system: SystemQuery, values: Values) -> list[Row]:
    """The rows of a query over the system's relations. Raises SqlError."""
    services, activity = session.services, session.activity
    declared, cluster = await session.declared(), await services.cluster()
    asker = Asker(
        user=session.permits.acting,
        database=session.database,
        search_path=declared.path,
        settings=session.variables.shown(),
        now_us=activity.transaction_us or activity.now_us(),
        started_us=activity.began_us,
        pid=session.channel.process,
        query=activity.query,
        sees=sees(session.permits, declared),
        **await _facts(session, system.translated.needs, cluster),
    )
    contents = declared.contents
    try:
        answer = await services.system.execute(system, values, asker, cluster, contents)
    except SqlError as error:  # a regclass
        contents = (await newer(session, declared, error)).contents
        answer = await services.system.execute(system, values, asker, cluster, contents)
    for change in answer.changes:
        if change.name == SIGNAL:
            if change.value is not None:
                process = int(change.value)
                await services.roster.signal(session, process, terminate=change.local)
                await asyncio.sleep(0)  # if it was this session its statement ends here
            continue
        await session.assign(change.name, change.value, local=change.local)
    session.held.rows(answer.rows)
    return answer.rows


async def _facts(session: State, needs: Needs, cluster: Cluster) -> dict[str, Any]:
    """What a query of the catalog asks of sessions and transactions: most ask nothing."""
    found: dict[str, object] = {"txid": await _transaction(session, "txid" in needs.facts)}
    if "pids" in needs.facts or "pg_stat_activity" in " ".join(needs.feeds):
        found["activity"] = await session.services.roster.rows(session, cluster)
    found["own"] = {
        name: list(rows)
        for name, rows in (
            ("pg_prepared_statements", session.statements.rows()),
            ("pg_cursors", session.cursors.rows()),
        )
        if f"kv_{name}" in needs.feeds
    }
    return found


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
