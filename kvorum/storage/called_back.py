"""Awaiting what answers by a callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kv.base.errors import KvorumError

Done = Callable[[KvorumError | None], None]


async def called_back(begin: Callable[[Done], object]) -> None:
    """Until what `begin` gets is called. Raises the error that it is called with."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: KvorumError | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    begin(done)
    await answer
