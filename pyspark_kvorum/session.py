"""One process's connection to the cluster, for Spark's blocking callbacks.

Spark calls us in short-lived Python workers (planner, tasks, commit), so a session owns a private
event loop that runs only inside `run`. Everything it does is retried until a definite answer or
`timeoutMs`: a node that is being restarted costs a query time, not its life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgpack

from kv.base.adapters import LoopTimers, SystemClock, SystemRng
from kv.base.errors import (
    DeadlineExceeded,
    KvorumError,
    NotFound,
    Unavailable,
    UnknownOutcome,
)
from kv.base.tls import tls_of
from kv.base.wire_row import WireRow
from kv.client.calls import NO_PARTITION, UNREACHABLE
from kv.client.client import KvClient, connect
from kv.client.replicas import Replicas
from procedures.verbs import PROC_CONTROL
from pyspark_kvorum.options import Options
from sqlproxy.catalog import catalog
from sqlproxy.catalog.visible_catalog import RemoteCatalog
from sqlproxy.rows.schema import Table
from tso.client import remote_tso
from txn.client import TxnClient

T = TypeVar("T")
_TURNS: Final = 4  # of the loop, until a request that was begun is in the socket
_PAUSE_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)


_REACH: Final = (
    "Spark's driver and executors must reach every node at the address that it advertises: `kvorum"
    " node list` shows them, `kvorum start --advertise HOST` sets one"
)


def _advised(error: KvorumError | OSError) -> KvorumError:
    """With what to do if nodes cannot be reached; the addresses that were tried are in it."""
    if isinstance(error, OSError):
        return Unavailable(f"cannot reach the cluster ({error}). {_REACH}", code=UNREACHABLE)
    if error.code != UNREACHABLE and not isinstance(error, DeadlineExceeded):
        return error
    dot = "" if error.message.endswith((".", "?")) else "."
    return type(error)(f"{error.message}{dot} {_REACH}", code=error.code, details=error.details)


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class Session:
    """Use as a context manager. `table` is looked up at entry unless given (tasks get the
    driver's). `late`: it connects, and looks the table up, when that is needed.
    """

    def __init__(self, options: Options, table: Table | None = None, *, late: bool = False) -> None:
        self.options = options
        self._late = late
        self._table = table
        self._loop = asyncio.new_event_loop()
        self._timers = LoopTimers(self._loop)
        self._rng = SystemRng()
        self._kv: KvClient | None = None
        self._txn: TxnClient | None = None

    @property
    def table(self) -> Table:
        assert self._table is not None
        return self._table

    @property
    def txn(self) -> TxnClient:
        assert self._txn is not None
        return self._txn

    @property
    def kv(self) -> KvClient:
        assert self._kv is not None
        return self._kv

    def __enter__(self) -> Self:
        if self._late:
            return self
        try:
            self.run(self.opened())
            self.run(self.described())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._close())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def run(self, work: Coroutine[object, None, T]) -> T:
        """Drive `work` to its end on the session's loop."""
        return self._loop.run_until_complete(work)

    def begin(self, work: Coroutine[object, None, T]) -> asyncio.Task[T]:
        """Start `work` and let it send what it asks for; it goes on whenever something is run."""
        task = self._loop.create_task(work)
        self.run(_turns())
        return task

    async def opened(self) -> None:
        """Connected. Not for two at once."""
        if self._kv is not None:
            return
        self._kv = await self.definite(self._connect)
        # The same connection: a session that ships bulk data needs no timestamp meanwhile.
        tso = remote_tso(self._kv, self._timers, self._rng)
        self._txn = TxnClient(self._kv, tso, SystemClock(), self._rng, self._timers)

    def read_past_near(self, here: tuple[str, str, str]) -> None:
        """Let the replicas answer reads of the past that are nearest to this datacenter, rack and
        server; "": not said.
        """
        self.txn.read_past_by(Replicas.near(here, self.kv, self._timers, self._rng))

    async def described(self) -> Table:
        """The table, looked up if it is not known yet."""
        if self._table is None:
            await self.opened()
            self._table = await self.definite(self._lookup)
        return self._table

    def now_ms(self) -> int:
        """By this machine's clock."""
        return SystemClock().now_ms()

    async def _connect(self) -> KvClient:
        return await connect(
            self.options.addresses,
            timers=self._timers,
            rng=self._rng,
            tls=tls_of(self.options.tls_dir, self.options.ca),
            credential=self.options.credential,
        )

    async def _lookup(self) -> Table:
        return await catalog.lookup(
            RemoteCatalog(self.kv), self.options.namespace, self.options.table
        )

    async def _close(self) -> None:
        if self._txn is not None:
            await self._txn.close()
        if self._kv is not None:
            self._kv.close()

    async def definite(self, ask: Any) -> Any:
        """`await ask()`, again while the answer is "retry" or unknown, until `timeoutMs`. `ask`
        must be idempotent. Raises NotFound (TABLE_GONE) when the table went meanwhile.
        """
        end = self._loop.time() + self.options.timeout_ms / 1000
        for attempt in range(1_000_000):
            try:
                answer: Awaitable[object] = ask()
                return await answer
            except (KvorumError, OSError) as e:
                again = isinstance(e, OSError | UnknownOutcome) or e.disposition in (
                    "retry",
                    "reroute",
                )
                if isinstance(e, KvorumError) and e.code == NO_PARTITION:
                    await self._is_there(e)
                if not again:
                    raise
                if self._loop.time() >= end:
                    if (advised := _advised(e)) is not e:
                        raise advised from e
                    raise
            await asyncio.sleep(_PAUSE_S[min(attempt, len(_PAUSE_S) - 1)])
        raise AssertionError("unreachable")

    async def _is_there(self, error: KvorumError) -> None:
        """No node knows a partition of the table: is it moving, or was the table dropped?"""
        if self._table is None or self._txn is None:
            return
        try:
            found = await catalog.find_by_id(RemoteCatalog(self.kv), self._table.id)
        except (KvorumError, OSError):
            return
        if found is None:
            raise NotFound(
                f"table {self._table.path} was dropped, or emptied by TRUNCATE, since this began:"
                " load() it again",
                code="TABLE_GONE",
            ) from error

    async def ask(self, method: int, *args: object) -> WireRow:
        """A node method whose repetition is harmless, until a definite answer."""
        await self.opened()
        return list(await self.definite(lambda: self.kv.call_node(method, *args)))

    async def control(self, what: str, args: dict[str, object]) -> WireRow:
        """Something about a running procedure (procedures/pools/control.py), the same way."""
        packed = msgpack.packb(args, use_bin_type=True)
        return await self.ask(PROC_CONTROL, what, packed)
