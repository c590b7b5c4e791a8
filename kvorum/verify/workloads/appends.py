"""Transactions that read lists and append to them (Elle; Kingsbury & Alvaro 2020).

    txn     [["r", key, null], ["append", key, element], …]  → the same with what was read

An element is appended once in a run, so a list says who wrote it, in which order, and what its
reader did not see. A key is left when its list is long.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from kvorum.api.model import Record
from kvorum.sdk.tables import AsyncTransaction, AsyncTransactionTable
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload

Micro = list[Any]
"""`["r", key, list or null]` or `["append", key, element]`."""


class ListAppend(Workload):
    name: ClassVar[str] = "list-append"
    about: ClassVar[str] = "transactions that append to lists: the graph of who saw whom"
    splits: ClassVar = ("k1", "k2", "k3")

    def __init__(self, *, keys: int = 5, appends_per_key: int = 50, micro_ops: int = 4) -> None:
        super().__init__()
        self._keys = [self._new_key(i) for i in range(keys)]
        self._appended = [0] * keys
        self._per_key = appends_per_key
        self._micro_ops = micro_ops
        self._left: list[str] = []

    def _new_key(self, slot: int) -> str:
        return f"k{slot}-{self.unique()}"

    async def step(self, client: Client) -> None:
        ops = self._draw(client)
        if all(op[0] == "r" for op in ops) and client.chance.happens(0.5):
            await self._read_snapshot(client, "txn", [op[1] for op in ops])
            return
        await client.transact("txn", ops, lambda t: _execute(t, client, ops))

    async def final(self, client: Client) -> bool:
        for key in [*self._left, *self._keys]:
            if not await self._read_snapshot(client, "final txn", [key]):
                return False
        return True

    def _draw(self, client: Client) -> list[Micro]:
        reads_only = client.chance.happens(0.3)
        count = 1 + client.chance.below(self._micro_ops)
        ops: list[Micro] = []
        for _ in range(count):
            slot = client.chance.below(len(self._keys))
            if reads_only or client.chance.happens(0.4):
                ops.append(["r", self._keys[slot], None])
                continue
            self._appended[slot] += 1
            if self._appended[slot] > self._per_key:
                self._left.append(self._keys[slot])
                self._keys[slot], self._appended[slot] = self._new_key(slot), 1
            ops.append(["append", self._keys[slot], self.unique()])
        return ops

    async def _read_snapshot(self, client: Client, f: str, keys: list[str]) -> bool:
        """A transaction that only reads, all at once."""

        async def call() -> list[Micro]:
            different = sorted(set(keys))
            rows = await client.table.multi_get(different)
            found = dict(zip(different, rows, strict=True))
            return [["r", key, _list(found[key])] for key in keys]

        return await client.read(f, [["r", key, None] for key in keys], call)


async def _execute(t: AsyncTransaction, client: Client, ops: list[Micro]) -> list[Micro]:
    table = t.table(NAMESPACE, client.table_name)
    done: list[Micro] = []
    for what, key, element in ops:
        values = await _read(table, client, key)
        if what == "r":
            done.append(["r", key, values])
        else:
            await table.put(key, json.dumps([*values, element]))
            done.append(["append", key, element])
    return done


async def _read(table: AsyncTransactionTable, client: Client, key: str) -> list[int]:
    """By key or by a scan of its range, which must see the same."""
    if client.chance.happens(0.7):
        return _list(await table.get(key))
    page = await table.scan(start=key, end=key + "\0")
    return _list(Record(page.items[0].value, page.items[0].version) if page.items else None)


def _list(row: Record | None) -> list[int]:
    return [int(element) for element in json.loads(row.value)] if row else []
