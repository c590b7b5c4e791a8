"""Questions to a procedure that it answers from what it has stored, whatever it does meanwhile.

A query is code of its author, so it is called where that code may run: by whoever runs the type's
steps, in a process for steps if there are such. It sees the record as it was stored last, and has
nothing to write to. The validator of an update is called in the same way, before that is kept.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError, Refused
from procedures.engine import plain_data
from procedures.engine.plain_data import Plain
from procedures.engine.records import Record
from procedures.engine.registry import ProcedureType
from procedures.engine.typed_values import plain_of

FITS: Final = "version:"
"""Its code is asked why it does not fit the record: a text, "" = it does."""
VALIDATES: Final = "update:"
"""With the name of an update: its validator is asked, which gives nothing, or raises."""


class View(NamedTuple):
    """What a query sees. `state`: of a class `ctx.state`, of a workflow `flow.shown`."""

    id: int
    name: str
    phase: str  # its state: RUNNABLE, WAITING, SUCCESS, …
    step: str
    args: Any
    state: Plain


def answered(declared: ProcedureType, query: str, record: Record, args: bytes) -> bytes:
    """What the query gives, as plain data. Raises InvalidArgument (QUERY_UNKNOWN), Refused
    (QUERY_FAILED; UPDATE_REFUSED), TooLarge, and what errors of ours it raises.
    """
    if query == FITS:
        why = "" if declared.replays is None else declared.replays(record)
        return plain_data.encode(why, query, limits.PROCEDURE_STATE_BYTES_MAX)
    validates = query.startswith(VALIDATES)
    if validates:
        method = declared.validators.get(query.removeprefix(VALIDATES))
    else:
        method = declared.queries.get(query)
    if method is None:
        there = ", ".join(sorted(declared.queries)) or "none"
        raise InvalidArgument(
            f"procedure {declared.name} has no query {query!r:.80} (queries: {there})",
            code="QUERY_UNKNOWN",
        )
    given, state = plain_data.decode(record.args), plain_data.decode(record.data)
    if declared.args is not None:
        given = declared.args.read(given, f"arguments of {declared.name}")
    if declared.replays is not None:
        state = state.get("shown", {})
    view = View(record.id, record.name, record.state.name, record.step, given, state)
    what = f"the answer of query {query} of {declared.name}"
    try:
        result = method(declared.make(), view, plain_data.decode(args))
    except KvorumError:
        raise
    except Exception as error:  # users' code: whatever it raises
        what = "validator of" if validates else "query"
        text = f"{what} {query} of {declared.name}: {type(error).__name__}: {error}"
        code = "UPDATE_REFUSED" if validates else "QUERY_FAILED"
        raise Refused(text[: limits.ERROR_CHARS_MAX], code=code) from error
    if validates:
        return plain_data.NONE
    return plain_data.encode(plain_of(result, what), what, limits.PROCEDURE_STATE_BYTES_MAX)
