"""Transfers between accounts: money is neither made nor lost, in any snapshot.

    transfer    {"id", "from", "to", "amount"} → {"from": balance, "to": balance} after it,
                                                 null if there was too little
    read        {"how"}                        → {account: balance}
    final read  null                           → {account: balance}
    final journal  null                        → {id: [from, to, amount]}

At read_committed a transfer locks both accounts, in one order, and computes from what it locked.

Each transfer also writes a row of a journal, in the same transaction and another partition. So the
end is checked exactly: balances are what the journal says, every acknowledged transfer is in it,
and none that was refused.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from kv.base.config import CLOCKS
from kvorum.api.model import Put
from kvorum.sdk.database import AsyncDatabase
from kvorum.sdk.tables import AsyncTransaction
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import ISOLATIONS, READ_COMMITTED, Workload, make_table

_JOURNAL = "j"


class Bank(Workload):
    name: ClassVar[str] = "bank"
    clocks: ClassVar = CLOCKS
    about: ClassVar[str] = "transfers between accounts: the total is the same in every snapshot"
    splits: ClassVar = ("a3", "a6", _JOURNAL)
    isolations: ClassVar = (*ISOLATIONS, READ_COMMITTED)

    def __init__(self, *, accounts: int = 9, balance: int = 100) -> None:
        super().__init__()
        assert 2 <= accounts <= 10
        self._accounts = [f"a{i}" for i in range(accounts)]
        self._balance = balance

    def parameters(self) -> dict[str, object]:
        return {"accounts": self._accounts, "balance": self._balance}

    async def prepare(self, db: AsyncDatabase, table: str) -> None:
        await make_table(db, table, self.splits)
        await db.batch(
            [Put(NAMESPACE, table, account, str(self._balance)) for account in self._accounts]
        )

    async def step(self, client: Client) -> None:
        if client.chance.happens(0.3):
            await self._read(client, "read")
            return
        source, target = client.chance.some(self._accounts, 2)
        args = {"id": self.unique(), "from": source, "to": target}
        args["amount"] = 1 + client.chance.below(10)

        async def transfer(t: AsyncTransaction) -> dict[str, int] | None:
            return await _transfer(t, client, args)

        await client.transact("transfer", args, transfer)

    async def final(self, client: Client) -> bool:
        async def journal() -> dict[str, object]:
            rows = client.table.rows(prefix=_JOURNAL)
            return {item.key.decode()[1:]: json.loads(item.value) async for item in rows}

        if not await self._read(client, "final read"):
            return False
        return await client.read("final journal", None, journal)

    async def _read(self, client: Client, f: str) -> bool:
        how = client.chance.pick(("multi_get", "scan", "transaction", "snapshot"))

        async def call() -> dict[str, int]:
            match how:
                case "multi_get":
                    rows = await client.table.multi_get(self._accounts)
                    found = dict(zip(self._accounts, rows, strict=True))
                    return {k: int(row.value) for k, row in found.items() if row}
                case "scan":
                    page = await client.table.scan(prefix="a")
                case "transaction":
                    t = await client.db.transaction(isolation=client.isolation)
                    page = await t.table(NAMESPACE, client.table_name).scan(prefix="a")
                    await t.commit()
                case _:
                    half = f"a{len(self._accounts) // 2}"
                    async with client.db.snapshot(owner="kvorum verify") as snapshot:
                        table = snapshot.table(NAMESPACE, client.table_name)
                        first = await table.scan(prefix="a", end=half)
                        page = await table.scan(start=half, end="b")
                    page.items[:0] = first.items
            return {item.key.decode(): int(item.value) for item in page.items}

        return await client.read(f, {"how": how}, call)


async def _transfer(
    t: AsyncTransaction, client: Client, args: dict[str, Any]
) -> dict[str, int] | None:
    table = t.table(NAMESPACE, client.table_name)
    read = table.lock if client.isolation == READ_COMMITTED else table.get
    rows = {name: await read(name) for name in sorted((args["from"], args["to"]))}
    have, had = (int(row.value) if row else 0 for row in (rows[args["from"]], rows[args["to"]]))
    amount = args["amount"]
    if have < amount:
        return None
    await table.put(args["from"], str(have - amount))
    await table.put(args["to"], str(had + amount))
    entry = [args["from"], args["to"], amount]
    await table.put(f"{_JOURNAL}{args['id']}", json.dumps(entry))
    return {"from": have - amount, "to": had + amount}
