"""The settings of the cluster as this node applies them: values in memory, read from their rows
(procedures/bus/settings.py).

    at the start, every SETTINGS_S, and whenever the bus says that one has changed

A value counts only if its version is higher than the one that is applied: readings that overtake
each other change nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from kv.base.errors import Busy, KvorumError
from procedures.bus.settings import KNOWN, SETTINGS_S, read_setting
from txn.client import TxnClient

log = logging.getLogger(__name__)


class Settings:
    """See the module. `run` until it is cancelled."""

    def __init__(self, txn: TxnClient) -> None:
        self._txn = txn
        self._applied: dict[str, tuple[int, int]] = {
            name: (0, known.default) for name, known in KNOWN.items()
        }
        self._told: dict[str, Callable[[int], object]] = {}

    def value(self, name: str) -> int:
        """What is applied here now."""
        return self._applied[name][1]

    def version(self, name: str) -> int:
        """0: it was never set, as far as this node knows."""
        return self._applied[name][0]

    def follow(self, name: str, changed: Callable[[int], object]) -> None:
        """Call with every new value."""
        self._told[name] = changed

    async def read(self, name: str, *, at_least: int = 0) -> tuple[int, int]:
        """Read the row and apply it. Raises Busy: what was read is older than this version."""

        async def look(t: Any) -> tuple[int, int]:
            return await read_setting(t, name)

        version, value = await self._txn.run(look)
        self._apply(name, version, value)
        if version < at_least:
            raise Busy(f"setting {name} has version {version} here", details={"what": "setting"})
        return self._applied[name]

    async def run(self) -> None:
        """Read all of them now and then: what the bus could not tell."""
        while True:
            try:
                await self._read_all()
            except KvorumError as error:
                log.info("the settings were not read: %s; again later", error)
            await asyncio.sleep(SETTINGS_S)

    async def _read_all(self) -> None:
        async def look(t: Any) -> dict[str, tuple[int, int]]:
            return {name: await read_setting(t, name) for name in KNOWN}

        for name, (version, value) in (await self._txn.run(look)).items():
            self._apply(name, version, value)

    def _apply(self, name: str, version: int, value: int) -> None:
        if version > self._applied[name][0]:
            self._applied[name] = version, value
            if (changed := self._told.get(name)) is not None:
                changed(value)
