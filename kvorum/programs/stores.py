"""Several nodes on one machine, one process each: a node uses one core, a machine has more.

    kvorum start --stores N ─┬─▶ kvorum start --data DATA/store-0 --port BASE
                             ├─▶ kvorum start --data DATA/store-1 --port BASE+10 --join …
                             └─▶ …

The first store is to the cluster what a node without `--stores` would be: alone it founds one, and
where `--join` lists addresses of founders, it is the one at BASE. The others join by themselves, at
their first start, through the addresses in `--join`, or through the first store. All of them say
that they are one machine, so that a table with several replicas has them elsewhere, too
(procedures/master/map/placement.py).

This process keeps no data. It starts the stores, passes their log lines on, and tells them to stop
when it gets a signal, when one of them ends (with the reason that it gave), or when it is killed:
each store holds the end of a pipe that closes then (kvorum/programs/process.py).

Deliberately missing: starting a store again. Whatever restarts services restarts all of them, and
a store that stops by itself has a reason that a person should see.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from kv.base.config import (
    ENVIRONMENT_PREFIX,
    OPTIONS,
    PORTS_PER_NODE,
    SUPERVISED,
    NodeConfig,
    place_in,
)
from kv.base.errors import InvalidArgument, Unavailable
from procedures.engine.plain_data import Plain

_STOP_S: Final = 40.0  # a node that takes longer than its own limit hangs
_LINE_BYTES_MAX: Final = 1 << 20
_DERIVED: Final = frozenset({"data", "port", "stores"})
"""Settings of every store."""


# ------------------------------------------------------------------------------------- what to run


def configs(config: NodeConfig) -> list[NodeConfig]:
    """The settings of each store. Raises InvalidArgument for what several stores cannot be."""
    if config.witness or (config.place is not None and config.place in config.witnesses):
        raise InvalidArgument(
            "stores: a witness keeps no data, so more cores are of no use to it: start one node",
            details={"setting": "stores"},
        )
    assert config.port is not None, "the command always has ports"
    first = replace(config, stores=1, data=config.data / "store-0", audit_log=_audit(config, 0))
    join = config.join or (config.address,)
    later: list[NodeConfig] = []
    for i in range(1, config.stores):
        data, port = config.data / f"store-{i}", config.port + PORTS_PER_NODE * i
        one = replace(config, stores=1, data=data, port=port, node_id=0, join=(), witnesses=())
        one = replace(one, audit_log=_audit(config, i))
        if place_in(join, one.address) is not None:
            raise InvalidArgument(
                f"join names {one.address}, which is a later store of this machine: of a machine "
                "with several stores name the first one only",
                details={"setting": "join"},
            )
        later.append(replace(one, join=join))
    return [first, *later]


def _audit(config: NodeConfig, store: int) -> str:
    """Each process rotates a file of its own."""
    return f"{config.audit_log}.store-{store}" if config.audit_log else ""


def check_layout(data: Path, stores: int) -> None:
    """Refuse to start beside data of another number of stores. Raises InvalidArgument."""
    found = sorted(path.name for path in data.glob("store-*") if path.is_dir())
    if stores == 1 and found:
        raise InvalidArgument(
            f"{data} has the data of {len(found)} stores ({', '.join(found)}): start it with "
            f"--stores {len(found)}",
            details={"setting": "stores", "actual": 1, "expected": len(found)},
        )
    if stores > 1 and (data / "state").exists():
        raise InvalidArgument(
            f"{data} has the data of one node: to go on with several, move what is in it to "
            f"{data / 'store-0'}, which is the first of them",
            details={"setting": "stores"},
        )
    extra = [name for name in found if name not in {f"store-{i}" for i in range(stores)}]
    if stores > 1 and extra:
        raise InvalidArgument(
            f"{data} has more stores than {stores}: {', '.join(extra)} would not run, though it is "
            "a member of the cluster. Decommission its node and remove the directory, or start "
            f"with --stores {len(found)}",
            details={"setting": "stores", "actual": stores, "expected": len(found)},
        )


def command(config: NodeConfig) -> list[str]:
    """The command of one store: every setting as a flag, so that nothing else is looked at."""
    words = [sys.executable, "-m", "kvorum", "start", "--json"]
    for option in OPTIONS:
        value = getattr(config, option.name)
        derived = option.name in _DERIVED
        if (derived or value != option.default) and not option.secret and (text := _text(value)):
            words += [option.flag, text] if option.metavar else [option.flag]
    return words


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def environment(config: NodeConfig, own: Mapping[str, str]) -> dict[str, str]:
    """Of the stores: without our settings, which are flags now, but for the secret."""
    ours = {k: v for k, v in own.items() if not k.startswith(ENVIRONMENT_PREFIX)}
    ours[SUPERVISED] = "1"
    secrets = {option.variable: getattr(config, option.name) for option in OPTIONS if option.secret}
    return ours | {name: value for name, value in secrets.items() if value}


def reason(code: int | None, last_line: str) -> str:
    """Why a process ended, in one line: its last one is an error or a log record in JSON, or text
    of one that could not write JSON any more.
    """
    if code is not None and code < 0:
        return f"it was killed by signal {-code}"
    said = _read_json(last_line)
    error = said.get("error")
    if isinstance(error, dict) and {"code", "message"} <= set(error):
        return f"{error['code']}: {error['message']}"
    text = str(said.get("message") or last_line.removeprefix("kvorum: "))
    return text or f"it gave no reason (exit code {code})"


def marked(store: int, line: str) -> str:
    """A line that a store logged, with its number: in JSON as a field."""
    if line.startswith("{") and _read_json(line):
        return f'{{"store": {store}, {line[1:]}'
    return f"store {store}: {line}"


def _read_json(line: str) -> dict[str, object]:
    """The object on the line, empty if there is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# ------------------------------------------------------------------------------------- running it


