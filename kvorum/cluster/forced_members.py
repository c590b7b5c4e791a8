"""What an operator forces at this node, from before it is done until the members table has it.

    meta "forced"   sealed like a row of procedures/master/map/audit.py; absent when nothing waits

Durable before the members are forced: that nobody knows afterwards who gave up which nodes, and
why, must not happen, not over a crash either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kv.base.errors import KvorumError
from kv.storage.engine import Engine
from procedures.master.map.audit import Forced, put_forced
from txn.client import TxnClient
from txn.transaction import Transaction

log = logging.getLogger(__name__)

_KEY: Final = b"forced"
_AGAIN_S: Final = 1.0


class Audit:
    """One per node; `run` is its loop."""

    def __init__(
        self,
        state: Engine,
        txn: TxnClient,
        in_thread: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._state, self._txn, self._in_thread = state, txn, in_thread
        self._kept = asyncio.Event()
        self._kept.set()  # look once: a start before this one may have left something

    async def keep(self, forced: Forced) -> None:
        """Durable when it returns. What is still kept from the last time goes to the log alone if
        the members table could not be written in between.
        """
        if (before := self._waiting()) is not None:
            log.critical("another action is not in the members table yet: %s", before)
        batch = self._state.batch()
        batch.put(_KEY, forced.encode(_KEY), self._state.family("meta"))
        self._state.write(batch)
        await self._in_thread(self._state.sync)
        self._kept.set()

    def _waiting(self) -> Forced | None:
        record = self._state.getter("meta")(_KEY)
        return None if record is None else Forced.decode(_KEY, record)

    async def run(self) -> None:
        """Tell the members table, as often as it takes, until cancelled."""
        while True:
            await self._kept.wait()
            self._kept.clear()
            while (forced := self._waiting()) is not None:
                try:
                    await self._tell(forced)
                except KvorumError as error:
                    log.info("the members table does not know what was forced yet: %s", error)
                    await asyncio.sleep(_AGAIN_S)

    async def _tell(self, forced: Forced) -> None:
        async def write(t: Transaction) -> None:
            put_forced(t, forced)

        await self._txn.run(write)
        if self._waiting() != forced:
            return
        batch = self._state.batch()
        batch.delete(_KEY, self._state.family("meta"))
        self._state.write(batch)
