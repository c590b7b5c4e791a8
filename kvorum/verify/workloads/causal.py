"""Causes before effects: what a session has seen, or was told of, it never misses afterwards.

    write   {"key", "value"}          → null                               info: version
    derive  {"keys", "key", "value"}  → {key: [value, version] or null}, as it read them before it
                                        wrote, in one transaction          info: version
    read    {"keys"}                  → {key: [value, version] or null}, all at one snapshot
    send    null                      → a session token
    resume  {"from"}                  → null: the session goes on after the token of that operation
    final   {"key"}                   → [value, version] or null, the newest

A session is a process of the history. Every value is written once, so it says which write it is
from. It holds with an oracle, too, which promises more (real-time order; workloads/longfork.py).
"""

from __future__ import annotations

from typing import ClassVar

from kv.base.config import CLOCKS
from kv.base.errors import KvorumError
from kvorum.api.model import Record
from kvorum.sdk.tables import AsyncTransaction
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.workloads.base import Workload

KEYS = ("a1", "a2", "f1", "f2", "m1", "m2", "t1", "t2")
"""Two of each partition."""
_MAIL_MAX = 8


class Causal(Workload):
    name: ClassVar[str] = "causal"
    clocks: ClassVar = CLOCKS
    about: ClassVar[str] = "sessions, and those they hand tokens to, see causes before effects"
    splits: ClassVar = ("f", "m", "t")

    def __init__(self) -> None:
        super().__init__()
        self._mail: list[tuple[int, str]] = []
        """Tokens that were sent: by which operation."""

    async def step(self, client: Client) -> None:
        roll = client.chance.rng.random()
        if roll < 0.25:
            await self._write(client)
        elif roll < 0.4:
            await self._derive(client)
        elif roll < 0.5:
            await self._send(client)
        elif roll < 0.6 and self._mail:
            await self._resume(client)
        else:
            keys = client.chance.some(KEYS, 1 + client.chance.below(len(KEYS)))
            await client.read("read", {"keys": keys}, lambda: _read(client, keys))

    async def final(self, client: Client) -> bool:
        for key in KEYS:

            async def newest(key: str = key) -> list[object] | None:
                return _shown(await client.table.get(key))

            if not await client.read("final", {"key": key}, newest):
                return False
        return True

    async def _write(self, client: Client) -> None:
        key, value = client.chance.pick(KEYS), str(self.unique())
        args = {"key": key, "value": value}
        await client.write("write", args, lambda: client.table.put(key, value))

    async def _derive(self, client: Client) -> None:
        keys, value = client.chance.some(KEYS, 3), str(self.unique())

        async def body(t: AsyncTransaction) -> dict[str, list[object] | None]:
            table = t.table(NAMESPACE, client.table_name)
            found = {key: _shown(await table.get(key)) for key in keys}
            await table.put(keys[0], value)
            return found

        await client.transact("derive", {"keys": keys, "key": keys[0], "value": value}, body)

    async def _send(self, client: Client) -> None:
        op = client.invoke("send")
        try:
            token = await client.db.session_token()
        except KvorumError as e:
            client.failed(op, e)
            return
        client.ok(op, token)
        self._mail = [*self._mail, (op, token)][-_MAIL_MAX:]

    async def _resume(self, client: Client) -> None:
        sent, token = client.chance.pick(self._mail)
        op = client.invoke("resume", {"from": sent})
        try:
            await client.db.resume_session(token)
        except KvorumError as e:
            client.failed(op, e)
        else:
            client.ok(op)


async def _read(client: Client, keys: list[str]) -> dict[str, list[object] | None]:
    if client.chance.happens(0.5):
        rows = await client.table.multi_get(keys)
        return {key: _shown(row) for key, row in zip(keys, rows, strict=True)}
    # One after the other: the snapshot must hold them together.
    t = await client.db.transaction(isolation=client.isolation)
    table = t.table(NAMESPACE, client.table_name)
    found = {key: _shown(await table.get(key)) for key in keys}
    await t.commit()
    return found


def _shown(row: Record | None) -> list[object] | None:
    return None if row is None else [row.value.decode(), row.version]
