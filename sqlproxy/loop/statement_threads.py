"""What a long statement costs before it runs (to be read, bound, planned, rendered for DuckDB) is
spent in a thread, so that the loop serves others meanwhile. Short ones stay on the loop: a thread
costs more than they do.

What runs here is pure, so a client that is gone leaves nothing behind; it ends at its next break.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from kv.base.limits import SQL_ASIDE_CHARS, SQL_ASIDE_STACK_BYTES
from sqlproxy.loop.fair_threads import FairThreads
from sqlproxy.values.breaks import no_break, set_breaks

T = TypeVar("T")
# The parser recurses as deep as on the main thread's stack, whose size is none of a thread's.
_threads: Final = FairThreads(2, "statements", SQL_ASIDE_STACK_BYTES)


def is_long(text: str) -> bool:
    """Whether a statement is worth a thread."""
    return len(text) > SQL_ASIDE_CHARS


async def aside(text: str, call: Callable[..., T], *args: object) -> T:
    """`call(*args)`, which costs what the statement `text` is long. Raises what it raises."""
    if not is_long(text):
        return call(*args)
    ended = threading.Event()
    future = _threads.submit(_until, ended, call, *args)
    try:
        return await asyncio.wrap_future(future)
    finally:
        ended.set()


class _Ended(Exception):
    """Nobody waits for the result any more."""


def _until(ended: threading.Event, call: Callable[..., T], *args: object) -> T:
    def take() -> None:
        if ended.is_set():
            raise _Ended

    set_breaks(take)
    try:
        return call(*args)
    finally:
        set_breaks(no_break)
