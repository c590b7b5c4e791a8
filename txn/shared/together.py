"""Tasks that stand and fall together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup that raises the first failure itself, so that callers see a KvorumError and not a
    group of them.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