@dataclass(slots=True)
class Store:
    """One of the processes."""

    number: int
    process: asyncio.subprocess.Process
    ready: bool = False
    last_line: str = ""
    """That it logged."""


class Supervisor:
    """See the module. `run` once, in a loop of its own."""

    def __init__(
        self,
        config: NodeConfig,
        on_ready: Callable[[int, dict[str, object]], object],
        log: Callable[[str], object],
    ) -> None:
        """`on_ready(number, its status)` as each store gets ready; `log` gets their lines."""
        self._config, self._on_ready, self._log = config, on_ready, log
        self._stores: list[Store] = []
        self._stop = asyncio.Event()
        self._failed: str | None = None

    async def run(self) -> None:
        """Until a signal, or until a store ends. Raises InvalidArgument, or Unavailable with the
        reason of the store that ended by itself; no store is left running.
        """
        wanted = configs(self._config)
        loop = asyncio.get_running_loop()
        for handled in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(handled, self._signalled)
        try:
            async with asyncio.TaskGroup() as group:
                for number, config in enumerate(wanted):
                    group.create_task(self._run_one(number, config))
        except BaseExceptionGroup as group:
            raise _first(group) from group
        finally:
            for store in self._stores:
                if store.process.returncode is None:
                    store.process.kill()
        if self._failed is not None:
            raise Unavailable(self._failed, code="STORE_ENDED")

    def _signalled(self) -> None:
        """A second one ends them at once, as it would end one node."""
        self._stop.set()
        self._tell(signal.SIGTERM)

    def _tell(self, number: signal.Signals) -> None:
        for store in self._stores:
            if store.process.returncode is None:
                store.process.send_signal(number)

    async def _run_one(self, number: int, config: NodeConfig) -> None:
        """One store, from its start to its end."""
        process = await asyncio.create_subprocess_exec(
            *command(config),
            env=environment(config, os.environ),
            stdin=asyncio.subprocess.PIPE,  # its end tells the store that we are gone
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
            start_new_session=True,  # Ctrl-C is passed on by us, once
        )
        store = Store(number, process)
        self._stores.append(store)
        if self._stop.is_set():
            process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(process.stdout, partial(self._said, store)))
            group.create_task(self._read(process.stderr, partial(self._logged, store)))
            group.create_task(self._end_with_others(store))
        if not self._stop.is_set():
            self._failed = f"store {number} ended: {reason(process.returncode, store.last_line)}"
            self._signalled()

    async def _read(self, lines: asyncio.StreamReader, take: Callable[[str], object]) -> None:
        while line := await lines.readline():
            take(line.decode(errors="replace").rstrip())

    def _said(self, store: Store, line: str) -> None:
        """The one line of a node that is ready; what procedures of the user print is passed on."""
        status = _read_json(line)
        if store.ready or "node" not in status:
            self._log(marked(store.number, line))
            return
        store.ready = True
        self._on_ready(store.number, status | {"store": store.number, "pid": store.process.pid})

    def _logged(self, store: Store, line: str) -> None:
        store.last_line = line
        self._log(marked(store.number, line))

    async def _end_with_others(self, store: Store) -> None:
        """Once all were asked to stop, this one has its time."""
        stopping = asyncio.get_running_loop().create_task(self._stop.wait())
        ended = asyncio.get_running_loop().create_task(store.process.wait())
        await asyncio.wait([stopping, ended], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        _, left = await asyncio.wait([ended], timeout=_STOP_S)
        if left:
            store.process.kill()
            await ended


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    """One of the errors of a group: a store that could not be started."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def run(config: NodeConfig, on_ready: Callable[[Sequence[Plain]], object]) -> None:
    """Run the stores of a machine until a signal; `on_ready` is called once, when all are ready.

    Raises InvalidArgument, Unavailable (STORE_ENDED).
    """
    check_layout(config.data, config.stores)
    status: dict[int, dict[str, object]] = {}

    def one_ready(number: int, what: dict[str, object]) -> None:
        status[number] = what
        if len(status) == config.stores:
            on_ready([status[i] for i in range(config.stores)])

    def log(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    async def main() -> None:
        await Supervisor(config, one_ready, log).run()

    asyncio.run(main())
