"""`kvorum.check`: whether what is stored agrees with itself, at one timestamp.

    {table?: [namespace, name]}   → {ok, at, tables, rows, entries, replicas, found, findings}

    begin ──→ hold ──→ indexes ⟲ ──→ replicas ⟲ ──→ rest

    indexes    every row has its entries, and every entry its row; what a sequence gives out next
               is above what rows have
    replicas   every replica of every partition has the same versions (replica_digest.py), none that
               nobody can find, and no intent that nobody ends. One that has not applied yet what
               another had is waited for, then reported as lagging, which is not different
    rest       the map covers every table and index and nothing else; names and ids lead to each
               other; counters are above what they counted. Of one table: only its own part

A finding is [what, where, message]; CHECK_FINDINGS_MAX of them are listed, all are counted. Nothing
is changed or repaired. Tables are locked shared: no index is looked at half made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kv.base import system
from kv.base.descriptors import PartitionDescriptor
from kv.base.errors import Busy, Corruption, KvorumError, Refused
from kv.base.ids import META_PARTITION, TableId
from kv.base.keys import META_RANGE, escape, from_u64, table_prefix, table_range
from kv.base.limits import (
    CHECK_FINDINGS_MAX,
    CHECK_STEP_ROWS,
    SQL_BACKFILL_ROWS,
    TRANSFER_TIMEOUT_MS,
)
from kv.base.node_methods import NodesById
from kvorum.api.verbs import CHECK_REPLICA
from kvorum.transfer.backup import all_tables, covered, locks_of
from kvorum.transfer.backup_scope import system_spans
from kvorum.transfer.export import table_in
from kvorum.transfer.replica_digest import added
from kvorum.transfer.services import LATER, Past, Services, hold, keep, let_go
from procedures.engine import kv_store
from procedures.engine.context import StepContext
from procedures.engine.procedure import Outcome, again, done
from procedures.engine.procedure import next as go_on
from procedures.engine.registry import procedure, step, undo
from procedures.master.map.nodes import NodeState, all_nodes
from procedures.master.map.partitions import Placed, Reader, placed_of, placed_partitions
from sqlproxy.catalog import catalog, relations, sequences
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import CREATING, DELETE_ONLY, DROPPING, Index, Table
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.tables.entries import index_codec

CHECK: Final = "kvorum.check"
_WHAT: Final = "check"
_PREFIX: Final = 4
_ASKED_MAX: Final = 20  # times that a replica which differs is asked again …
_WAITED_MAX: Final = 200  # … and one that lags, or is being rebuilt …
_PAUSE_MS: Final = 150  # … after so long
_META_END: Final = META_RANGE[1]


class _Answer(NamedTuple):
    """What one replica has of a range. `applied`: by its first page."""

    digest: int
    rows: int
    orphans: list[bytes]
    intents: list[bytes]
    applied: int


_Answers: TypeAlias = Mapping[int, "_Answer | KvorumError"]


@procedure(CHECK, locks=locks_of, timeout_ms=TRANSFER_TIMEOUT_MS)
class Check:
    """ctx.state: at, lease; table, index (0 = the rows), start: where it stands; partition, from_:
    of the replicas; rows, entries, replicas, found, findings; tops: the highest values of columns
    with sequences.
    """

    def __init__(self, services: Services, calls: Callable[[], NodesById]) -> None:
        self._services, self._calls = services, calls

    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        """Raises InvalidArgument, NotFound, Refused (SCHEMA_CHANGED)."""
        at = ctx.state["at"] = await ctx.txn.start_ts()
        if not covered(await self._tables(ctx), ctx.args["locks"]):
            raise Refused(
                "a table was made since this check was submitted: submit it again",
                code="SCHEMA_CHANGED",
            )
        ctx.state.update(table=0, index=0, start=b"", partition=0, place=b"", tops={}, at=at)
        ctx.state.update(rows=0, entries=0, replicas=0, found=0, findings=[])
        return go_on("hold")

    @step(undo="give_up", undo_partial=True)
    async def hold(self, ctx: StepContext) -> Outcome:
        ctx.state["lease"] = await hold(self._services, ctx, ctx.state["at"], _WHAT)
        return go_on("indexes")

    def _past(self, ctx: StepContext) -> Past:
        return Past(self._services.txn(), ctx.state["at"])

    async def _tables(self, ctx: StepContext) -> list[Table]:
        past = self._past(ctx)
        if ctx.args.get("table") is not None:
            return [await catalog.lookup_any(past, *table_in(ctx.args))]
        return [t for t in await all_tables(past) if t.state not in (CREATING, DROPPING)]

    @undo
    async def give_up(self, ctx: StepContext) -> None:
        await let_go(self._services, ctx)

    # ------------------------------------------------------------------------------- indexes

    @step(undo="give_up", undo_partial=True)
    async def indexes(self, ctx: StepContext) -> Outcome:
        """A page of rows, or of an index's entries."""
        state = ctx.state
        await keep(self._services, ctx, _WHAT)
        tables = await self._tables(ctx)
        while state["table"] < len(tables) and tables[state["table"]].plain:
            state["table"] += 1
        if state["table"] >= len(tables):
            return go_on("replicas")
        table = tables[state["table"]]
        ctx.progress(0.5 * state["table"] / len(tables), f"table {table.path}")
        number = table.storage_ids[state["index"]]
        low, high = table_range(number)
        txn = self._services.txn()
        resume: bytes | None = None
        try:
            page = await txn.scan(
                state["start"] or low, high, limit=SQL_BACKFILL_ROWS, at=state["at"]
            )
            resume = page.resume
            if state["index"] == 0:
                await self._rows(ctx, table, page.items)
            else:
                await self._entries(ctx, table, table.indexes[state["index"] - 1], page.items)
        except Corruption as error:  # the rest of it cannot be read
            self._found(ctx, "row", table.path, error.message)
        if resume is not None:
            state["start"] = resume
            return again()
        state["start"] = b""
        state["index"] += 1
        if state["index"] > len(table.indexes):
            await self._sequences(ctx, table)
            state.update(table=state["table"] + 1, index=0)
        return again()

    async def _rows(self, ctx: StepContext, table: Table, items: Sequence[Any]) -> None:
        """Each has its entries."""
        ctx.state["rows"] += len(items)
        rows, wanted = codec(table), []
        codecs = [(i, index_codec(table, i)) for i in table.indexes if i.state != DELETE_ONLY]
        numbered = [(at, c) for at, c in enumerate(table.columns) if c.sequence or c.hidden_number]
        for key, value, _ in items:
            try:
                slots = rows.decode_slots(key[_PREFIX:], value)
                row = rows.decode_row(key[_PREFIX:], value)
            except (KvorumError, ValueError) as error:
                self._found(ctx, "row", table.path, f"the row {key[_PREFIX:]!r:.80}: {error}")
                continue
            for at, column in numbered:
                number = row[at]
                if type(number) is int:
                    self._top(ctx, table, column.id, number)
            for index, of in codecs:
                if not of.had(row):
                    continue
                where, entry = of.entry_of(slots)
                wanted.append((index, key, table_prefix(index.id) + where, entry))
        found, _ = await self._services.txn().multi_get([w[2] for w in wanted], ctx.state["at"])
        for (index, key, where, entry), there in zip(wanted, found, strict=True):
            if there is None or there[0] != entry:
                how = "has no entry" if there is None else "has a wrong entry"
                message = f"the row {key[_PREFIX:]!r:.80} {how} ({where[_PREFIX:]!r:.80})"
                self._found(ctx, "index", f"{table.path}.{index.name}", message)

    async def _entries(
        self, ctx: StepContext, table: Table, index: Index, items: Sequence[Any]
    ) -> None:
        """Each has its row."""
        ctx.state["entries"] += len(items)
        of, rows, prefix = index_codec(table, index), codec(table), table_prefix(table.id)
        named = f"{table.path}.{index.name}"
        keys: list[tuple[bytes, bytes, bytes]] = []
        for key, value, _ in items:
            try:
                keys.append((key, value, prefix + of.row_key(key[_PREFIX:], value)))
            except (KvorumError, ValueError) as error:
                self._found(ctx, "index", named, f"the entry {key[_PREFIX:]!r:.80}: {error}")
        found, _ = await self._services.txn().multi_get([k[2] for k in keys], ctx.state["at"])
        for (key, value, row_key), there in zip(keys, found, strict=True):
            entry = None
            if there is not None:
                row = rows.decode_row(row_key[_PREFIX:], there[0])
                slots = rows.decode_slots(row_key[_PREFIX:], there[0])
                entry = of.entry_of(slots) if of.had(row) else None
            if entry != (key[_PREFIX:], value):
                how = "no row" if there is None else "a row with other values"
                message = f"the entry {key[_PREFIX:]!r:.80} leads to {how} ({row_key[4:]!r:.80})"
                self._found(ctx, "index", named, message)

    def _top(self, ctx: StepContext, table: Table, column: int, value: int) -> None:
        tops, name = ctx.state["tops"], f"{table.id}.{column}"
        low, high = tops.get(name, (value, value))
        tops[name] = [min(low, value), max(high, value)]

    async def _sequences(self, ctx: StepContext, table: Table) -> None:
        """What they give out next is above (or, going down, below) what rows have."""
        past = self._past(ctx)
        there = await relations.list_database(past, table.namespace)
        for column in table.columns:
            bounds = ctx.state["tops"].pop(f"{table.id}.{column.id}", None)
            sequence: object = there.by_id(column.sequence) if column.sequence else None
            if column.hidden_number:
                sequence = sequences.rowids(table)
            if bounds is None or not isinstance(sequence, SequenceRow) or sequence.cycle:
                continue
            stand = await sequences.stand(past, sequence)
            up = sequence.increment > 0
            following = stand.last + (sequence.increment if stand.called else 0)
            if following <= bounds[1] if up else following >= bounds[0]:
                message = (
                    f"gives out {following} next, and column {column.name} of {table.path} has "
                    f"{bounds[1] if up else bounds[0]} already"
                )
                self._found(ctx, "sequence", sequence.path, message)

    # ------------------------------------------------------------------------------- replicas

    @step(undo="give_up", undo_partial=True)
    async def replicas(self, ctx: StepContext) -> Outcome:
        """A page of one partition, at its leader and at all others."""
        state = ctx.state
        await keep(self._services, ctx, _WHAT)
        parts = await self._parts(ctx)
        if state["partition"] >= len(parts):
            return go_on("rest")
        placed = parts[state["partition"]]
        d = placed.descriptor
        ctx.progress(0.5 + 0.5 * state["partition"] / len(parts), f"partition {d.id}")
        start = state["place"] or d.start
        try:
            resume = await self._page(ctx, placed, start)
        except Corruption as error:  # of the leader's: it cannot be read on
            self._found(ctx, "replica", f"partition {d.id}", f"its leader: {error.message}")
            resume = None
        if resume is None:
            state.update(partition=state["partition"] + 1, place=b"")
        else:
            state["place"] = resume
        return again()

    async def _parts(self, ctx: StepContext) -> list[Placed]:
        """Of the map as it was; one that was split or moved since is found again by its keys."""
        past = self._past(ctx)
        wanted = {number for table in await self._tables(ctx) for number in table.storage_ids}
        parts = [
            placed
            for placed in await placed_partitions(past)
            if int.from_bytes(placed.descriptor.start[:_PREFIX], "big") in wanted
        ]
        if ctx.args.get("table") is not None:
            return parts
        # The meta partition is not in the map; it is wherever there is data. What is not versioned
        # (rows that a Spark sink staged) is nobody's at an earlier timestamp.
        here = [row for row in await all_nodes(past) if row.state is NodeState.MEMBER]
        nodes = tuple(row.id for row in here if not row.witness)
        meta = [
            Placed(PartitionDescriptor(META_PARTITION, low, high, 1, nodes), nodes)
            for low, high in system_spans()
        ]
        return [*meta, *parts]

    async def _page(self, ctx: StepContext, placed: Placed, start: bytes) -> bytes | None:
        """Compare the replicas; where to go on, None at the end of the partition.

        Where they do not agree, or not on as many rows as were read (a half that was split off has
        moved away), the map is looked at again: it may have changed since `at`.
        """
        d, at, txn = placed.descriptor, ctx.state["at"], self._services.txn()
        page = await txn.scan(start, d.end, limit=CHECK_STEP_ROWS, at=at)
        end = d.end if page.resume is None else page.resume
        parts = [(placed, start, end)]
        found: list[tuple[Placed, dict[int, _Answer | KvorumError]]] = []
        tops: dict[int, int] = {}  # how far each partition was when it was asked first
        damaged: dict[tuple[str, int], str] = {}  # a replica may be rebuilt when it is asked again
        for asked in range(_WAITED_MAX):
            found = [(one, await self._answers(ctx, one, low, high)) for one, low, high in parts]
            for one, answers in found:
                tops.setdefault(one.descriptor.id, _top(answers))
                for node, answer in answers.items():
                    if isinstance(answer, Corruption):
                        damaged[f"partition {one.descriptor.id}", node] = answer.message
            agreed = all(_agree(answers) for _, answers in found)
            late = any(_lagging(answers, tops[one.descriptor.id]) for one, answers in found)
            if asked >= _ASKED_MAX and not late:
                break
            if agreed and sum(_rows_of(answers) for _, answers in found) == len(page.items):
                break
            now = parts if d.id == META_PARTITION else await _mapped(txn, start, end)
            if agreed and now == parts:
                break
            if not agreed:
                await asyncio.sleep(_PAUSE_MS / 1000)
            parts = now or parts
        for (where, node), message in damaged.items():
            self._found(ctx, "replica", where, f"node {node}: {message}")
        for one, answers in found:
            self._leave_out(ctx, one, answers, tops[one.descriptor.id])
            self._compared(ctx, one, answers)
        if page.resume is None and not (d.id == META_PARTITION and d.end != _META_END):
            ctx.state["replicas"] += len(_asked_nodes(placed))
        return page.resume

    async def _answers(
        self, ctx: StepContext, placed: Placed, start: bytes, end: bytes
    ) -> dict[int, _Answer | KvorumError]:
        left_out = [node for id, node in ctx.state.get("behind", ()) if id == placed.descriptor.id]
        return {
            node: await self._asked(ctx, placed, node, start, end)
            for node in _asked_nodes(placed)
            if node not in left_out
        }

    def _leave_out(
        self, ctx: StepContext, placed: Placed, answers: dict[int, _Answer | KvorumError], top: int
    ) -> None:
        """Report the replicas that lag; they are not compared, here and further on in this
        partition.
        """
        for node, at in _lagging(answers, top).items():
            where = f"partition {placed.descriptor.id}"
            what = "is being rebuilt" if at < 0 else f"has applied {at} of {top} entries"
            self._found(
                ctx, "lag", where, f"node {node} {what}, it is not compared: check again later"
            )
            ctx.state.setdefault("behind", []).append([int(placed.descriptor.id), node])
            del answers[node]

    async def _asked(
        self, ctx: StepContext, placed: Placed, node: int, start: bytes, end: bytes
    ) -> _Answer | KvorumError:
        """Of all pages up to `end`; or why there is none."""
        total = rows = 0
        applied = -1  # by the first page
        orphans: list[bytes] = []
        intents: list[bytes] = []
        resume: bytes | None = start
        try:
            while resume is not None:
                args = (placed.descriptor.id, resume, end, ctx.state["at"], CHECK_STEP_ROWS)
                digest, count, resume, lost, old, index = await self._calls().call_at(
                    node, CHECK_REPLICA, *args
                )
                applied = index if applied < 0 else applied
                total = added(total, digest)
                rows += count
                orphans += lost
                intents += old
        except KvorumError as error:
            return error
        return _Answer(total, rows, orphans, intents, applied)

    def _compared(self, ctx: StepContext, placed: Placed, answers: _Answers) -> None:
        where = f"partition {placed.descriptor.id}"
        seen: dict[tuple[int, int], list[int]] = {}
        for node, answer in answers.items():
            if isinstance(answer, Corruption):
                continue  # told already
            if isinstance(answer, KvorumError):
                if answer.disposition not in LATER and answer.code != "NO_REPLICA":
                    raise answer
                self._found(ctx, "replica", where, f"node {node} cannot be asked: {answer.message}")
            else:
                seen.setdefault((answer.digest, answer.rows), []).append(node)
                for kind, keys in (("orphan", answer.orphans), ("intent", answer.intents)):
                    for key in keys:
                        self._found(
                            ctx, kind, where, f"node {node}: {_EXPLAINED[kind]}: {key!r:.80}"
                        )
        if len(seen) > 1:
            parties = "; ".join(
                f"node {', '.join(map(str, nodes))}: {rows} rows in this part"
                for (_, rows), nodes in seen.items()
            )
            self._found(ctx, "replica", where, f"its replicas differ ({parties})")

    # ------------------------------------------------------------------------------- the rest

    @step(undo="give_up", undo_partial=True)
    async def rest(self, ctx: StepContext) -> Outcome:
        state, past = ctx.state, self._past(ctx)
        tables = await self._tables(ctx)
        parts = await placed_partitions(past)
        await self._map(ctx, tables, parts)
        for table in tables:
            for number in table.storage_ids:
                owner = await catalog.find_owner(past, TableId(number))
                if owner is None or owner.id != table.id:
                    self._found(ctx, "catalog", table.path, f"its id {number} does not lead to it")
        if ctx.args.get("table") is None:
            await self._counters(ctx, tables, parts)
        await let_go(self._services, ctx)
        counted = ("rows", "entries", "replicas", "found", "findings")
        result = {"ok": not state["found"], "at": str(state["at"]), "tables": len(tables)}
        return done(result | {name: state[name] for name in counted})

    async def _map(self, ctx: StepContext, tables: Sequence[Table], parts: list[Placed]) -> None:
        by_table: dict[int, list[tuple[bytes, bytes]]] = {}
        for placed in parts:
            d = placed.descriptor
            if d.start >= _META_END:
                by_table.setdefault(int.from_bytes(d.start[:4], "big"), []).append((d.start, d.end))
        known: dict[int, str] = {}
        for table in tables:
            known |= dict.fromkeys(map(int, table.storage_ids), table.path)
        for number, path in known.items():
            at, high = table_range(number)
            for start, end in sorted(by_table.get(number, ())):
                if start != at:
                    break
                at = end
            if at != high:
                self._found(
                    ctx, "map", path, f"no partition of it (id {number}) begins at {at!r:.60}"
                )
        if ctx.args.get("table") is None:
            making = {
                int(number)
                for table in await all_tables(self._past(ctx))
                for number in table.storage_ids
            }
            for number in sorted(set(by_table) - set(known) - making):
                self._found(ctx, "map", f"id {number}", "has partitions and is no table's")

    async def _counters(
        self, ctx: StepContext, tables: Sequence[Table], parts: Sequence[Placed]
    ) -> None:
        """What was given out is below what is given out next."""
        past = self._past(ctx)
        newest = await past.txn.scan(
            kv_store.record_key(0),
            kv_store.record_key((1 << 64) - 1),
            limit=1,
            reverse=True,
            at=ctx.state["at"],
        )
        tops = {
            "table": max((int(n) for table in tables for n in table.storage_ids), default=0),
            "partition": max((int(placed.descriptor.id) for placed in parts), default=0),
            "procedure": max((kv_store.id_in(key) for key, *_ in newest.items), default=0),
        }
        for name, top in tops.items():
            value, _ = await past.get(table_prefix(system.COUNTERS) + escape(name.encode()))
            following = 0 if value is None else from_u64(value)
            if top > META_PARTITION and following <= top:
                message = f"gives out {following} next, and {top} is in use"
                self._found(ctx, "counter", name, message)

    def _found(self, ctx: StepContext, what: str, where: str, message: str) -> None:
        ctx.state["found"] += 1
        if len(ctx.state["findings"]) < CHECK_FINDINGS_MAX:
            ctx.state["findings"].append([what, where, message])


