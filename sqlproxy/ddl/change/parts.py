"""ALTER TABLE that adds several things to a table: all of them, or none.

    AddParts  {namespace, name, parts: [[procedure, args], …]}       → {table_id, version}

    begin ─▶ part… ─▶ (done)

A part is an AddColumn, an AddConstraint or a CreateIndex, and runs as a child when those before it
have ended: a constraint is of a column that is there. If one fails, those before it are undone in
reverse order, as their types say, whoever asked for it is still there or not. `args` are the
child's without namespace and name.

Until the last part has ended users see the parts before it: a column without its NOT NULL, say.

ctx.state: at (how many parts were begun).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kv.base.errors import InvalidArgument
from kv.base.limits import PROCEDURE_LOCKS_MAX, SQL_PARTS_MAX
from procedures.engine.context import StepContext
from procedures.engine.procedure import Lock, Outcome, children, done
from procedures.engine.registry import Registry, procedure, step
from sqlproxy.catalog import catalog
from sqlproxy.ddl.change import constraints, indexes
from sqlproxy.ddl.change.states import Change, ChangeServices
from sqlproxy.ddl.steps import CatalogTxn, list_in, name_in, table_locks
from sqlproxy.values.refusals import invalid

_FIELDS: Final = frozenset({"namespace", "name", "parts"})
_LOCKS: Final = {
    "AddColumn": table_locks,
    "AddConstraint": constraints.locks,
    "CreateIndex": indexes.locks,
}


def register(registry: Registry, services: ChangeServices) -> None:
    """Serve the procedure of this module."""
    registry.add(AddParts, make=lambda: AddParts(services))


def _calls(args: Mapping[str, object]) -> list[tuple[str, dict[str, Any]]]:
    """The parts, with whole arguments. Raises InvalidArgument."""
    of = {"namespace": name_in(args, "namespace"), "name": name_in(args, "name")}
    calls = []
    for one in list_in(args, "parts"):
        match one:
            case [str(kind), Mapping() as rest] if kind in _LOCKS:
                calls.append((kind, {**rest, **of}))
            case _:
                raise InvalidArgument(
                    f"a part is [procedure, args] with one of {', '.join(_LOCKS)}, got {one!r:.80}"
                )
    return calls


def _locks(args: object) -> list[Lock]:
    """What the parts lock: who holds some of it and waits for more could wait for another one."""
    if not isinstance(args, Mapping):
        raise InvalidArgument(f"the arguments must be a map, got {args!r:.80}")
    found = table_locks(args)
    for kind, call in _calls(args):
        found += [lock for lock in _LOCKS[kind](call) if lock not in found]
    if len(found) > PROCEDURE_LOCKS_MAX:
        raise invalid(
            "54000",
            f"ALTER TABLE names {len(found)} tables and indexes; the limit is "
            f"{PROCEDURE_LOCKS_MAX}",
            hint="Add them by several statements.",
        )
    return found


@procedure("AddParts", locks=_locks)
class AddParts(Change):
    """See the module."""

    @step(first=True)
    async def begin(self, ctx: StepContext) -> Outcome:
        """Raises NotFound, InvalidArgument."""
        args, _, _ = await self.named(ctx, _FIELDS)
        if not 0 < (count := len(_calls(args))) <= SQL_PARTS_MAX:
            raise InvalidArgument(f"1 to {SQL_PARTS_MAX} parts can be added at once, got {count}")
        ctx.state["at"] = 0
        return await self.part(ctx)

    @step
    async def part(self, ctx: StepContext) -> Outcome:
        """The next one, if there is one."""
        calls, at = _calls(ctx.args), ctx.state["at"]
        if at < len(calls):
            ctx.state["at"] = at + 1
            return children([calls[at]], then="part")
        t = await CatalogTxn.of(ctx)
        table = await catalog.lookup(t, ctx.args["namespace"], ctx.args["name"])
        return done({"table_id": table.id, "version": table.version})
