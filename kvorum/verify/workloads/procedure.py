"""Procedures whose every step adds 1 to a counter: at the end each counter equals their steps.

submit         {"nonce"}  → the procedure's id
await          {"id"}     → its result
final submit   {"nonce"}  → the id again, of those whose first answer is unknown
final await    {"id"}     → the result of every one
final read     null       → {nonce: counter}
"""

from __future__ import annotations

from typing import ClassVar

from kv.base.errors import DeadlineExceeded, KvorumError, NotFound, Refused
from kvorum.sdk.database import AsyncDatabase
from kvorum.verify.client import NAMESPACE, Client
from kvorum.verify.counting import NAME, STEPS
from kvorum.verify.workloads.base import Workload

_WAIT_MS = 2_000
_WAIT_MS_FINAL = 10_000


def not_known(name: str, workload: Workload) -> Refused:
    """What to do where nodes do not know a workload's procedure."""
    return Refused(
        f"the nodes do not know the procedure {name}: start them with "
        f"--procedure-modules {','.join(workload.modules)}, or leave the workload "
        f"{workload.name} out",
        code="NO_MODULE",
    )


class Procedures(Workload):
    name: ClassVar[str] = "procedure"
    about: ClassVar[str] = "procedures whose steps add 1 to a counter: final = steps"
    splits: ClassVar = ("n3", "n6")
    modules: ClassVar = ("kvorum.verify.counting",)

    def __init__(self) -> None:
        super().__init__()
        self._ids: dict[str, int] = {}
        self._unknown: list[str] = []
        self._checked: set[int] = set()

    def parameters(self) -> dict[str, object]:
        return {"steps": STEPS}

    async def prepare(self, db: AsyncDatabase, table: str) -> None:
        """Raises Refused (NO_MODULE) where nodes do not know the procedure."""
        await super().prepare(db, table)
        args = {"ns": NAMESPACE, "table": table, "key": "probe"}
        try:
            await db.submit(NAME, args, nonce=f"{table}/probe")
        except NotFound as e:
            raise not_known(NAME, self) from e

    async def step(self, client: Client) -> None:
        # The last digit first, so that counters lie in all partitions.
        nonce = f"n{str(self.unique())[::-1]}"
        number = await self._submit(client, "submit", nonce)
        if number is not None and client.chance.happens(0.5):
            await self._await(client, "await", number, _WAIT_MS)

    async def final(self, client: Client) -> bool:
        for nonce in list(self._unknown):
            if await self._submit(client, "final submit", nonce) is None:
                return False
            self._unknown.remove(nonce)
        for number in self._ids.values():
            if number not in self._checked:
                if not await self._await(client, "final await", number, _WAIT_MS_FINAL):
                    return False
                self._checked.add(number)

        async def counters() -> dict[str, int]:
            rows = client.table.rows(prefix="n")
            return {item.key.decode(): int(item.value) async for item in rows}

        return await client.read("final read", None, counters)

    async def _submit(self, client: Client, f: str, nonce: str) -> int | None:
        """The nonce makes it one procedure however often it is submitted."""
        args = {"ns": NAMESPACE, "table": client.table_name, "key": nonce}
        scope = f"{client.table_name}/{nonce}"
        op = client.invoke(f, {"nonce": nonce})
        try:
            number = await client.db.submit(NAME, args, nonce=scope)
        except KvorumError as e:
            client.refused(op, e)
            if f == "submit" and client.recorder.history.events[-1].type == "unknown":
                self._unknown.append(nonce)
            return None
        client.ok(op, number)
        self._ids[nonce] = number
        return number

    async def _await(self, client: Client, f: str, number: int, wait_ms: int) -> bool:
        op = client.invoke(f, {"id": number})
        try:
            result = await client.db.wait(number, timeout_ms=wait_ms)
        except DeadlineExceeded as e:
            client.failed(op, e)
            return False
        except KvorumError as e:
            # It may have ended in an error: the checker hears it; no later answer is waited for.
            client.failed(op, e)
            return e.disposition == "no"
        client.ok(op, result)
        return True
