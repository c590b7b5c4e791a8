"""How a listening socket is closed. For every server of the product, whatever it speaks."""

from __future__ import annotations

import asyncio
from typing import Final

_A_TIMER_S: Final = 0.001


async def stop_listening(listener: asyncio.Server) -> None:
    """Take no more connections; those that were taken live on.

    asyncio takes a connection in one pass of its loop and gives it to its protocol in the next. One
    whose listener is closed in between belongs to nobody: it stays open until the garbage is
    collected (`Server._attach` of Python 3.11 fails; python/cpython#109564). Who was woken by a
    timer runs behind those of the pass before and ahead of what this pass takes: there is none.
    """
    await asyncio.sleep(_A_TIMER_S)
    listener.close()
