"""Queries over the system's relations, asked for this session."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlproxy.pg.answers import Row, Values
from sqlproxy.pgcatalog.catalog import Prepared as SystemQuery
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.pgcatalog.contents import Session as Asker
from sqlproxy.pgcatalog.model import SIGNAL, Needs
from sqlproxy.session.preparing import newer
from sqlproxy.session.running.reports import sees
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import SqlError


async def ask_catalog(session: State, system: SystemQuery, values: Values) -> list[Row]:
    """The rows of a query over the system's relations. Raises SqlError."""
    services, activity = session.services, session.activity
    declared, cluster = await session.declared(), await services.cluster()
    asker = Asker(
        user=session.permits.acting,
        database=session.database,
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
    found: dict[str, object] = {}
    block = session.block
    if "txid" in needs.facts:  # a transaction that is asked for its number has one
        if block.explicit:
            found["txid"] = (await session.work()).start_ts
        else:
            found["txid"] = await session.services.client.now()
    elif block.transaction is not None:
        found["txid"] = block.transaction.start_ts
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
