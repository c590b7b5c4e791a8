"""Procedures and helpers of the tests of backups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kvorum
from kvorum.transfer.backup import all_tables, lock_names
from kvorum.transfer.targets import uri_of


@kvorum.procedure("backup.pipeline", locks=lambda args: [kvorum.exclusive(args["resource"])])
class Pipeline:
    """Counts, waits for a signal, counts again."""

    @kvorum.step(first=True)
    async def before(self, ctx: Any) -> Any:
        await _count(ctx, "before")
        return ctx.until_signal("go", then="after")

    @kvorum.step
    async def after(self, ctx: Any) -> Any:
        if await ctx.receive("go") is None:
            return ctx.until_signal("go", then="after")
        await _count(ctx, "after")
        return kvorum.done({"token": str(ctx.fence(ctx.args["resource"]))})


async def _count(ctx: Any, name: str) -> None:
    counts = ctx.txn.table("default", "counts")
    key = f"{ctx.args['name']}.{name}"
    found = await counts.get(key)
    await counts.put(key, str(int(found.value) + 1 if found else 1))


async def backup(db: Any, target: Path | str, **more: Any) -> dict[str, Any]:
    """By the node, into a directory or at a URI."""
    locks = lock_names(await all_tables(db._backend.txn))
    args = {"target": uri_of(str(target)), "locks": locks, **more}
    return dict(await db.wait(await db.submit("kvorum.backup", args), timeout_ms=60_000))


async def restore(db: Any, source: Path | str, **more: Any) -> dict[str, Any]:
    """As `kvorum restore` does: once more if it is told to."""
    while True:
        id = await db.submit("kvorum.restore", {"source": uri_of(str(source)), **more})
        try:
            return dict(await db.wait(id, timeout_ms=60_000))
        except kvorum.KvorumError as error:
            if error.code != "RESTORE_AGAIN":
                raise
