"""Key prefixes by table name and back, and errors in the words of users.

A table's storage keys begin with its id. An error for a user names his table and his key instead,
and 64-bit numbers are decimal strings, as everywhere.

Rows of a table with indexes, constraints or computed columns are written by SQL alone, which keeps
the rest in step: who asks for its prefix in order to write is refused (TABLE_RULED). What was
looked up may be remembered for CATALOG_TTL_S. Who asks for the prefix of a table with columns that
has no rules yet leaves a claim first (`sqlproxy.catalog.catalog.claim`): an index that is made
later waits for such writers, and only for such tables.
"""

from __future__ import annotations

from typing import Final

from kv.base.errors import KvorumError, Refused
from kv.base.ids import TableId
from kv.base.keys import show_user_key, table_prefix
from sqlproxy.catalog.catalog import CatalogCache
from sqlproxy.rows.schema import Table, stands_by

PREFIX_BYTES: Final = 4
_NAMES_REMEMBERED: Final = 10_000
_TIMESTAMP_FIELDS: Final = ("version", "txn", "conflict_ts", "start_ts", "at", "safepoint", "now")
"""Details of errors that are 64-bit numbers: decimal strings for users, as everywhere."""


class Names:
    """Key prefixes by table name and back, as far as this client has met them."""

    def __init__(self, tables: CatalogCache, *, of_link: bool = False) -> None:
        """`of_link`: it may write to stand-bys of another cluster."""
        self._of_link = of_link
        self._tables = tables
        self._of: dict[bytes, tuple[str, str]] = {}
        self._prefixes: dict[int, bytes] = {}  # by table id; the same tables
        self._free: dict[int, int] = {}  # table id → version of its descriptor that has no rules

    def known(self, ns: str, table: str) -> bytes | None:
        """What `prefix` would answer at once; the hot path has no task switch to spare."""
        found = self._tables.known(ns, table)
        return None if found is None else self._prefixes.get(found.id)

    def known_writable(self, ns: str, table: str) -> bytes | None:
        """What `writable` would answer at once."""
        found = self._tables.known(ns, table)
        if found is None or self._free.get(found.id) != found.version:
            return None
        return self._prefixes.get(found.id)

    async def writable(self, ns: str, table: str) -> bytes:
        """`prefix` of a table that is to be written. Raises NotFound, Refused (TABLE_RULED)."""
        found = await self._tables.lookup(ns, table)
        if self._free.get(found.id) != found.version:
            found = await writable_now(self._tables, found)
            closed = found.kept if self._of_link else found.ruled
            if not found.plain and not closed:
                found = await self._tables.claim(ns, table)
            if closed:
                raise ruled(found)
            self._free[found.id] = found.version
        return self._prefix(found.id, ns, table)

    async def prefix(self, ns: str, table: str) -> bytes:
        """The first bytes of a table's storage keys. Raises NotFound."""
        return self._prefix((await self._tables.lookup(ns, table)).id, ns, table)

    def _prefix(self, id: int, ns: str, table: str) -> bytes:
        prefix = self._prefixes.get(id)
        if prefix is None:
            if len(self._of) >= _NAMES_REMEMBERED:
                self._of.clear()
                self._prefixes.clear()
                self._free.clear()
            prefix = self._prefixes[id] = table_prefix(TableId(id))
            self._of[prefix] = (ns, table)
        return prefix

    async def changed(self, ns: str, table: str, prefix: bytes) -> bool:
        """Whether the table has another id than was thought. Raises NotFound when it is gone."""
        self._tables.invalidate(ns, table)
        return await self.prefix(ns, table) != prefix

    def _step_in_user_terms(self, error: KvorumError, step: dict[str, object]) -> None:
        """One of the waits of a deadlock, if its table is known here."""
        key = step.get("key")
        name = self._of.get(key[:PREFIX_BYTES]) if isinstance(key, bytes) else None
        if isinstance(key, bytes) and name is not None:
            wait = KvorumError(error.message, details={"key": key})
            show_user_key(wait, key[:PREFIX_BYTES], *name)
            error.message = wait.message
            error.args = (error.message,)
            step.update(wait.details)

    def in_user_terms(self, error: KvorumError, *, op: int | None = None) -> KvorumError:
        """An error as its user should see it: with the user's key instead of the storage key.
        `op`: the place in the user's request of an op that was sent alone.
        """
        if op is not None and "op" in error.details:
            error.details["op"] = op
            error.message = f"operation {op}: {error.message}"
            error.args = (error.message,)
        key = error.details.get("key")
        if isinstance(key, bytes):
            prefix = key[:PREFIX_BYTES]
            if prefix in self._of:
                show_user_key(error, prefix, *self._of[prefix])
        for step in error.details.get("cycle", ()):
            self._step_in_user_terms(error, step)
        for field in _TIMESTAMP_FIELDS:
            if type(error.details.get(field)) is int:
                error.details[field] = str(error.details[field])
        return error


class TableIds:
    """procedures.engine.context.Tables over the catalog: what steps may use."""

    def __init__(self, tables: CatalogCache) -> None:
        self._tables = tables
        self._claimed: dict[int, int] = {}  # table id → version of its descriptor

    async def resolve(self, namespace: str, table: str) -> TableId:
        """Raises NotFound."""
        return (await self._tables.lookup(namespace, table)).id

    async def writable(self, namespace: str, table: str) -> TableId:
        """Raises NotFound, Refused (TABLE_RULED)."""
        found = await self._tables.lookup(namespace, table)
        if found.link:
            found = await writable_now(self._tables, found)
        if not (found.plain or found.ruled) and self._claimed.get(found.id) != found.version:
            found = await self._tables.claim(namespace, table)
            if len(self._claimed) >= _NAMES_REMEMBERED:
                self._claimed.clear()
            self._claimed[found.id] = found.version
        if found.ruled:
            raise ruled(found)
        return found.id


async def writable_now(tables: CatalogCache, found: Table) -> Table:
    """The table, as somebody who writes to it has to know it: that a stand-by was promoted is seen
    at once. Raises NotFound.
    """
    if not found.standby:
        return found
    tables.invalidate(found.namespace, found.name)
    return await tables.lookup(found.namespace, found.name)


def ruled(table: Table) -> Refused:
    """Why nobody but SQL, or a link, writes to it."""
    if table.standby:
        return stands_by(table)
    rules = {
        "indexes": table.indexes,
        "check constraints": table.checks,
        "foreign keys": table.foreign_keys or table.referenced_by,
        "generated columns": any(c.generated is not None for c in table.columns),
        "a hidden row number": any(c.hidden_number for c in table.columns),
    }
    kept = [name for name, there in rules.items() if there]
    return Refused(
        f"table {table.path} has {', '.join(kept)}: only SQL writes to it, since only SQL keeps "
        "them in step with its rows; nothing was written. Use INSERT, UPDATE or DELETE over the "
        "SQL port; reading it here is fine",
        code="TABLE_RULED",
        details={"namespace": table.namespace, "table": table.name, "rules": kept},
    )
