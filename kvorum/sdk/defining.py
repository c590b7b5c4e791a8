"""Namespaces and tables: made, changed, switched off and dropped by procedures (sqlproxy/ddl), each
wholly or not at all; these calls wait for their end.
"""

from __future__ import annotations

from collections.abc import Sequence

from kv.base.errors import AlreadyExists, NotFound
from kvorum.api.backend import Backend
from kvorum.api.model import Bytes, Column, NamespaceInfo, TableInfo, TableSpec, as_bytes


class AsyncDefining:
    """A part of `AsyncDatabase`."""

    _backend: Backend

    async def namespaces(self) -> list[str]:
        return [one.name for one in await self._backend.namespaces()]

    async def namespace(self, name: str) -> NamespaceInfo:
        """What a namespace is. Raises NotFound (NAMESPACE_NOT_FOUND)."""
        for one in await self._backend.namespaces():
            if one.name == name:
                return one
        raise NotFound(
            f"there is no namespace {name!r:.80}",
            code="NAMESPACE_NOT_FOUND",
            details={"namespace": name},
        )

    async def create_namespace(
        self,
        name: str,
        *,
        replicas: int | None = None,
        tags: Sequence[str] = (),
        shard: str = "",
        survive: str = "",
        leaders: str = "",
        exists_ok: bool = False,
    ) -> None:
        """Make a namespace. Its tables have `replicas` and lie in the storage shard `shard`, if
        they do not say otherwise, and need nodes with its `tags` besides their own; so with what
        they `survive` and their `leaders` (see `create_table`). Raises
        AlreadyExists; with `exists_ok` one that is there stays as it is.
        """
        try:
            change = _placed(
                replicas, tags or None, shard or None, survive or None, leaders or None
            )
            await self._backend.create_namespace(name, change)
        except AlreadyExists:
            if not exists_ok:
                raise

    async def modify_namespace(
        self,
        name: str,
        *,
        replicas: int | None = None,
        tags: Sequence[str] | None = None,
        shard: str | None = None,
        survive: str | None = None,
        leaders: str | None = None,
    ) -> NamespaceInfo:
        """Change how many replicas (0: everywhere) its tables have that do not say otherwise, which
        tags nodes must carry to have them, the storage shard ("": the default one), what they
        survive ("": nothing) and the labels of their leaders ("": any); what is
        left out stays. In one transaction with what it means for every table, or, if it is refused,
        not at all.
        """
        change = _placed(replicas, tags, shard, survive, leaders)
        return await self._backend.alter_namespace(name, "modify", change)

    async def disable_namespace(self, name: str) -> NamespaceInfo:
        """Disable all its tables; none is made in it until it is enabled."""
        return await self._backend.alter_namespace(name, "disable")

    async def enable_namespace(self, name: str) -> NamespaceInfo:
        """It may be used again, with all its tables."""
        return await self._backend.alter_namespace(name, "enable")

    async def drop_namespace(self, name: str) -> None:
        """Remove an empty namespace. Raises Refused while it has tables."""
        await self._backend.drop_namespace(name)

    async def tables(self, ns: str) -> list[TableInfo]:
        return await self._backend.tables(ns)

    async def create_table(
        self,
        ns: str,
        name: str,
        *,
        replicas: int | None = None,
        tags: Sequence[str] = (),
        split_keys: Sequence[Bytes] = (),
        columns: Sequence[Column] = (),
        primary_key: Sequence[str] = (),
        partition_bytes: int | None = None,
        shard: str = "",
        survive: str = "",
        leaders: str = "",
        exists_ok: bool = False,
    ) -> TableInfo:
        """Make a table; `split_keys` cut it into partitions from the start, and one that grows
        above `partition_bytes` is split (left out: as the cluster's setting says). `shard`: NAME
        or NAME:universal, the storage shard whose files it has at every node. `survive`: server,
        rack or datacenter: the loss of any one stops nothing; replicas are votes then, an odd
        number from 3 on. `leaders`: labels of the nodes that should lead, "dc=eu". Raises
        AlreadyExists; with `exists_ok` one that is there stays as it is, whatever its columns are.
        """
        spec = TableSpec(
            replicas=replicas,
            tags=tuple(tags),
            split_keys=tuple(as_bytes(k, "split key") for k in split_keys),
            columns=tuple(columns),
            primary_key=tuple(primary_key),
            partition_bytes=partition_bytes,
            shard=shard,
            survive=survive,
            leaders=leaders,
        )
        try:
            return await self._backend.create_table(ns, name, spec)
        except AlreadyExists:
            if exists_ok:
                for one in await self._backend.tables(ns):
                    if one.name == name:
                        return one
            raise

    async def disable_table(self, ns: str, name: str) -> TableInfo:
        """Nobody reads or writes it any more (Refused, TABLE_DISABLED), once this returns; its rows
        are kept. Takes some seconds. A table that is disabled already is no error.
        """
        return await self._backend.alter_table(ns, name, "disable")

    async def enable_table(self, ns: str, name: str) -> TableInfo:
        """It may be used again."""
        return await self._backend.alter_table(ns, name, "enable")

    async def modify_table(
        self,
        ns: str,
        name: str,
        *,
        replicas: int | None = None,
        tags: Sequence[str] | None = None,
        add_columns: Sequence[Column] = (),
        partition_bytes: int | None = None,
        shard: str | None = None,
        survive: str | None = None,
        leaders: str | None = None,
    ) -> TableInfo:
        """Change how many replicas it has (0: as its namespace says, else everywhere), which tags
        nodes must carry to have them, the size above which its partitions are split (0: the
        cluster's), the storage shard ("": its namespace's; every node moves its rows there beside
        what it serves), what it survives and the labels of its leaders ("": its namespace's), and
        add columns; what is left out stays. All of it or, if it is refused,
        nothing.
        """
        change = _placed(replicas, tags, shard, survive, leaders)
        if partition_bytes is not None:
            change["partition_bytes"] = partition_bytes
        if add_columns:
            change["add_columns"] = [column.to_plain() for column in add_columns]
        return await self._backend.alter_table(ns, name, "modify", change)

    async def drop_table(self, ns: str, name: str) -> None:
        """Remove a table and all its records."""
        await self._backend.drop_table(ns, name)


def _placed(
    replicas: int | None, tags: Sequence[str] | None, *texts: str | None
) -> dict[str, object]:
    """What was given of them; `texts`: shard, survive, leaders."""
    change: dict[str, object] = {}
    if replicas is not None:
        change["replicas"] = replicas or None
    if tags is not None:
        change["tags"] = list(tags)
    named = zip(("shard", "survive", "leaders"), texts, strict=True)
    return change | {name: text for name, text in named if text is not None}
