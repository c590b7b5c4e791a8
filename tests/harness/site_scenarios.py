"""A link to another cluster that works, and is ended when it has taken something over."""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import replace
from typing import Any

import pytest

from kvorum.api.model import TableSpec
from kvorum.api.site_links import LINKS, NAMESPACE
from kvorum.sites.marks import CURSORS, Mark
from kvorum.sites.site import SiteLink, SiteServices
from sqlproxy.catalog import catalog
from tests.harness.world import TABLE, Place
from tests.kvorum.cluster.simulated import SimCluster

_others: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, SimCluster] = (
    weakref.WeakKeyDictionary()
)


class _There:
    """The other cluster, as a link gets it."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def cluster(self) -> dict[str, Any]:
        return {"cluster": "other"}

    async def close(self) -> None:
        """It is everybody's."""


def neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links reach the other cluster of their loop, whatever they call it."""
    init = SiteLink.__init__

    def with_neighbour(self: SiteLink, services: SiteServices) -> None:
        async def connect(site: str) -> Any:
            return _There(_others[asyncio.get_running_loop()].nodes[1].backend)

        init(self, replace(services, connect=connect))

    monkeypatch.setattr(SiteLink, "__init__", with_neighbour)


async def to_link(place: Place) -> Any:
    await place.table()
    loop = asyncio.get_running_loop()
    other: Any = SimCluster(loop, 7, 1)  # type: ignore[arg-type]
    await other.start()
    _others[loop] = other
    there = other.nodes[1].backend
    await there.create_namespace(NAMESPACE)
    for name in (TABLE, (NAMESPACE, CURSORS)):
        await there.create_table(*name, TableSpec())
    me = (await place.db.cluster())["cluster"]
    mark = Mark(0, await there.txn.now())
    await there.put(NAMESPACE, CURSORS, me.encode(), mark.encode(), None, 0)
    return {"site": "other", "tables": [{"table": list(TABLE)}]}


async def linked(place: Place, name: str, args: Any, nonce: str) -> int:
    """It takes something over, unless it was made to fail before; then it is ended."""
    there = _others[asyncio.get_running_loop()].nodes[1].backend
    id_ = await place.submit(name, args, nonce)
    key = f"of the other one, {nonce}"
    await there.put(*TABLE, key.encode(), b"v", None, 0)

    async def missing() -> bool:
        info = await place.db.procedure(id_)
        if info.finished:
            return False
        # At the beginning of a span: what is written until it is ended is the same in each run.
        spans = info.extra["attempt"] if info.step == "pull" else 0
        return spans < 2 or await place.db.table(*TABLE).get(key) is None

    await place.until(missing)
    if not (await place.patiently(lambda: place.db.procedure(id_))).finished:
        await place.patiently(lambda: place.db.abort_procedure(id_, "it is done"))
    await place.end_of(id_)
    await place.patiently(lambda: place.db.acknowledge(id_))
    await place.patiently(lambda: place.db.table(*TABLE).delete(key))
    return id_


async def left_nothing(place: Place, args: Any, happened: bool) -> Any:
    """A mark, a link, or a table that thinks that it is linked. (A lease that a crash left ends by
    itself.)
    """
    found: list[Any] = []
    if NAMESPACE in await place.db.namespaces():
        for name in (LINKS, CURSORS):
            found += [row.key async for row in place.db.table(NAMESPACE, name).rows()]
    table = await catalog.find(place.txn, *TABLE)
    assert table is not None
    return found + [table.link] * bool(table.link)
