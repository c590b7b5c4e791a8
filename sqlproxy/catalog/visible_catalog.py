"""The catalog for those who may not read the system's tables: one verb that answers the rows about
what its caller may see, and one by which a writer without SQL leaves his claim.

    client   RemoteCatalog (a Reader) ─▶ CATALOG ─▶ Seen, at any node ─▶ the node's transactions

So whatever reads the catalog works with either Reader. What is seen: names of namespaces and tables
on which the caller holds any right, or some table of which; where their partitions are; the nodes,
settings and the restore of the cluster; what sinks have staged for such tables, and up to where
applications wrote them (of Spark's jobs: who may read these). What is not seen looks like what is
not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, NamedTuple, Protocol

from kv.base import system
from kv.base.fields import Bound, Name, integer
from kv.base.keys import table_prefix, unescape
from kv.base.limits import SCAN_ROWS_MAX
from kv.base.node_methods import Nodes
from kv.base.rights import (
    CLUSTER as EVERYTHING,
)
from kv.base.rights import (
    LOOPBACK,
    PUT,
    Action,
    Book,
    Identity,
    Kind,
    Resource,
    allow,
    may,
    table,
)
from kv.base.verbs import CLUSTER, Caller, Repeat, Request, verb
from kv.base.wire_row import WireRow
from procedures.sink.format.sink_parts import SPARK_JOB
from procedures.sink.format.sink_records import Attempt, own_row
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import Page, Reader, Run
from sqlproxy.rows.records import decode_table
from sqlproxy.rows.schema import Table

_PREFIX_BYTES: Final = 4
_SCANNED: Final = 256  # at least, in one go: most of them may be hidden
_JOBS: Final = Resource(Kind.PROCEDURE_TYPE, SPARK_JOB)
_ANY: Final = (Action.READ, *sorted(PUT), Action.DELETE, Action.DEFINE, Action.TRUNCATE)


@verb(149, by=Caller.CLIENT, action=Action.CONNECT, on=CLUSTER, repeat=Repeat.QUESTION)
class Catalog(Request):
    """→ [[key, value, version], …], resume | None. Rows of the system's tables about what the
    caller may see (sqlproxy/catalog/visible_catalog.py).
    """

    start: Bound
    end: Bound
    limit: Annotated[int, integer(1, SCAN_ROWS_MAX)]


@verb(147, by=Caller.CLIENT, action=Action.CONNECT, on=CLUSTER, repeat=Repeat.AGAIN)
class Claim(Request):
    """→ key, value: the table's row. Somebody who may write the table is about to, without SQL."""

    namespace: Name
    table: Name


CATALOG: Final = Catalog.number
CLAIM: Final = Claim.number


# ---------------------------------------------------------------------------------------- clients


class Rows(NamedTuple):
    """sqlproxy.catalog.catalog.Page."""

    items: Sequence[tuple[bytes, bytes, int]]
    resume: bytes | None


class RemoteCatalog:
    """sqlproxy.catalog.catalog.Reader of who may not read the tables themselves."""

    def __init__(self, calls: Nodes) -> None:
        self._calls = calls

    async def get(self, key: bytes) -> tuple[bytes | None, int]:
        rows, _ = await self._calls.call_node(CATALOG, key, key + b"\0", 1)
        return (rows[0][1], rows[0][2]) if rows else (None, 0)

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> Rows:
        rows, resume = await self._calls.call_node(CATALOG, start, end, limit)
        return Rows([(key, value, version) for key, value, version in rows], resume)

    async def claim(self, namespace: str, name: str) -> Table:
        """`catalog.claim`. Raises NotFound, Refused, Forbidden."""
        key, value = await self._calls.call_node(CLAIM, namespace, name)
        return decode_table(key, value)


# ------------------------------------------------------------------------------------------ nodes


class Books(Protocol):
    """sqlproxy.catalog.guard.Guard."""

    @property
    def book(self) -> Book | None: ...


Sees = Callable[[bytes, bytes], bool]
"""Whether a row is seen, by its key and value. Rows are asked about in the order of their keys."""


