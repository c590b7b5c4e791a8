"""What the leader of the meta partition does beside serving it: it runs the procedures.

    leadership gained ──▶ prepare (the catalog's first rows) ──▶ resume ──▶ door open
    leadership lost   ──▶ door shut at once; whoever waits there hears who leads now
                          steps under way are cancelled; the next leader resumes them

Every reign has an executor of its own. That the one before may not have ended yet harms nothing:
each commit of a step is fenced by its record's version (procedures/engine/executor.py), and a
deposed leader's partition takes no commit anyway.

Elsewhere PROC_* and the Spark sink's commit answer NotLeader with the master's address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kv.base.errors import Busy, KvorumError, NotLeader, Unavailable
from kv.base.node_methods import Handler
from kv.base.rights import Action
from kv.base.verbs import VERBS
from kv.server.connection_rights import Rights
from kv.server.dispatcher import STOPPING, Context
from kv.server.dispatcher import Handler as Answers
from procedures.engine.executor import Executor
from procedures.engine.lock_procedure import LockService
from procedures.engine.records import Record
from procedures.engine.service import ProcedureService
from procedures.engine.submission import Submission
from procedures.pools import service as pools
from procedures.verbs import (
    LOCK_BEAT,
    LOCK_END,
    PROC_ABORT,
    PROC_ACK,
    PROC_GET,
    PROC_LIST,
    PROC_SUBMIT,
    WORK_POLL,
)

log = logging.getLogger(__name__)

_RETRY_S: Final = 0.05
_AGAIN: Final = frozenset({"retry", "reroute", "restart_txn", "unknown_outcome"})
_METHODS: Final = (
    PROC_SUBMIT,
    PROC_GET,
    PROC_LIST,
    PROC_ACK,
    PROC_ABORT,
    LOCK_BEAT,
    LOCK_END,
    *pools.METHODS,
)
_STARTING_MS: Final = 20
Check = Callable[[Rights, Executor, int, list[object]], Awaitable[None] | None]
"""None: there is nothing to be asked."""


class Master:
    """See the module. `role` whenever leadership changes; `run` is its life, `close` ends it."""

    def __init__(
        self,
        *,
        prepare: Callable[[], Awaitable[object]],
        executor: Callable[[], Executor],
        service: Callable[[Executor], ProcedureService],
        not_leader: Callable[[str], NotLeader],
        locks: Callable[[Executor], LockService] | None = None,
        check: Check = lambda _rights, _executor, _method, _args: None,
    ) -> None:
        """`executor` makes one for a reign; `not_leader(what)` says who leads instead; `check`
        whether somebody with such rights may.
        """
        self.executor: Executor | None = None
        self.reigns = 0
        self.failed: asyncio.Future[KvorumError] = asyncio.get_running_loop().create_future()
        self._prepare, self._make, self._service = prepare, executor, service
        self._not_leader = not_leader
        self._lock_service, self._check = locks, check
        self._leading = False
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._door: dict[int, Handler] = {}
        self._reign: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    # -------------------------------------------------------------------------------- the door

    def register(self, method: int, handler: Handler) -> None:
        """procedures.engine.service.Methods: what the service of this reign answers."""
        self._door[method] = handler

    def serve(self, register: Callable[[int, Answers], None]) -> None:
        """Answer PROC_* at a dispatcher for good: through whatever door is open."""
        for method in _METHODS:
            register(method, self._handler(method))

    def _handler(self, method: int) -> Answers:
        def handle(caller: Context, args: list[object]) -> Awaitable[list[object]] | list[object]:
            handler = self._door.get(method)
            if handler is None:
                raise self.refusal()
            if (rights := caller.rights) is None:
                return handler(caller, args)
            asking = self._check(rights, self.current(), method, args)
            if asking is None and method != WORK_POLL:
                return handler(caller, args)
            return self._allowed(asking, handler, caller, args)

        return handle

    async def _allowed(
        self, asking: Awaitable[None] | None, handler: Handler, caller: Context, args: list[object]
    ) -> list[object]:
        """What it answers, if that is asked for with a right. What only tells is asked for again
        before it tells, where rights have changed since: it may have waited long.
        """
        if asking is not None:
            await asking
        method, before = caller.method, caller.rights
        answer = handler(caller, args)
        if isinstance(answer, list):
            return answer
        found = await answer
        rights = caller.rights
        tells = method == WORK_POLL or VERBS[method].right(args) is Action.READ
        if tells and rights is not None and rights is not before:
            rights.check([caller.rid, method, 0, *args])
            if (again := self._check(rights, self.current(), method, args)) is not None:
                await again
        return found

    def refusal(self) -> KvorumError:
        """Why no procedure can be asked for here now."""
        if self._stopping.is_set():
            return Unavailable("the procedure engine of this node is stopping", code=STOPPING)
        if self._leading:
            return Busy(
                "this node has just become the master and resumes the procedures; ask again",
                details={"what": "master", "retry_after_ms": _STARTING_MS},
            )
        return self._not_leader("procedures run at the leader of the meta partition")

    def current(self) -> Executor:
        """The executor of this reign. Raises NotLeader, Busy."""
        if self.executor is None:
            raise self.refusal()
        return self.executor

    # What the Spark sink needs of an executor, of whichever reign.

    async def submit(self, sub: Submission) -> int:
        return await self.current().submit(sub)

    async def wait(self, id: int, wait_ms: int) -> Record:
        return await self.current().wait(id, wait_ms)

    async def acknowledge(self, id: int) -> None:
        await self.current().acknowledge(id)

    # -------------------------------------------------------------------------------- reigning

    def role(self, *, leader: bool) -> None:
        """The meta partition's role at this node changed."""
        if leader == self._leading:
            return
        self._leading = leader
        if not leader:
            self._shut()
            if self._reign is not None:
                reign, self._reign = self._reign, None
                self._ending.add(reign)
                reign.cancel()
        self._changed.set()

    async def run(self) -> None:
        """Reign whenever this node leads, until `close`. An error that no repetition fixes is left
        in `failed`.
        """
        while not self._stopping.is_set():
            if self._leading and self._reign is None:
                self._reign = asyncio.get_running_loop().create_task(self._rule(), name="master")
                self._reign.add_done_callback(self._ended)
            await self._changed.wait()
            self._changed.clear()

    def _ended(self, reign: asyncio.Task[None]) -> None:
        self._ending.discard(reign)
        if self._reign is reign:
            self._reign = None
            self._changed.set()
        error = None if reign.cancelled() else reign.exception()
        if error is not None and not self.failed.done():
            self.failed.set_result(_as_ours(error))

    async def _rule(self) -> None:
        """One reign, begun as often as it takes."""
        while True:
            try:
                await self._serve()
                return
            except KvorumError as error:
                if error.disposition not in _AGAIN:
                    raise
                log.warning("the procedures were not resumed: %s; trying again", error)
            await asyncio.sleep(_RETRY_S)

    async def _serve(self) -> None:
        await self._prepare()
        async with self._make() as executor:
            self._open(executor)
            try:
                await self._stopping.wait()
            finally:
                if self.executor is executor:  # else a later reign has begun
                    self._shut()

    def _open(self, executor: Executor) -> None:
        self.reigns += 1
        self._service(executor).register(self)
        if self._lock_service is not None:
            self._lock_service(executor).register(self)
        if executor.crew is not None:
            pools.register(executor, self)
        self.executor = executor
        log.info("this node is the master: %d procedures go on", len(executor.live()))

    def _shut(self) -> None:
        self._door.clear()
        self.executor = None

    def renew(self) -> None:
        """Begin the reign anew, if there is one: what is in the store by then is taken in, all
        locks before anything runs. As at a change of the master, steps under way are run again.
        """
        if self._reign is None or not self._leading:
            return
        self._shut()
        reign, self._reign = self._reign, None
        self._ending.add(reign)
        reign.cancel()
        self._changed.set()

    async def close(self) -> None:
        """End the reign in order: steps under way may end (limits.PROCEDURE_STOP_MS)."""
        self._stopping.set()
        self._changed.set()
        tasks = [*self._ending, *([self._reign] if self._reign is not None else [])]
        if tasks:
            await asyncio.wait(tasks)


def _as_ours(error: BaseException) -> KvorumError:
    if isinstance(error, KvorumError):
        return error
    wrapped = KvorumError(f"a bug ended the master: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
