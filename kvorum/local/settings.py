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

from kv.base.errors import Busy, KvorumError
from procedures.bus.settings import SETTINGS_S, known, parted, read_all, read_setting
from txn.client import TxnClient
from txn.transaction import Transaction

log = logging.getLogger(__name__)


class Settings:
    """See the module. `run` until it is cancelled."""

    def __init__(self, txn: TxnClient) -> None:
        self._txn = txn
        self._applied: dict[str, tuple[int, int]] = {}
        self._on_change: dict[str, Callable[[int], object]] = {}
        self._each: list[Callable[[str, str, int], object]] = []

    def value(self, name: str) -> int:
        """What is applied here now."""
        return self._at(name)[1]

    def version(self, name: str) -> int:
        """0: it was never set, as far as this node knows."""
        return self._at(name)[0]

    def _at(self, name: str) -> tuple[int, int]:
        return self._applied.get(name, (0, known(name).default))

    def follow(self, name: str, changed: Callable[[int], object]) -> None:
        """Call with every new value."""
        self._on_change[name] = changed

    def follow_limits(self, changed: Callable[[str, str, int], object]) -> None:
        """Call with every new limit of users and namespaces: which, of whom (empty: all), value."""
        self._each.append(changed)

    async def read(self, name: str, *, at_least: int = 0) -> tuple[int, int]:
        """Read the row and apply it. Raises Busy: what was read is older than this version."""

        async def look(t: Transaction) -> tuple[int, int]:
            return await read_setting(t, name)

        version, value = await self._txn.run(look)
        self._apply(name, version, value)
        if version < at_least:
            raise Busy(f"setting {name} has version {version} here", details={"what": "setting"})
        return self._at(name)

    async def run(self) -> None:
        """Read all of them now and then: what the bus could not tell."""
        while True:
            try:
                await self._read_all()
            except KvorumError as error:
                log.info("the settings were not read: %s; again later", error)
            await asyncio.sleep(SETTINGS_S)

    async def _read_all(self) -> None:
        for name, (version, value) in (await self._txn.run(read_all)).items():
            self._apply(name, version, value)

    def _apply(self, name: str, version: int, value: int) -> None:
        if version > self.version(name):
            self._applied[name] = version, value
            setting, whose = parted(name)
            if (changed := self._on_change.get(name)) is not None:
                changed(value)
            if known(setting).each:
                for each in self._each:
                    each(setting, whose, value)