class Seen:
    """The handlers of a node."""

    def __init__(self, reader: Reader, run: Run, books: Books) -> None:
        self._reader, self._run, self._books = reader, run, books

    async def rows(self, context: Any, args: WireRow) -> WireRow:
        """The node method CATALOG."""
        start, end, limit = args
        sees = self._sees(getattr(context.conn, "identity", None))
        found: list[list[object]] = []
        for number in sorted(_VISIBLE_TABLES):
            low, high = table_prefix(number), table_prefix(number + 1)
            low, high = max(low, start), min(high, end or high)
            if number == system.SINK_ATTEMPTS and low < high:
                await self._attempt_before(low, sees)
            while low < high and len(found) < limit:
                page: Page = await self._reader.scan(low, high, limit=max(limit, _SCANNED))
                found += [list(row) for row in page.items if sees(row[0], row[1])]
                low = page.resume or high
        # A resume that is not after a row that it sees would name one that it does not see.
        more = len(found) >= limit
        return [found[:limit], found[limit - 1][0] + b"\0" if more else None]

    async def _attempt_before(self, low: bytes, sees: Sees) -> None:
        """Rows of tasks do not say whose they are: it is in their attempt's, which comes first."""
        try:
            own = own_row(low)
        except ValueError:
            return  # no attempt begins below
        value, _ = await self._reader.get(own)
        if value is not None:
            sees(own, value)

    async def claim(self, context: Any, args: WireRow) -> list[object]:
        """The node method CLAIM."""
        identity, book = getattr(context.conn, "identity", None), self._books.book
        resource = table(*args)
        if (
            identity is not None
            and book is not None
            and not identity.node
            and not any(
                may(identity, frozenset({action}), resource, book) is None
                for action in (*PUT, Action.DELETE)
            )
        ):
            allow(identity, PUT, resource, book)
        namespace, name = args
        await self._run(lambda t: catalog.claim(t, namespace, name))
        key = catalog.table_key(namespace, name)
        return [key, (await self._reader.get(key))[0]]

    def _sees(self, identity: Identity | None) -> Sees:
        book = self._books.book
        if identity is None or identity == LOOPBACK or identity.credential == "node":
            return lambda key, _value: _table_id(key) in _VISIBLE_TABLES
        if book is None:
            return lambda _key, _value: False
        return _View(identity, book).sees


def seen_tables(identity: Identity, book: Book) -> Callable[[int], bool]:
    """Whether the identity sees what is staged for a table, by its id: who has any right on it."""
    return _View(identity, book).sees_table


class _View:
    """What one identity sees by one book."""

    def __init__(self, identity: Identity, book: Book) -> None:
        self._identity, self._book = identity, book
        self._known: dict[Resource, bool] = {}
        self._spaces: frozenset[str] | None = None
        self._attempt = b"", False  # the one whose row came last, and whether it is seen
        self._all = self._holds(EVERYTHING)

    def sees_table(self, id_: int) -> bool:
        return self._all or self._table(id_)

    def sees(self, key: bytes, value: bytes) -> bool:
        of, rest = _table_id(key), _PREFIX_BYTES
        if of not in _VISIBLE_TABLES:
            return False
        if of == system.CLUSTER or self._all:
            return True
        if of == system.TABLES_BY_ID:
            return self._table(int.from_bytes(key[rest:], "big"))
        if of == system.PARTITIONS:
            start, _ = unescape(key, rest)
            return self._table(_table_id(start))
        if of == system.SINK_MARKERS:
            _, rest = unescape(key, rest)
            number = int.from_bytes(key[rest:], "big")
            return self._table(number) if number else self._holds(_JOBS)
        if of == system.SINK_ATTEMPTS:
            own = own_row(key)
            if own == key:
                self._attempt = own, self._table(Attempt.unpack(value).table)
            return self._attempt == (own, True)
        name, rest = unescape(key, rest)
        namespace = name.decode()
        if of == system.TABLES:
            own, _ = unescape(key, rest)
            return self._holds(table(namespace, own.decode()))
        return self._namespace(namespace)

    def _table(self, id_: int) -> bool:
        found = self._book.tables.get(id_)
        return found is not None and self._holds(found)

    def _namespace(self, name: str) -> bool:
        if self._spaces is None:
            tables = set(self._book.tables.values())
            self._spaces = frozenset(one.namespace for one in tables if self._holds(one))
        return name in self._spaces or self._holds(Resource(Kind.NAMESPACE, name))

    def _holds(self, resource: Resource) -> bool:
        """Any right."""
        found = self._known.get(resource)
        if found is None:
            found = self._known[resource] = any(
                may(self._identity, frozenset({action}), resource, self._book) is None
                for action in _ANY
            )
        return found


_VISIBLE_TABLES: Final = frozenset(
    {
        *(system.NAMESPACES, system.TABLES, system.TABLES_BY_ID, system.PARTITIONS),
        *(system.RELATIONS, system.SCHEMAS, system.CLUSTER),
        *(system.SINK_ATTEMPTS, system.SINK_MARKERS),
    }
)


def _table_id(key: bytes) -> int:
    return int.from_bytes(key[:_PREFIX_BYTES], "big")
