"""Waiting for what nobody tells: a look again and again, until it holds. Real time, on a machine
that may be busy with other tests: whoever waits in vain waits a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

_SECONDS_MAX = 60.0
_LOOK_S = 0.01


def poll(holds: Callable[[], Any], seconds: float = _SECONDS_MAX) -> Any:
    """What it says, once it says something."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(_LOOK_S)
    return found


async def until(holds: Callable[[], Any], seconds: float = _SECONDS_MAX) -> Any:
    """The same on a loop."""
    async with asyncio.timeout(seconds):
        while not (found := holds()):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(_LOOK_S)
    return found