def _asked_nodes(placed: Placed) -> list[int]:
    """Voters with data: a learner is still being filled."""
    return [node for node in placed.descriptor.voters if node not in placed.descriptor.witnesses]


async def _mapped(txn: Reader, start: bytes, end: bytes) -> list[tuple[Placed, bytes, bytes]]:
    """Who has these keys of one table now, and which part of them."""
    rows = await placed_of(txn, TableId(int.from_bytes(start[:_PREFIX], "big")))
    return [
        (placed, max(start, placed.descriptor.start), min(end, placed.descriptor.end))
        for placed in rows
        if placed.descriptor.start < end and start < placed.descriptor.end
    ]


def _agree(answers: _Answers) -> bool:
    """Whether all nodes answered, and the same."""
    whole = _whole(answers)
    same = {(answer.digest, answer.rows) for answer in whole.values()}
    return len(whole) == len(answers) and len(same) == 1


def _whole(answers: _Answers) -> dict[int, _Answer]:
    return {node: one for node, one in answers.items() if isinstance(one, _Answer)}


def _top(answers: _Answers) -> int:
    """How far the one is that is furthest."""
    return max((answer.applied for answer in _whole(answers).values()), default=0)


def _lagging(answers: _Answers, top: int) -> dict[int, int]:
    """Those that differ and have not applied what another had when it was asked first: how far each
    is; -1: it is being rebuilt.
    """
    whole = _whole(answers)
    right = {(one.digest, one.rows) for one in whole.values() if one.applied >= top}
    late = {
        node: one.applied
        for node, one in whole.items()
        if one.applied < top and (one.digest, one.rows) not in right
    }
    return late | {node: -1 for node, one in answers.items() if isinstance(one, Busy)}


def _rows_of(answers: _Answers) -> int:
    return next((answer.rows for answer in _whole(answers).values()), 0)


_EXPLAINED: Final = {
    "orphan": "a version that no reader can find, for its key has no newest record",
    "intent": "an intent of a transaction that must have ended long ago",
}
