"""kvorum.bulk {what, filter, reason, actor, options?}: one action on all procedures that fit a
filter (procedures/engine/filters.py), page after page.

A procedure, so that a new master goes on with it: what it has come to is in its state. The actions
of a page have one key and, of a type, one entry of the audit (engine/audit.py), which names them:
so one that is repeated after a crash is done, and counted, once. Those that were submitted
after it began are left alone, and so are the database's own, unless the filter names their type,
and procedures of this type. Who cannot be acted on (it has ended meanwhile, it is past its point of
no return) is counted, with the first reasons. One that cannot be acted on now (a lock is held, or
its outcome is unknown) holds up nobody: it is tried again, by the same key, after all others, up to
BULK_ACTION_ROUNDS_MAX times with pauses, and then told of with its error among the refused.

Result: {matched, changed, unchanged, refused, errors: [{procedure, code, message}, …]}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError
from procedures.engine import surgery
from procedures.engine.context import StepContext
from procedures.engine.filters import FIELDS
from procedures.engine.procedure import Lock, Outcome, done, next, suspend
from procedures.engine.records import Record
from procedures.engine.registry import procedure, step

BULK: Final = "kvorum.bulk"
OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "abort": frozenset(),
    "retry": frozenset({"step"}),
    "bypass": frozenset({"override", "recursive"}),
    "reset": frozenset({"step", "state", "args", "undo", "children"}),
    "signal": frozenset({"name", "payload"}),
    "pause": frozenset(),
    "resume": frozenset(),
    "forget": frozenset(),
}
"""What may be said of each action."""
_PAGE: Final = limits.AUDIT_PROCEDURES_NAMED_MAX
_ERRORS_SHOWN: Final = 20
_COUNTS: Final = ("matched", "changed", "unchanged", "refused")


class Acts(Protocol):
    """What it needs of whoever runs procedures now (control.py)."""

    async def matching(
        self, wanted: dict[str, Any], limit: int, token: str
    ) -> tuple[list[Record], str]: ...

    async def do(self, what: str, args: dict[str, object]) -> Any: ...

    async def forget(self, id: int) -> None: ...


def checked(args: object) -> dict[str, Any]:
    """Raises InvalidArgument, TooLarge."""
    given = dict(args) if isinstance(args, Mapping) else {}
    if unknown := sorted(set(given) - {"what", "filter", "reason", "actor", "options"}):
        raise InvalidArgument(f"{BULK}: unknown argument {unknown[0]!r:.60}")
    what: Any = given.get("what")
    options, wanted = given.get("options") or {}, given.get("filter")
    if what not in OPTIONS:
        raise InvalidArgument(f"what must be one of {', '.join(OPTIONS)}, got {what!r:.40}")
    if not isinstance(options, Mapping) or (more := sorted(set(options) - OPTIONS[what])):
        listed = ", ".join(sorted(OPTIONS[what])) or "none"
        wrong = more[0] if isinstance(options, Mapping) else options
        raise InvalidArgument(f"{what} takes the options {listed}, got {wrong!r:.60}")
    if isinstance(wanted, Mapping):  # what says nothing is no condition
        wanted = {name: value for name, value in wanted.items() if value not in (None, "", [], ())}
    if not isinstance(wanted, Mapping) or not wanted:
        raise InvalidArgument(
            "a bulk action needs a filter that says which procedures: for all of them say all "
            "their states"
        )
    if unknown := sorted(set(wanted) - set(FIELDS)):
        raise InvalidArgument(f"unknown filter {unknown[0]!r:.60}; there are {', '.join(FIELDS)}")
    if what == "signal" and not isinstance(options.get("name"), str):
        raise InvalidArgument("signal needs the option name")
    reason, actor = (
        surgery.checked_reason(given.get("reason")),
        surgery.checked_actor(given.get("actor")),
    )
    made = {"what": what, "filter": dict(wanted), "options": dict(options)}
    return {**made, "reason": reason, "actor": actor}


def request(args: Mapping[str, Any], id: int, key: str) -> tuple[str, dict[str, object]]:
    """The action on one procedure, as control.py takes it."""
    said: dict[str, object] = {**args["options"], "actor": args["actor"], "key": key}
    said["together"] = True
    if args["what"] in ("pause", "resume"):
        said |= {"kind": "procedure", "name": str(id), "note": args["reason"]}
        return {"pause": "pause.set", "resume": "pause.end"}[args["what"]], said
    if args["what"] == "signal":
        return "signal", {"id": id, "key": key, **args["options"]}
    return args["what"], {**said, "id": id, "reason": args["reason"]}


def _none(args: object) -> tuple[Lock, ...]:
    """What is wrong with the arguments is said before it is stored."""
    checked(args)
    return ()


@procedure(BULK, locks=_none)
class Bulk:
    def __init__(self, acts: Callable[[], Acts]) -> None:
        """`acts` raises NotLeader, Busy: the step is run again."""
        self._acts = acts

    @step(first=True)
    async def find(self, ctx: StepContext) -> Outcome:
        """The next page: stored before anything is done, so what is done twice counts once."""
        args, state = checked(ctx.args), ctx.state
        state.setdefault("began_ms", ctx.now_ms)
        for name in _COUNTS:
            state.setdefault(name, 0)
        wanted = dict(args["filter"])
        before = int(wanted.get("submitted_to") or state["began_ms"])
        wanted["submitted_to"] = min(before, state["began_ms"])
        records, token = await self._acts().matching(wanted, _PAGE, state.get("token", ""))
        named = wanted.get("type") or ()
        named = (named,) if isinstance(named, str) else tuple(named)
        # A signal to one of the database's own is a submission of its own, with rights of its own.
        may = () if ctx.args["what"] == "signal" else named
        state["page"] = [one.id for one in records if _is_meant(one, may, state["began_ms"])]
        state["token"] = token
        state["pages"] = state.get("pages", 0) + 1
        return next("act")

    @step
    async def act(self, ctx: StepContext) -> Outcome:
        # Whoever has submitted it: the arguments of one that control.py has not made may lie.
        args, acts, state = {**checked(ctx.args), "actor": ctx.owner}, self._acts(), ctx.state
        late = state.pop("late", {})  # by id the page whose key they have, in a later round
        for id in state["page"]:
            await self._one(acts, args, id, ctx, late.get(str(id)))
        token = state["token"]
        ctx.progress(0.0 if token else 1.0, f"{state['matched']} looked at")
        if token:
            return next("find")
        if left := state.pop("left", None):
            state["late"], state["page"] = left, [int(id) for id in left]
            state["round"] = state.get("round", 0) + 1
            return suspend(
                then="again", timeout_ms=limits.BULK_ACTION_PAUSE_MS << (state["round"] - 1)
            )
        return done({**{name: state[name] for name in _COUNTS}, "errors": state.get("errors", [])})

    @step
    async def again(self, ctx: StepContext) -> Outcome:
        """A later round, by another name: a master of before there were any, who would take another
        key, and so do twice what was done, does not run it.
        """
        return await self.act(ctx)

    async def _one(
        self, acts: Acts, args: dict[str, Any], id: int, ctx: StepContext, page: int | None
    ) -> None:
        """`page`: which it was on, of one that is tried again; None: it is tried first."""
        state = ctx.state
        state["matched"] += page is None
        page = state["pages"] if page is None else page
        try:
            if args["what"] == "forget":
                await acts.forget(id)
                changed = True
            else:
                what, said = request(args, id, f"bulk/{ctx.id}/{page}")
                found = await acts.do(what, said)
                changed = bool(found.get("changed", True))  # a signal that was sent is its own
            state["changed" if changed else "unchanged"] += 1
        except KvorumError as error:
            for_good = error.disposition == "no"
            if error.disposition == "reroute":
                raise  # the step runs again
            if not for_good and state.get("round", 0) < limits.BULK_ACTION_ROUNDS_MAX:
                left = state.setdefault("left", {})
                if len(left) >= limits.BULK_ACTION_LEFT_MAX:
                    raise  # it is hardly about this one
                left[str(id)] = page
                return
            state["refused"] += 1
            errors = state.setdefault("errors", [])
            if len(errors) < _ERRORS_SHOWN * (1 if for_good else 2):
                message = error.message[: limits.NONCE_CHARS_MAX]
                errors.append({"procedure": str(id), "code": error.code, "message": message})


def _is_meant(record: Record, named: tuple[str, ...], began_ms: int) -> bool:
    """What ended since it began may be what it has ended itself."""
    late = record.ended and record.updated_ms >= began_ms
    name = record.name
    own = name.startswith("kvorum.") or (name[:1].isupper() and "." not in name)
    if own and name in named:
        own = False
    return not (late or own or record.name == BULK)
