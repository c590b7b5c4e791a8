"""CREATE and ALTER SEQUENCE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlproxy.declared.database import name_of
from sqlproxy.front.bound import declarations as d
from sqlproxy.rows.naming import schema_in
from sqlproxy.session.definitions.definition_arguments import Arguments, sequence_options
from sqlproxy.session.definitions.definition_jobs import make, run
from sqlproxy.session.state.state import State
from sqlproxy.values.errors import SqlError


def _owner(name: str, options: Mapping[str, Any]) -> Arguments:
    if "owned_by" not in options:
        return {}
    owner = options["owned_by"]
    if owner is not None and schema_in(owner[0]) != schema_in(name):
        raise SqlError("55000", "sequence must be in same schema as table it is linked to")
    return {"owned_by": None if owner is None else list(owner)}


async def create_sequence(session: State, bound: d.CreateSequence) -> str:
    args: Arguments = {"name": bound.name, "options": sequence_options(bound.options)}
    args |= _owner(bound.name, bound.options)
    await make(session, "CreateSequence", bound.name, args, lenient=bound.if_not_exists)
    return "CREATE SEQUENCE"


async def alter_sequence(session: State, bound: d.AlterSequence) -> str:
    if bound.sequence is None:
        session.notice("relation does not exist, skipping")
        return "ALTER SEQUENCE"
    args: Arguments = {
        "name": name_of(bound.sequence),
        "options": sequence_options(bound.options),
        **_owner(name_of(bound.sequence), bound.options),
    }
    if "restart" in bound.options:
        restart = bound.options["restart"]
        args["restart"] = True if restart is None else restart
    await run(session, "AlterSequence", args)
    session.numbers.forget(bound.sequence.id)
    return "ALTER SEQUENCE"
