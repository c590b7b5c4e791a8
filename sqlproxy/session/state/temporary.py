"""What a session has for itself: temporary tables, views and sequences, in a schema pg_temp_N that
begins with the first of them and ends with the session (docs/decisions/1590).

    block.rows          its rows and its catalog, in memory (`txn.private`)
    `over`              what is declared, as this session sees it
    `run`, `change`     definitions, in the transaction that is under way
    `settle`            ON COMMIT, just before the transaction commits
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any, Final

from kv.base.ids import FIRST_PRIVATE_TABLE
from kv.base.keys import PRIVATE, from_u64, table_range, u32, u64
from kv.base.limits import SQL_PLANS_CHARS_MAX, SQL_PRIVATE_PLANS_MAX
from kv.base.ops import delete, put
from kv.base.rights import PUBLIC as EVERYBODY
from sqlproxy.catalog.catalog import Writer
from sqlproxy.catalog.privileges import Place
from sqlproxy.catalog.relations import Relations
from sqlproxy.ddl.private import (
    PrivateCatalog,
    PrivateDefinitions,
    PrivateNumbers,
    declare_private,
    declared_privately,
)
from sqlproxy.declared.database import Declared
from sqlproxy.rows.naming import TEMPORARY, namespace_of
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.session.shared.prepared import Plans
from sqlproxy.session.shared.services import Numbers, Services
from sqlproxy.session.state.block import Block
from txn.private import PrivateRows, PrivateWrites

_ON_COMMIT: Final = PRIVATE + u32(0)
"""+ u32 table: what becomes of it at a commit. No system table has the number 0."""
_DROP, _DELETE_ROWS = 1, 2
_ACTIONS: Final = {"drop": _DROP, "delete rows": _DELETE_ROWS}


@dataclass(frozen=True, slots=True)
class _Chance:
    """`kv.base.ports.Rng`."""

    random: Callable[[], float]
    token: Callable[[int], bytes]


class Temporary:
    """See the module."""

    def __init__(
        self, services: Services, block: Block, database: str, process: int, owner: str
    ) -> None:
        """`process`: what the client knows the session by; `owner`: of the schema."""
        self.schema: Final = f"{TEMPORARY}_{process}"
        self.namespace: Final = namespace_of(database, self.schema)
        self._services, self._block, self._database = services, block, database
        self._place = Place(self.namespace, owner, schema=((EVERYBODY, "UC"),))
        self.plans: Final = Plans(SQL_PRIVATE_PLANS_MAX, SQL_PLANS_CHARS_MAX)
        self._over: tuple[Declared, object, Declared] | None = None
        self._definitions: Final = PrivateDefinitions(
            services.private_ids,
            services.client.timers,
            _Chance(services.random, services.token),
            services.clock.now_ms,
            block.private,
        )

    async def begin(self) -> None:
        """It has nothing yet, or no more."""
        rows = PrivateRows()
        writes = PrivateWrites(rows)
        await declare_private(writes, self._database, self.namespace, self._place.owner)
        writes.derived = await declared_privately(writes, self._database)
        await writes.commit()
        self._block.rows = rows
        self.numbers = PrivateNumbers(rows, lambda: self._block.beside)

    @property
    def bytes(self) -> int:
        """Of memory that its rows take."""
        rows = self._block.rows
        return 0 if rows is None else rows.bytes

    @property
    def found(self) -> Relations:
        """What is declared, as the transaction sees it."""
        beside, rows = self._block.beside, self._block.rows
        assert rows is not None
        found = rows.derived if beside is None else beside.derived
        assert isinstance(found, Relations)
        return found

    def over(self, declared: Declared) -> Declared:
        """The same with what the session has for itself; one object as long as nothing changed."""
        found, known = self.found, self._over
        if known is None or known[0] is not declared or known[1] is not found:
            under = declared.under(found, self.schema, self._place)
            known = self._over = declared, found, under
        return known[2]

    async def run(self, procedure: str, args: Mapping[str, object]) -> Any:
        """A definition. Raises KvorumError."""
        writes, before = self._block.private(), self.found
        result = await self._definitions.run(procedure, args)
        writes.derived = await declared_privately(writes, self._database)
        if procedure == "TruncateTable":
            old = {table.name: table.id for table in before.tables}
            for name, number in result["tables"].items():
                action, _ = writes.get(_ON_COMMIT + u32(old[name]))
                if action is not None:
                    writes.add(put(_ON_COMMIT + u32(number), action))
        return result

    async def change(self, write: Callable[[Writer], Awaitable[None]]) -> None:
        """Its catalog: owners, privileges, comments. Raises KvorumError."""
        writes = self._block.private()
        await write(PrivateCatalog(writes))
        writes.derived = await declared_privately(writes, self._database)

    def on_commit(self, name: str, action: str) -> None:
        """What becomes of a table that was just made, at each commit."""
        (table,) = (one for one in self.found.tables if one.name == name)
        if action:
            self._block.private().add(put(_ON_COMMIT + u32(table.id), u64(_ACTIONS[action])))

    async def settle(self) -> None:
        """ON COMMIT of what the transaction has written."""
        writes = self._block.beside
        if not writes:
            return
        page = await writes.scan(_ON_COMMIT, PRIVATE + u32(1), limit=1 << 20)
        tables = {int(table.id): table for table in self.found.tables}
        dropped: list[str] = []
        for key, action, _ in page.items:
            table = tables.get(int.from_bytes(key[-4:]))
            if table is None:
                writes.add(delete(key))
            elif from_u64(action) == _DROP:
                writes.add(delete(key))
                dropped.append(table.name)
            else:
                for number in table.storage_ids:
                    writes.drop(*table_range(number))
        if dropped:
            args = {"namespace": self.namespace, "names": dropped, "cascade": True}
            await self.run("DropTable", args)

    async def discard(self) -> None:
        """DISCARD TEMP: all of it goes."""
        rows = self._block.rows
        if rows is not None and rows.doubtful:
            await self.begin()
            return
        kinds = {
            "DropView": [one.name for one in self.found.views],
            "DropTable": [one.name for one in self.found.tables],
            "DropSequence": [one.name for one in self.found.sequences if not one.owned_by],
        }
        for procedure, names in kinds.items():
            if names:
                args = {"namespace": self.namespace, "names": names, "cascade": True}
                await self.run(procedure, args)


class Sequences:
    """Values of sequences, of the session's own and of all others
    (`sqlproxy.session.shared.services.Numbers`).
    """

    def __init__(self, shared: Numbers, own: Callable[[], Temporary | None]) -> None:
        self._shared, self._own = shared, own

    def _of(self, number: int) -> Numbers:
        own = self._own() if number >= FIRST_PRIVATE_TABLE else None
        return self._shared if own is None else own.numbers

    async def reserve(self, sequence: SequenceRow, count: int) -> Items[int]:
        return await self._of(sequence.id).reserve(sequence, count)

    async def some(self, sequence: SequenceRow, count: int) -> tuple[Items[int], int]:
        return await self._of(sequence.id).some(sequence, count)

    def give_back(self, sequence: SequenceRow, values: list[int], run: int) -> None:
        self._of(sequence.id).give_back(sequence, values, run)

    def at_once(self, sequence: SequenceRow, count: int) -> list[int] | None:
        return self._of(sequence.id).at_once(sequence, count)

    def take_back(self, sequence: SequenceRow, values: list[int]) -> None:
        self._of(sequence.id).take_back(sequence, values)

    async def set_value(self, sequence: SequenceRow, value: int, called: bool = True) -> None:
        await self._of(sequence.id).set_value(sequence, value, called)

    async def stand(self, sequence: SequenceRow) -> tuple[int, int, bool]:
        return await self._of(sequence.id).stand(sequence)

    def forget(self, sequence: int) -> None:
        self._of(sequence).forget(sequence)
