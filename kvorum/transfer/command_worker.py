"""Runs a procedure of this package in the process of a command, which is a worker of a pool of its
own for as long as the command lasts.

    enter the pool ─▶ submit ─▶ steps commit through a client of this process ─▶ the end, or Ctrl-C

So a directory of this machine is written by who can see it, and yet the procedure is the cluster's:
it is listed, shows its progress, is aborted, and keeps where it stands. If this process dies, the
procedure waits for a worker of its pool; `--resume ID` is one (docs/decisions/1113).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.credentials import of_proxy
from kv.base.errors import InvalidArgument, KvorumError, NotFound, Refused
from kv.base.limits import DEADLINE_MS_DEFAULT
from kv.client.client import KvClient
from kv.client.client import connect as connect_kv
from kvorum.api.addresses import parse_url, tls_for
from kvorum.api.model import ProcedureInfo
from kvorum.api.names import TableIds
from kvorum.api.outcome import result_of
from kvorum.local.blocking_calls import Outside
from kvorum.native.native import CATALOG_TTL_S, NativeBackend
from kvorum.native.remote import connect_backend
from kvorum.transfer.backup import BACKUP_HERE, BackupHere
from kvorum.transfer.export import EXPORT_HERE, ExportHere
from kvorum.transfer.import_ import IMPORT_HERE, ImportHere
from kvorum.transfer.registering import own_names
from kvorum.transfer.restore import RESTORE_HERE, RestoreHere
from kvorum.transfer.sealing import read_key
from kvorum.transfer.services import LATER, Services
from procedures.engine import plain_data
from procedures.engine.kv_store import KvStore
from procedures.engine.records import Record, decode
from procedures.engine.registry import ProcedureType, declaration
from procedures.pools.worker import Worker
from sqlproxy.catalog.catalog import CatalogCache

Report = Callable[[ProcedureInfo], None]
_LOOK_MS: Final = 500
_AGAIN_S: Final = 0.5
_NOTHING: Final[Mapping[str, object]] = {}
_TYPES: Final[Mapping[str, type]] = {
    BACKUP_HERE: BackupHere,
    RESTORE_HERE: RestoreHere,
    EXPORT_HERE: ExportHere,
    IMPORT_HERE: ImportHere,
}


class Interrupted(Exception):
    """Ctrl-C, or SIGTERM: the procedure of this id waits."""

    def __init__(self, id: int) -> None:
        super().__init__(f"procedure {id} waits")
        self.id = id


async def run_here(
    url: str,
    name: str,
    args: Callable[[NativeBackend], Awaitable[object]],
    report: Report,
    *,
    resume: int = 0,
    same: Mapping[str, object] = _NOTHING,
    key_file: str = "",
) -> ProcedureInfo:
    """Submit the procedure, or take up an interrupted one (begun with the arguments `same`), and
    run it to its end: its record then. `args(backend)` is awaited. Raises KvorumError,
    Interrupted.
    """
    loop = asyncio.get_running_loop()
    tls, credential = tls_for(url), of_proxy(os.environ)  # a backup reads what nodes alone may
    backend = await connect_backend(addresses_of(url), DEADLINE_MS_DEFAULT, tls, credential)
    calls = await connect_kv(
        addresses_of(url),
        timers=LoopTimers(loop),
        rng=SystemRng(),
        budget_ms=DEADLINE_MS_DEFAULT,
        tls=tls,
        credential=credential,
    )
    try:
        pool = f"here-{_unique()}"
        if resume:
            pool = await _pool_of(backend, resume, name, same, key_file)
        mine: asyncio.Future[int] = loop.create_future()
        worker = _worker(backend, calls, name, pool, mine, key_file)
        working = loop.create_task(worker.run())
        try:
            await _entered(worker, working)
            id = resume or await backend.submit(name, await args(backend), None, {"pool": pool})
            mine.set_result(id)
            return await _to_the_end(backend, working, id, report)
        finally:
            mine.cancel()  # nobody waits for it, if it was not submitted
            worker.stop()
            await asyncio.wait([working])
    finally:
        calls.close()
        await backend.close()


def addresses_of(url: str) -> Sequence[tuple[str, int]]:
    """Raises InvalidArgument."""
    scheme, addresses = parse_url(url)
    if scheme != "kvorum":
        raise InvalidArgument(
            f"--connect {url}: this command needs the native port of nodes, HOST:BASE"
        )
    return addresses


def _unique() -> str:
    return f"{socket.gethostname()[:24]}-{os.getpid()}-{SystemRng().token(4).hex()}".replace(
        "/", "-"
    )


def _worker(
    backend: NativeBackend,
    calls: KvClient,
    name: str,
    pool: str,
    mine: asyncio.Future[int],
    key_file: str,
) -> Worker:
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop)
    services = Services(
        txn=lambda: backend.txn,
        backend=lambda: backend,
        in_thread=Outside(),
        timers=timers,
        own=own_names,
        mine=mine,
        key_file=key_file,
    )
    cls = _TYPES[name]
    declared: ProcedureType = replace(declaration(cls), make=lambda: cls(services))
    return Worker(
        f"here-{_unique()}",
        pool,
        calls,
        KvStore(backend.txn),
        [declared],
        TableIds(CatalogCache(backend.catalog, timers, CATALOG_TTL_S)),
        SystemClock(),
        timers,
        SystemRng(),
        slots=1,
        threads=1,
        host=socket.gethostname(),
        pid=os.getpid(),
    )


async def _pool_of(
    backend: NativeBackend, id: int, name: str, same: Mapping[str, object], key_file: str
) -> str:
    """The pool that a procedure waits for. Raises NotFound, Refused (WRONG_KEY: its step would fail
    with what it is given).
    """
    info = await backend.procedure(id, 0)
    record = await _record_of(backend, info, name, same)
    if record is None:
        raise NotFound(f"procedure {id} has ended: {info.state}", code="ENDED")
    begun = plain_data.decode(record.data).get("key", "")
    given = read_key(key_file).id if key_file else ""
    if begun != given and (begun or name == BACKUP_HERE):
        how = f"with the key {begun}: give its --key-file" if begun else "without a key: give none"
        raise Refused(f"procedure {id} was begun {how}", code="WRONG_KEY", details={"key": begun})
    return record.pool


async def _record_of(
    backend: NativeBackend, info: ProcedureInfo, name: str, same: Mapping[str, object]
) -> Record | None:
    """Of the procedure that is to be resumed; None: it has ended. Raises Refused: it is another
    one than is meant, and would write elsewhere than the command says.
    """
    id = info.id
    if info.name != name:
        raise Refused(f"procedure {id} is {info.name}, not {name}", code="OTHER_PROCEDURE")
    page, _ = await backend.control("live", {"after": id - 1})
    for row in page:
        record = decode(row, f"procedure {id}")
        if record.id != id:
            continue
        began = plain_data.decode(record.args)
        for field, wanted in same.items():
            if began.get(field) != wanted:
                raise Refused(
                    f"procedure {id} was begun with {field} {_shown(began.get(field))}, not"
                    f" {_shown(wanted)}: it goes on there, so give --resume {id} the same",
                    code="OTHER_PROCEDURE",
                )
        return record
    return None


def _shown(value: object) -> str:
    return ".".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


async def _entered(worker: Worker, working: asyncio.Task[None]) -> None:
    entered = asyncio.get_running_loop().create_task(worker.entered.wait())
    await asyncio.wait([entered, working], return_when=asyncio.FIRST_COMPLETED)
    entered.cancel()
    if working.done():
        await working


async def _to_the_end(
    backend: NativeBackend, working: asyncio.Task[None], id: int, report: Report
) -> ProcedureInfo:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        while not stop.is_set():
            if working.done():
                await working
            if (info := await _looked(backend, id, report)) is not None:
                return info
        raise Interrupted(id)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def run_there(
    url: str,
    name: str,
    args: Callable[[NativeBackend], Awaitable[object]],
    report: Report,
    *,
    resume: int = 0,
    same: Mapping[str, object] = _NOTHING,
) -> ProcedureInfo:
    """The same by the nodes: only submitted here and looked at."""
    backend = await connect_backend(addresses_of(url), DEADLINE_MS_DEFAULT, tls_for(url))
    try:
        if resume:
            await _record_of(backend, await backend.procedure(resume, 0), name, same)
        id = resume or await backend.submit(name, await args(backend), None, None)
        while True:
            if (info := await _looked(backend, id, report)) is not None:
                return info
    finally:
        await backend.close()


def ended(info: ProcedureInfo) -> object:
    """The result. Raises what it failed with."""
    return result_of(info, 0)


async def _looked(backend: NativeBackend, id: int, report: Report) -> ProcedureInfo | None:
    """One look, which `report` is called with; None: it goes on, or nobody could say."""
    try:
        info = await backend.procedure(id, _LOOK_MS)
    except KvorumError as error:
        if error.disposition not in LATER:
            raise
        await asyncio.sleep(_AGAIN_S)
        return None
    report(info)
    return info if info.finished else None
