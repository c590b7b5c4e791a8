"""CREATE and ALTER SEQUENCE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlproxy.front.bound import declarations as d
from sqlproxy.session.definitions.definition_arguments import Arguments, sequence_options
from sqlproxy.session.definitions.definition_jobs import make, run
from sqlproxy.session.state.state import State


def _owner(options: Mapping[str, Any]) -> Arguments:
    if "owned_by" not in options:
        return {}
    owner = options["owned_by"]
    return {"owned_by": None if owner is None else list(owner)}


async def create_sequence(session: State, bound: d.CreateSequence) -> str:
    args: Arguments = {"name": bound.name, "options": sequence_options(bound.options)}
    args |= _owner(bound.options)
    await make(session, "CreateSequence", bound.name, args, lenient=bound.if_not_exists)
    return "CREATE SEQUENCE"


async def alter_sequence(session: State, bound: d.AlterSequence) -> str:
    if bound.sequence is None:
        session.notice("relation does not exist, skipping")
        return "ALTER SEQUENCE"
    args: Arguments = {
        "name": bound.sequence.name,
        "options": sequence_options(bound.options),
        **_owner(bound.options),
    }
    if "restart" in bound.options:
        restart = bound.options["restart"]
        args["restart"] = True if restart is None else restart
    await run(session, "AlterSequence", args)
    session.services.numbers.forget(bound.sequence.id)
    return "ALTER SEQUENCE"
