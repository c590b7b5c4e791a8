"""Operations as procedures: what all of them share, the generic two, and how they look.

    OnePhase   pick ─▶ gather ⟲ ─▶ done                                         undo: take_back
    TwoPhase   pick ─▶ gather ⟲ ─▶ decide ─▶ settle ⟲ ─▶ done                   undo: take_back
                                    └ point of no return

    pick       who is asked for what, into the record; nothing is sent yet
    gather     sends what the record says, then waits for answers or for time; records the answers;
               asks the map again where the partitions are. New targets go into the record first
    decide     everybody has staged: from here on the operation is committed, whatever happens
    settle     sends COMMIT until everybody has done it
    take_back  a target failed, time ran out, or somebody aborts: UNDO to everybody who was ever
               asked, until all have done it. What was staged at a target that cannot be reached
               ends with its lease (receiver.py), so that is not waited for longer; nor where there
               is nothing to take back (`leaves_nothing`). But what such a target may have *done*
               in one phase is waited for, until it is back or decommissioned

What the record holds (`ctx.state["bus"]`, core.py) is all that a new master needs. Its first
`gather` opens the operation again, and those that have answered since are asked once more.

Kinds of operations derive from these: they say `kind` and `wanted`. Others use
`kvorum.bus_one_phase` and `kvorum.bus_two_phase` as children.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from kv.base import limits
from kv.base.errors import Busy, InvalidArgument
from procedures.bus import core, targets
from procedures.bus.core import AllDone, Broken, Expired, Operation, Waiting
from procedures.bus.courier import Courier, event_of
from procedures.bus.messages import Verb
from procedures.engine import plain_data
from procedures.engine.context import StepContext
from procedures.engine.plain_data import Plain
from procedures.engine.procedure import Lock, Outcome, State, done, fail, shared, suspend
from procedures.engine.procedure import next as go_on
from procedures.engine.records import Record
from procedures.engine.registry import Registry, procedure, step, undo

_SHOWN: Final = 20  # targets in an error
_DROPPED_S: Final = (limits.BUS_LEASE_MS + limits.BUS_LEASE_MARGIN_MS) / 1000
"""After which a target that could not be reached has taken it back by itself."""


class OnePhase(ABC):
    """See the module. `kind`: the handler at the targets."""

    kind: ClassVar[str] = ""
    verb: ClassVar[Verb] = Verb.DO
    leaves_nothing: ClassVar[bool] = False
    """Whether a target that hears no more of it has nothing of it left after its lease."""

    def __init__(self, courier: Courier) -> None:
        self.courier = courier

    # ------------------------------------------------------------------ what kinds say

    @abstractmethod
    async def wanted(self, ctx: StepContext) -> Plain:
        """What each target is asked now. Raises what the procedure is to fail with."""

    def kind_of(self, ctx: StepContext) -> str:
        return self.kind

    def timeout_ms(self, ctx: StepContext) -> int:
        """After which it fails and is taken back."""
        return checked_timeout(ctx.args)

    def result(self, ctx: StepContext, results: Mapping[str, object]) -> Any:
        """What the procedure returns, from what the targets answered."""
        return {"targets": dict(results)}

    # ------------------------------------------------------------------ steps

    @step(first=True, undo="take_back")
    async def pick(self, ctx: StepContext) -> Outcome:
        op = core.begin(
            *(str(ctx.id), self.kind_of(ctx), self.verb, await self.wanted(ctx)),
            deadline_ms=ctx.now_ms + self.timeout_ms(ctx),
        )
        ctx.state["bus"] = core.to_plain(op)
        return go_on("gather")

    @step
    async def gather(self, ctx: StepContext) -> Outcome:
        before = core.from_plain(ctx.state["bus"])
        op = self._heard(ctx, core.retarget(before, await self.wanted(ctx)))
        match core.verdict(op, ctx.now_ms):
            case AllDone(results):
                return self._complete(ctx, op, results)
            case Broken(target, error):
                message = f"{target} failed: {error['message']}"
                return fail(error["code"], message, {"target": target, **_answers_of(op, ctx)})
            case Expired(missing):
                late = ", ".join(missing[:_SHOWN])
                return fail(
                    "BUS_TIMEOUT",
                    f"{len(missing)} of {len(op.targets)} targets did not answer in time: {late}",
                    _answers_of(op, ctx),
                )
            case Waiting():
                return self._sent(ctx, before, op)

    @undo
    async def take_back(self, ctx: StepContext) -> None:
        """Raises Busy: somebody has not done it yet."""
        op = core.turned(core.from_plain(ctx.state["bus"]), Verb.UNDO)
        op = core.without(op, await targets.gone(ctx, self.courier.silent(op.targets)))
        self.courier.open(op)
        wait_s = limits.BUS_UNDO_WAIT_MS / 1000
        if self.courier.age_s(op.id) < 2 * wait_s:
            await self.courier.wait(op.id, wait_s)  # later it only looks: others want a turn
        op = self._heard(ctx, op)
        missing = op.waiting()
        dropped = self.leaves_nothing and self.courier.age_s(op.id) >= _DROPPED_S
        if missing and not dropped:
            raise Busy(
                f"{len(missing)} targets have not taken back their part yet: "
                f"{', '.join(missing[:_SHOWN])}; a node that will not come back must be "
                "decommissioned",
                details={"what": "bus"},
            )
        self.courier.close(op.id)

    # ------------------------------------------------------------------ shared

    def _complete(self, ctx: StepContext, op: Operation, results: Mapping[str, object]) -> Outcome:
        self.courier.close(op.id)
        return done(self.result(ctx, results))

    def _heard(self, ctx: StepContext, op: Operation) -> Operation:
        """With the answers that no record has yet; into the record of this step."""
        for target, report in self.courier.answers(op.id):
            op = core.heard(op, target, report)
        attempts = ctx.state.setdefault("attempts", {})
        for target, line in self.courier.shown(op.id).items():
            attempts[target] = line["attempts"]
        ctx.state["bus"] = core.to_plain(op)
        return op

    def _sent(self, ctx: StepContext, before: Operation, op: Operation) -> Outcome:
        """What is asked now; the record first."""
        return go_on("gather") if _asks_more(before, op) else self._wait(ctx, op, "gather")

    def _wait(self, ctx: StepContext, op: Operation, then: str) -> Outcome:
        """Send what the record says, and wait."""
        self.courier.open(op)
        looks = ctx.state["looks"] = ctx.state.get("looks", 0) + 1 if ctx.wake == "timeout" else 0
        look_ms = min(limits.BUS_LOOK_MS_FIRST << min(looks, 16), limits.BUS_LOOK_MS_MAX)
        if op.deadline_ms:
            look_ms = max(1, min(look_ms, op.deadline_ms - ctx.now_ms))
        return suspend(then=then, event=event_of(op.id), timeout_ms=look_ms)


class TwoPhase(OnePhase):
    """See the module."""

    verb: ClassVar[Verb] = Verb.STAGE
    leaves_nothing: ClassVar[bool] = True

    def _complete(self, ctx: StepContext, op: Operation, results: Mapping[str, object]) -> Outcome:
        return go_on("decide")

    @step(point_of_no_return=True)
    async def decide(self, ctx: StepContext) -> Outcome:
        op = core.turned(core.from_plain(ctx.state["bus"]), Verb.COMMIT)
        ctx.state["bus"] = core.to_plain(op)
        return go_on("settle")

    @step
    async def settle(self, ctx: StepContext) -> Outcome:
        before = core.from_plain(ctx.state["bus"])
        op = self._heard(
            ctx, core.without(before, await targets.gone(ctx, self.courier.silent(before.targets)))
        )
        match core.verdict(op, ctx.now_ms):
            case AllDone(results):
                self.courier.close(op.id)
                return done(self.result(ctx, results))
            case _:
                return self._wait(ctx, op, "settle")


class _Generic(OnePhase):
    """{kind, targets, body?, timeout_ms?}"""

    async def wanted(self, ctx: StepContext) -> Plain:
        args = ctx.args
        if not isinstance(args, dict) or not isinstance(args.get("body", {}), dict):
            raise InvalidArgument(
                f"{ctx.name} wants {{kind, targets, body?, timeout_ms?}}, got {args!r:.120}"
            )
        return await targets.wanted(ctx, args.get("targets"), args.get("body"))

    def kind_of(self, ctx: StepContext) -> str:
        kind = ctx.args.get("kind") if isinstance(ctx.args, dict) else None
        if not isinstance(kind, str) or not 0 < len(kind) <= limits.NAME_CHARS_MAX:
            raise InvalidArgument(f"kind must name an operation of the targets, got {kind!r:.80}")
        return kind


def table_lock(args: object) -> list[Lock]:
    """The table that an operation is about, shared: DDL on it waits, and this for DDL. Who has
    other arguments has no lock; whether they are right is seen in the first step.
    """
    match args:
        case {"targets": {"table": {"namespace": str(namespace), "name": str(name)}}}:
            return [shared(f"table/{namespace}/{name}")]
        case {"namespace": str(namespace), "table": str(name)}:
            return [shared(f"table/{namespace}/{name}")]
        case _:
            return []


@procedure("kvorum.bus_one_phase", locks=table_lock)
class BusOnePhase(_Generic):
    """Any one-phase operation that the targets know."""


@procedure("kvorum.bus_two_phase", locks=table_lock)
class BusTwoPhase(_Generic, TwoPhase):
    """Any two-phase operation that the targets know."""


def register(
    registry: Registry, courier: Courier, classes: tuple[type[OnePhase], ...] = ()
) -> None:
    """Serve the generic procedures and these."""
    every: list[type[OnePhase]] = [BusOnePhase, BusTwoPhase, *classes]
    for cls in every:
        registry.add(cls, make=_maker(cls, courier))


def _maker(cls: type[OnePhase], courier: Courier) -> Callable[[], object]:
    return lambda: cls(courier)


def checked_timeout(args: object) -> int:
    """`timeout_ms` of the arguments, or the default. Raises InvalidArgument."""
    given = args.get("timeout_ms") if isinstance(args, dict) else None
    if given is None:
        return limits.BUS_TIMEOUT_MS_DEFAULT
    if type(given) is not int or not 0 < given <= limits.PROCEDURE_TIMEOUT_MS_MAX:
        raise InvalidArgument(
            f"timeout_ms must be 1 to {limits.PROCEDURE_TIMEOUT_MS_MAX}, got {given!r:.40}"
        )
    return given


def shown(record: Record, courier: Courier | None) -> Plain:
    """What people see of an operation: {"targets": {name: {state, attempts, …}}, "phase"}; {} for a
    procedure that is none.
    """
    state = plain_data.decode(record.data)
    if not isinstance(state, dict) or not isinstance(state.get("bus"), dict):
        return {}
    op = core.from_plain(state["bus"])
    live = {} if courier is None or record.ended else courier.shown(op.id)
    if record.state is State.ROLLING_BACK and courier is not None:  # its record says what was done
        op = core.turned(op, Verb.UNDO)
        for name, report in courier.answers(op.id):
            op = core.heard(op, name, report)
    attempts = state.get("attempts", {})
    found: dict[str, dict[str, object]] = {}
    for name, asked in op.targets.items():
        row: dict[str, object] = {"state": asked.state, "attempts": attempts.get(name, 0)}
        if asked.error is not None:
            row["last_error"] = f"{asked.error['code']}: {asked.error['message']}"
        found[name] = row | live.get(name, {})
    return {"phase": op.verb.name.lower(), "targets": found}


def _asks_more(before: Operation, after: Operation) -> bool:
    """Whether somebody is asked something that the record before did not say."""
    return any(
        name not in before.targets or before.targets[name].round != asked.round
        for name, asked in after.targets.items()
    )


def _answers_of(op: Operation, ctx: StepContext) -> dict[str, object]:
    attempts = ctx.state.get("attempts", {})
    rows = {
        name: {"state": asked.state, "attempts": attempts.get(name, 0)}
        for name, asked in list(op.targets.items())[:_SHOWN]
    }
    return {"targets": rows}
