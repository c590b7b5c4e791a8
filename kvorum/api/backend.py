"""What a database is made of, whichever way it is reached: the two protocols that all surfaces
share.

`NativeBackend` (kvorum/native/native.py) speaks to the transaction client: embedded in a node, or
through the native SDK connection. `HttpBackend` (kvorum/http/client/http_backend.py) speaks HTTP.
`AsyncDatabase` and the synchronous facade sit on either, and the HTTP server itself sits on the
native one, so that one test-suite holds for all of them (A5, U8).

Arguments are checked before they come here (kvorum.api.model): keys and values are bytes within
their limits. Everything raises the errors of kv.base.errors. `at` 0 is the newest acknowledged
state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kv.base.errors import KvorumError
from kvorum.api.model import (
    BatchOp,
    NamespaceInfo,
    Page,
    ProcedureInfo,
    Record,
    ScanSpec,
    SnapshotInfo,
    TableInfo,
    TableKey,
    TableSpec,
    TxnState,
)
from kvorum.api.sink_attempts import SinkAttempt
from kvorum.api.watching import Watcher, WatchSpec
from procedures.engine.plain_data import Plain
from txn.commit.trace import CommitTrace
from txn.shared.wait_terms import USUAL, Terms


class Session(Protocol):
    """An open transaction: reads at `start_ts`, own writes visible, nothing visible to others
    before `commit`.
    """

    @property
    def id(self) -> int: ...

    @property
    def start_ts(self) -> int: ...

    async def get(self, ns: str, table: str, key: bytes) -> Record | None:
        """The version of a record that this transaction wrote itself is 0 until it commits."""
        ...

    async def multi_get(self, keys: Sequence[TableKey]) -> list[Record | None]:
        """`get` of many `(namespace, table, key)`, in their order."""
        ...

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page: ...

    async def put(
        self,
        ns: str,
        table: str,
        key: bytes,
        value: bytes,
        cond: int | None = None,
        ttl_ms: int = 0,
    ) -> None:
        """`cond` is checked at the commit, against the store before the transaction. Raises
        ConditionFailed when it cannot hold: the transaction itself wrote the key.
        """
        ...

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None = None) -> None: ...

    async def lock(
        self, ns: str, table: str, key: bytes, wait: str = "wait", strength: str = "update"
    ) -> Record | None:
        """Keep others from writing the key until the end, and `get` it as it is by then. `wait`,
        `strength`: of LOCK_WAITS and LOCK_STRENGTHS in kvorum.api.model. Raises KeyLocked: somebody
        else has it; WriteConflict: it is newer than the snapshot; TxnAborted: a deadlock.
        """
        ...

    async def commit(self) -> int:
        """The commit version. Raises RestartTxn (nothing was written) or UnknownOutcome (ask
        `status`).
        """
        ...

    async def abort(self) -> None: ...

    async def heartbeat(self) -> None: ...

    def trace(self) -> CommitTrace | None:
        """What its commit cost, where this process coordinated it."""
        ...


class Backend(Protocol):
    """One way to reach the data."""

    async def get(self, ns: str, table: str, key: bytes, at: int) -> Record | None: ...

    async def put(
        self, ns: str, table: str, key: bytes, value: bytes, cond: int | None, ttl_ms: int
    ) -> int: ...

    async def delete(self, ns: str, table: str, key: bytes, cond: int | None) -> int: ...

    async def scan(self, ns: str, table: str, spec: ScanSpec) -> Page: ...

    async def multi_get(
        self, keys: Sequence[TableKey], at: int
    ) -> tuple[list[Record | None], int]: ...

    async def batch(self, ops: Sequence[BatchOp]) -> int: ...

    async def watch(self, ns: str, table: str, spec: WatchSpec) -> Watcher:
        """Raises NotFound. Other errors are raised by the first `next`."""
        ...

    async def multi_write(self, ops: Sequence[BatchOp]) -> list[int | KvorumError]: ...

    async def begin(
        self, *, ttl_ms: int, isolation: str, terms: Terms = USUAL, recorded: bool = False
    ) -> Session:
        """`terms`: how it waits for others. `recorded`: its end is known to `status` after a
        restart, too, whatever it did; costs a write where it wrote nothing. A transaction over HTTP
        always is.
        """
        ...

    async def status(self, txn: int) -> TxnState: ...

    async def abort_transaction(self, txn: int) -> None:
        """End a transaction of anybody's; fine if it was aborted already. Raises Refused
        (TXN_COMMITTED), NotFound (TXN_NOT_FOUND): nothing can be known of it.
        """
        ...

    def causal_token(self) -> int:
        """With hybrid clocks: what another session is to be above, so that it sees all that came
        over this one (`timestamps`, above it). 0: an oracle needs none, or nothing was asked yet.
        """
        ...

    async def timestamps(self, count: int, above: int = 0) -> int:
        """The first of `count`. `above`, of one: a token; this session goes on above it. Raises
        InvalidArgument for one that this cluster has not given out.
        """
        ...

    async def open_snapshot(self, at: int, owner: str, ttl_ms: int, user: str = "") -> SnapshotInfo:
        """Hold the versions that a reader of `at` sees (0 = now). Raises SnapshotTooOld,
        InvalidArgument (the future), Busy. `user`: for whom a node asks; here and below.
        """
        ...

    async def renew_snapshot(self, id: int, user: str = "") -> None:
        """Raises NotFound when it has ended, Forbidden if it is not this user's."""
        ...

    async def release_snapshot(self, id: int, user: str = "") -> bool:
        """Whether it was held."""
        ...

    async def snapshots(self) -> list[SnapshotInfo]: ...

    async def beat_lock(self, id: int, wait_ms: int) -> tuple[str, int]:
        """The holder of a lock, or who waits for it, is alive: its state and fencing token; see
        procedures/engine/lock_procedure.py. Raises NotFound (PROCEDURE_NOT_FOUND).
        """
        ...

    async def end_lock(self, id: int) -> None: ...

    async def namespaces(self) -> list[NamespaceInfo]: ...

    async def create_namespace(self, name: str, change: dict[str, object] | None = None) -> None:
        """`change`: replicas, tags."""
        ...

    async def alter_namespace(
        self, name: str, what: str, change: dict[str, object] | None = None
    ) -> NamespaceInfo:
        """`what`: enable, disable, modify (`change`: replicas, tags)."""
        ...

    async def drop_namespace(self, name: str) -> None: ...

    async def tables(self, ns: str) -> list[TableInfo]: ...

    async def create_table(self, ns: str, name: str, spec: TableSpec) -> TableInfo: ...

    async def drop_table(self, ns: str, name: str) -> None: ...

    async def alter_table(
        self, ns: str, name: str, what: str, change: dict[str, object] | None = None
    ) -> TableInfo:
        """`what`: enable, disable, modify (`change`: replicas, tags, add_columns,
        partition_bytes).
        """
        ...

    async def submit(
        self, name: str, args: object, nonce: str | None, options: dict[str, object] | None = None
    ) -> int:
        """`options`: queue, priority, delay_ms, at_ms, pool."""
        ...

    async def control(self, what: str, args: Plain) -> Any:
        """Signals, schedules, limits, surgery: procedures/pools/control.py has the list."""
        ...

    async def access(self, what: str, args: dict[str, object]) -> Any:
        """Users, tokens and grants: kvorum/native/access.py has the list."""
        ...

    async def procedure(self, procedure: int, wait_ms: int) -> ProcedureInfo: ...

    async def procedures(
        self, *, state: str | None, owner: str | None, name: str | None, before: int | None = None
    ) -> list[ProcedureInfo]:
        """The newest; with `before`, of those that are older than that one."""
        ...

    async def procedure_page(
        self,
        *,
        state: str | None,
        owner: str | None,
        name: str | None,
        before: int | None,
        seen: Sequence[str] | None = None,
    ) -> tuple[list[ProcedureInfo], int]:
        """Some of these, as many as one answer has, and `before` of the next answer; 0: there are
        no more. `seen`: the types that who asks may see, as grants write them; None: all that this
        backend may.
        """
        ...

    async def acknowledge(self, procedure: int) -> None: ...

    async def workers(self) -> list[Plain]:
        """Worker processes that are here, and what they run."""
        ...

    async def cluster(self) -> Plain:
        """Its id, its master, how much there is of everything, and its settings."""
        ...

    async def set_settings(self, values: dict[str, int]) -> list[Plain]:
        """Change settings of the running cluster: what became of each. Raises InvalidArgument:
        then none was changed.
        """
        ...

    async def nodes(self) -> list[Plain]: ...

    async def partitions(self) -> list[Plain]: ...

    async def hour(self, after_ms: int = 0) -> list[Plain]:
        """What each node that answers did since then, an hour at most (kvorum/storage/hour.py)."""
        ...

    async def locks(self, every: bool = False) -> Plain:
        """What is held and who waits for it, in the whole cluster
        (kvorum/storage/cluster_waits.py). `every`: a row for each key.
        """
        ...

    async def sink_attempts(
        self, after: str = "", seen: Callable[[int], bool] | None = None
    ) -> tuple[list[SinkAttempt], str]:
        """A page of what Spark's writers have staged, behind that name, and the name behind which
        there is more ("": there is none). `seen`: by its id, whether who asks sees what is staged
        for a table; None: all that this connection may.
        """
        ...

    async def close(self) -> None: ...
