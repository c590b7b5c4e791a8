"""Points: a copy of every node's data, all or none, as a two-phase operation (N9).

    kvorum.checkpoint        {name, timeout_ms?}   → {name, targets}
    kvorum.drop_checkpoint   {name}                → {targets: {node: whether it was there}}
    kvorum.list_checkpoints  {}                    → {points: [{name, at_ms, age_ms, nodes, whole}]}

Staged: each node waits until it has applied everything that was acknowledged before the point was
asked for, then copies its state database beside its data (hard links where possible). Committed:
the copy gets its name. A point that some node could not stage exists nowhere.

So every copy holds every write that was acknowledged before `checkpoint` was submitted, and some
that came later. It is no instant of the whole cluster, and no backup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kv.base.errors import InvalidArgument
from procedures.bus import targets
from procedures.bus.phases import OnePhase, TwoPhase
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Lock, exclusive
from procedures.engine.registry import procedure

CHECKPOINT = "checkpoint"
DROP_CHECKPOINT = "drop_checkpoint"
LIST_CHECKPOINTS = "list_checkpoints"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}\Z")


def checked_name(args: object) -> str:
    """The name of a point; it is a directory's. Raises InvalidArgument."""
    name = args.get("name") if isinstance(args, dict) else None
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidArgument(
            "the name of a point has 1 to 64 letters, digits and _ . -, and begins with a letter "
            f"or a digit, got {name!r:.80}"
        )
    return name


def _locks(args: object) -> list[Lock]:
    """Two operations about one name: one after the other."""
    return [exclusive(f"point/{checked_name(args)}")]


@procedure("kvorum.checkpoint", locks=_locks)
class Checkpoint(TwoPhase):
    """See the module."""

    kind: ClassVar[str] = CHECKPOINT

    async def wanted(self, ctx: StepContext) -> Plain:
        at_ms = ctx.state.setdefault("at_ms", ctx.now_ms)
        body = {"name": checked_name(ctx.args), "at_ms": at_ms}
        return await targets.wanted(ctx, {"nodes": "all"}, body)

    def result(self, ctx: StepContext, results: Mapping[str, object]) -> Any:
        return {"name": checked_name(ctx.args), "targets": dict(results)}


@procedure("kvorum.drop_checkpoint", locks=_locks)
class DropCheckpoint(OnePhase):
    """See the module."""

    kind: ClassVar[str] = DROP_CHECKPOINT
    leaves_nothing: ClassVar[bool] = True

    async def wanted(self, ctx: StepContext) -> Plain:
        return await targets.wanted(ctx, {"nodes": "all"}, {"name": checked_name(ctx.args)})


@procedure("kvorum.list_checkpoints")
class ListCheckpoints(OnePhase):
    """See the module."""

    kind: ClassVar[str] = LIST_CHECKPOINTS
    leaves_nothing: ClassVar[bool] = True

    async def wanted(self, ctx: StepContext) -> Plain:
        return await targets.wanted(ctx, {"nodes": "all"})

    def result(self, ctx: StepContext, results: Mapping[str, Any]) -> object:
        """`whole`: every node that answered has it."""
        found: dict[str, Plain] = {}
        for target in sorted(results):
            for name, at_ms in results[target]:
                point = found.setdefault(name, {"name": name, "at_ms": at_ms, "nodes": []})
                point["nodes"].append(targets.node_of(target))
        for point in found.values():
            point["age_ms"] = max(0, ctx.now_ms - point["at_ms"])
            point["whole"] = len(point["nodes"]) == len(results)
        return {"points": sorted(found.values(), key=lambda p: (p["at_ms"], p["name"]))}
