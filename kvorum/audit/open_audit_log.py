"""Opens the log of requests of a process, with what ships it, as the node's settings say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kv.base.config import NodeConfig
from kv.base.ids import TableId
from kv.base.limits import MiB
from kvorum.audit.audit_log import InThread, StampLog
from kvorum.audit.ship_audit_log import Shipper, sending
from sqlproxy.catalog import catalog
from sqlproxy.catalog.catalog import Reader

_NAMES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`path` "": there is to be none. What a node tells its SQL processes, too."""

    path: str
    show_keys: bool
    file_mib: int
    files: int
    ship: str

    @classmethod
    def of(cls, config: NodeConfig, suffix: str = "") -> LogSettings:
        """`suffix`: of a process beside the node: two cannot write one file."""
        path, ship = config.audit_log, config.audit_ship or ""
        sizes = config.audit_file_mib, config.audit_files
        return cls(f"{path}{suffix}" if path else "", config.audit_keys, *sizes, ship)


async def opened(
    stack: contextlib.AsyncExitStack,
    settings: LogSettings,
    *,
    node: int,
    now_ms: Callable[[], int],
    in_thread: InThread,
    reader: Reader,
    in_background: Callable[[Coroutine[object, None, None]], object],
) -> StampLog:
    """Open until the stack is left. `reader`: of names of tables. Raises why it cannot."""
    shipper = None
    if settings.ship:
        shipper = Shipper(sending(settings.ship), in_thread, lambda *lost: log.gap(*lost))
        in_background(shipper.run())
    log = StampLog(
        Path(settings.path),
        node=node,
        show_keys=settings.show_keys,
        file_bytes=settings.file_mib * MiB,
        files=settings.files,
        now_ms=now_ms,
        in_thread=in_thread,
        names=_Names(reader),
        ship=None if shipper is None else shipper.add,
    )
    log.open()
    stack.push_async_callback(log.close)
    in_background(log.run())
    return log


class _Names:
    """Names of tables by id: they do not change, and what was dropped keeps its name."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: dict[int, str] = {}

    async def __call__(self, ids: Iterable[int]) -> Mapping[int, str]:
        known = self._known
        for id_ in ids:
            if id_ not in known:
                table = await catalog.find_by_id(self._reader, TableId(id_))
                known[id_] = str(id_) if table is None else f"{table.namespace}.{table.name}"
                if len(known) > _NAMES_MAX:
                    del known[next(iter(known))]
        return known
