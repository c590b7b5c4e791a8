"""Hurts one procedure at one chosen moment, in a whole simulated cluster.

A *write* is every change of the procedures' store that concerns the watched procedure or one of its
children: its submission, every step, every undo, its being forgotten. They are numbered from 1 in
the order in which they happen. At the chosen one a node loses its power, before the write or just
after it: the master that writes, or another node. It comes back a second later.

Or one step of it, or of a child, is hurt once: it fails before it did anything (a failure, or an
abort, between two steps); or its work is done and then not committed, so that it runs again (J12).

Both are put between the engine and its store and methods from outside; the product does not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from kv.base.errors import KvorumError
from procedures.engine import core
from procedures.engine.kv_store import KvStore
from procedures.engine.registry import StepDef
from procedures.engine.runner import Failed, Runner, TryAgain
from procedures.engine.store import Fenced

if TYPE_CHECKING:
    from tests.harness.world import Place

BACK_S = 1.0


class Hurt(Enum):
    """What is done to the procedure."""

    NOTHING = "nothing"
    MASTER_BEFORE = "the master dies before write"
    MASTER_AFTER = "the master dies after write"
    OTHER_BEFORE = "another node dies before write"
    OTHER_AFTER = "another node dies after write"
    FAILS = "the step fails"
    TWICE = "the step runs twice"


@dataclass(frozen=True, slots=True)
class Case:
    """One way to hurt a procedure: `at` a write, or a `step` ("Type.step")."""

    hurt: Hurt = Hurt.NOTHING
    at: int = 0
    step: str = ""

    def __str__(self) -> str:
        return f"{self.hurt.value} {self.step or self.at or ''}".strip()


@dataclass
class Saboteur:
    """Watches the next procedure named `name`. `steps` is what ran of it, in order."""

    place: Place
    name: str
    case: Case
    ids: set[int] = field(default_factory=set)
    writes: int = 0
    steps: list[str] = field(default_factory=list)
    done: bool = False
    reviving: list[asyncio.Task[None]] = field(default_factory=list)

    def concerns(self, record: Any) -> bool:
        if (not self.ids and record.name == self.name) or record.parent in self.ids:
            self.ids.add(record.id)
        return record.id in self.ids

    async def write(self, store: KvStore, concerned: bool, inner: Any) -> Any:
        """`inner` is the write itself."""
        if not concerned or self.done:
            return await inner()
        self.writes += 1
        case = self.case
        if self.writes != case.at:
            return await inner()
        match case.hurt:
            case Hurt.MASTER_BEFORE:
                await self._fall(store)
            case Hurt.MASTER_AFTER:
                await self._tried(inner)
                await self._fall(store)
            case Hurt.OTHER_BEFORE:
                await self._lose(self.place.victim(self._number(store)))
            case Hurt.OTHER_AFTER:
                found = await self._tried(inner)
                await self._lose(self.place.victim(self._number(store)))
                return found
        return await inner()

    async def _tried(self, inner: Any) -> Any:
        """There is nothing after a write that is refused: of a step whose procedure was aborted."""
        try:
            return await inner()
        except Fenced:
            self.done = True
            raise

    def _number(self, store: KvStore) -> int:
        for number, node in self.place.cluster.nodes.items():
            if node.store.txn is store._txn:
                return number
        return 0  # of a node that is dead already

    async def _fall(self, store: KvStore) -> None:
        """The node under our feet is gone: this call never returns."""
        await self._lose(self._number(store))
        await asyncio.Future()

    async def _lose(self, number: int) -> None:
        self.done = True
        if number not in self.place.cluster.nodes:
            return
        gone = asyncio.Event()

        async def lose() -> None:
            await self.place.cluster.crash(number)
            gone.set()
            await asyncio.sleep(BACK_S)
            await self.place.cluster.start(number)

        self.reviving.append(asyncio.get_running_loop().create_task(lose()))
        if self.case.hurt in (Hurt.OTHER_BEFORE, Hurt.OTHER_AFTER):
            await gone.wait()

    async def run(self, runner: Runner, method: Any, make: Any, ctx: Any, inner: Any) -> Any:
        """`inner` runs the method."""
        if ctx.id not in self.ids or not isinstance(method, StepDef):
            return await inner(runner, method, make, ctx)
        step = f"{ctx.name}.{method.name}"
        self.steps.append(step)
        if self.done or step != self.case.step:
            return await inner(runner, method, make, ctx)
        self.done = True
        if self.case.hurt is Hurt.FAILS:
            return Failed(core.failure("INJECTED", "this step was made to fail"))
        await inner(runner, method, make, ctx)
        return TryAgain(core.failure("INJECTED", "what it wrote was not committed"))

    async def healed(self) -> None:
        for task in self.reviving:
            await task


@contextmanager
def sabotaged(place: Place, name: str, case: Case) -> Iterator[Saboteur]:
    """Within it the next procedure of this name is watched, and hurt."""
    it = Saboteur(place, name, case)
    insert, update, remove, run = KvStore.insert, KvStore.update, KvStore.remove, Runner.run

    async def inserting(self: KvStore, record: Any, reign: int = 0, ops: Any = ()) -> Any:
        return await it.write(self, it.concerns(record), lambda: insert(self, record, reign, ops))

    async def updating(self: KvStore, version: int, change: Any, **kw: Any) -> Any:
        told = [change.record, *change.created, *(other.record for _, other in change.others)]
        concerned = True in [it.concerns(record) for record in told]
        return await it.write(self, concerned, lambda: update(self, version, change, **kw))

    async def removing(self: KvStore, stored: Any) -> Any:
        concerned = any(one.record.id in it.ids for one in stored)
        return await it.write(self, concerned, lambda: remove(self, stored))

    async def running(self: Runner, method: Any, make: Any, ctx: Any) -> Any:
        return await it.run(self, method, make, ctx, run)

    KvStore.insert, KvStore.update = inserting, updating  # type: ignore[method-assign,assignment]
    KvStore.remove, Runner.run = removing, running  # type: ignore[method-assign]
    try:
        yield it
    finally:
        KvStore.insert, KvStore.update = insert, update  # type: ignore[method-assign]
        KvStore.remove, Runner.run = remove, run  # type: ignore[method-assign]


def error_code(error: BaseException) -> str:
    return error.code if isinstance(error, KvorumError) else type(error).__name__
