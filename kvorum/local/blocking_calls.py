"""Calls that block for as long as somebody else likes (a store, another database), beside the loop.

Each has a thread of its own, which the process does not wait for at its end; so many at once, and
who comes later waits for one to come back. The loop's usual threads write the log: these must not
take them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from kv.base.limits import OUTSIDE_THREADS_MAX


class Outside:
    """Of one loop."""

    def __init__(self, most: int = OUTSIDE_THREADS_MAX) -> None:
        self._places = asyncio.Semaphore(most)

    async def __call__(self, call: Callable[[], None]) -> None:
        """Raises what it raises. If whoever waits gives up, it goes on and keeps its place."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(error: BaseException | None) -> None:
            self._places.release()
            if ended.done():
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        def body() -> None:
            error: BaseException | None = None
            try:
                call()
            except BaseException as raised:  # noqa: BLE001 - whoever waits gets it
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(end, error)

        threading.Thread(target=body, name="outside", daemon=True).start()
        await ended
