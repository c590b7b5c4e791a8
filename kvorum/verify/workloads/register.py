"""Single keys, read and written in every way there is: each key must be one linearizable register.

    read    {"key"}                → value or null                      info: version
    write   {"key", "value"}       → null (value null: a delete)        info: version
    cas     {"key", "old", "new"}  → true if it was done, false if the value was another one

Every value is written at most once, so a value says which write it is from; compare-and-set names
the version of the value that its client read last. A key is left after some operations: the
checker's search grows with the length of one key's history.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar

from kv.base.errors import ConditionFailed, KvorumError
from kvorum.api.model import Put, Record
from kvorum.sdk.tables import AsyncTransaction
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload


class Register(Workload):
    name: ClassVar[str] = "register"
    about: ClassVar[str] = "single keys read, written and compared: linearizable per key"
    splits: ClassVar = ("k1", "k2", "k3")

    def __init__(self, *, keys: int = 4, operations_per_key: int = 200) -> None:
        super().__init__()
        self._keys = [self._new_key(i) for i in range(keys)]
        self._used = [0] * keys
        self._per_key = operations_per_key
        self._seen: dict[tuple[int, str], tuple[str | None, int]] = {}
        """What a client (by number) read last from a key: value and version."""
        self._left: list[str] = []

    def _new_key(self, slot: int) -> str:
        return f"k{slot}-{self.unique()}"

    def _key(self, client: Client) -> str:
        slot = client.chance.below(len(self._keys))
        self._used[slot] += 1
        if self._used[slot] > self._per_key:
            self._left.append(self._keys[slot])
            self._keys[slot], self._used[slot] = self._new_key(slot), 1
        return self._keys[slot]

    async def step(self, client: Client) -> None:
        key, roll = self._key(client), client.chance.rng.random()
        if roll < 0.45:
            await self._read(client, "read", key)
        elif roll < 0.75:
            await self._write(client, key)
        else:
            await self._compare(client, key)

    async def final(self, client: Client) -> bool:
        for key in [*self._left, *self._keys]:
            if not await self._read(client, "final read", key):
                return False
        return True

    # ------------------------------------------------------------------------------ operations

    async def _read(self, client: Client, f: str, key: str) -> bool:
        how = client.chance.pick((_get, _multi_get, _scan, _transaction_get, _get_now))
        op = client.invoke(f, {"key": key})
        try:
            found = await how(client, key)
        except KvorumError as e:
            client.failed(op, e, how=how.__name__)
            return False
        value, version = (found.value.decode(), found.version) if found else (None, 0)
        client.ok(op, value, version=version, how=how.__name__)
        self._seen[client.number, key] = (value, version)
        return True

    async def _write(self, client: Client, key: str) -> None:
        if client.chance.happens(0.1):
            await client.write(
                "write", {"key": key, "value": None}, lambda: client.table.delete(key)
            )
            return
        value = str(self.unique())
        args = {"key": key, "value": value}
        match client.chance.below(4):
            case 0:
                ops = [Put(NAMESPACE, client.table_name, key, value)]
                await client.write("write", args, lambda: client.db.batch(ops))
            case 1:

                async def blind(t: AsyncTransaction) -> None:
                    await t.table(NAMESPACE, client.table_name).put(key, value)

                await client.transact("write", args, blind)
            case _:
                await client.write("write", args, lambda: client.table.put(key, value))

    async def _compare(self, client: Client, key: str) -> None:
        old, version = self._seen.get((client.number, key), (None, 0))
        deletes = old is not None and client.chance.happens(0.1)
        new = None if deletes else str(self.unique())
        op = client.invoke("cas", {"key": key, "old": old, "new": new})
        try:
            done = await _compare_and_set(client, key, version, new)
        except ConditionFailed as e:
            client.ok(op, False, version=e.details.get("version"))
        except KvorumError as e:
            client.refused(op, e)
        else:
            client.ok(op, True, version=done)
            self._seen[client.number, key] = (new, 0 if new is None else done)  # absent is 0


def _compare_and_set(client: Client, key: str, version: int, new: str | None) -> Awaitable[int]:
    table = client.table
    if new is None:
        return table.delete(key, if_version=version)
    if not version:
        return table.put(key, new, if_absent=True)
    return table.put(key, new, if_version=version)


async def _get(client: Client, key: str) -> Record | None:
    return await client.table.get(key)


async def _multi_get(client: Client, key: str) -> Record | None:
    return (await client.table.multi_get([key]))[0]


async def _scan(client: Client, key: str) -> Record | None:
    page = await client.table.scan(start=key, end=key + "\0")
    return Record(page.items[0].value, page.items[0].version) if page.items else None


async def _transaction_get(client: Client, key: str) -> Record | None:
    async with client.db.transaction() as t:
        return await t.table(NAMESPACE, client.table_name).get(key)


async def _get_now(client: Client, key: str) -> Record | None:
    """At a timestamp that is fresh: everything acknowledged before is below it."""
    return await client.table.get(key, at=await client.db.timestamp())
