"""Operations at workers: processes of users, which nobody can call. They ask by themselves, once a
beat, what the master wants of them, and say what became of it (BUS_REPORTS).

    @kvorum.operation("reload-prices")
    class Reload:
        async def do(self, job): …                    one phase
        async def stage(self, job) / commit(self, job)   two phases
        async def undo(self, job): …                  what either left, whole or half

    children([("kvorum.bus_one_phase", {"kind": "reload-prices", "targets": {"pool": "shop"}})], …)

A worker says which kinds it knows when it enters its pool, and is a target of the pool as long as
it is there. One that is gone (its lease is over, and it has asked for nothing for BUS_LEASE_MS) has
nothing left that could be committed or taken back: targets keep nothing over a restart. Whoever
takes its name before that is asked anew.

Left out: pushes; an order takes up to a beat to arrive.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError
from kv.base.node_methods import Nodes
from kv.base.ports import Timers
from procedures.bus.handlers import Handler, Hands
from procedures.bus.messages import Order, Report, read_orders
from procedures.bus.targets import worker_target
from procedures.engine.submission import checked_text
from procedures.verbs import BUS_REPORTS

log = logging.getLogger(__name__)

T = TypeVar("T")
_METHODS = ("do", "stage", "commit", "undo")
_declared: dict[str, type] = {}


def operation(kind: str) -> Callable[[type[T]], type[T]]:
    """Let the workers of a module carry out operations of this kind; see the module. Raises
    InvalidArgument: no such name, or no such class.
    """
    checked_text("the kind of an operation", kind, limits.NAME_CHARS_MAX)

    def declare(cls: type[T]) -> type[T]:
        there = [name for name in _METHODS if inspect.iscoroutinefunction(getattr(cls, name, None))]
        if "do" not in there and not {"stage", "commit"} <= set(there):
            raise InvalidArgument(
                f"operation {kind}: {cls.__qualname__} needs `async def do(self, job)`, or `stage` "
                "and `commit`"
            )
        other = _declared.get(kind)
        if other is not None and _origin(other) != _origin(cls):
            raise InvalidArgument(f"operation {kind}: {_origin(other)} has this name already")
        _declared[kind] = cls
        return cls

    return declare


def handlers_in(modules: Iterable[str]) -> dict[str, Handler]:
    """What these modules declare, ready to be used."""
    wanted = set(modules)
    found: dict[str, Handler] = {}
    for kind, cls in sorted(_declared.items()):
        if cls.__module__ in wanted:
            found[kind] = type(cls.__name__, (cls, Handler), {"__doc__": cls.__doc__})()
    return found


def _origin(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class WorkerBus:
    """A worker as a target. `run` until it is cancelled."""

    def __init__(
        self, name: str, handlers: Mapping[str, Handler], nodes: Nodes, timers: Timers
    ) -> None:
        self._target, self._nodes = worker_target(name), nodes
        self.hands = Hands(handlers, timers, self._tell)

    async def run(self) -> None:
        """Ask and answer. What is under way at the end is asked for again, of another one."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hands.run())
            group.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            try:
                self.hands.beaten(await self._tell(self.hands.beat()))
            except KvorumError as error:
                log.debug("the master was not asked for operations: %s", error)
            await asyncio.sleep(limits.BEAT_MS / 1000)

    async def _tell(self, reports: Sequence[Report]) -> Sequence[Order]:
        rows = [list(report) for report in reports]
        (orders,) = await self._nodes.call_node(
            BUS_REPORTS, self._target, rows, budget_ms=limits.BUS_PUSH_MS
        )
        return read_orders(orders)
