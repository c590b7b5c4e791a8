"""What Spark's writers have staged."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

from kv.base.limits import SINK_ATTEMPT_CHARS_MAX
from kvorum.http.routes.declaring import Asked, Here, Node, Plain, Routes, TextOrNone, book_of
from kvorum.http.routes.rights import SELF
from kvorum.http.routes.route import items_of, object_of
from kvorum.http.wire.fields import Schema
from procedures.sink.format.sink_records import AttemptState, checked_text
from sqlproxy.catalog.visible_catalog import seen_tables

ROUTES: Final = Routes("cluster")

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer"}
_TIME: Final[Schema] = {"type": ["integer", "null"]}
_ATTEMPT: Final = object_of(
    attempt=_TEXT,
    table=_TEXT,
    state={"type": "string", "enum": [*AttemptState.__members__, "ORPHAN"]},
    tasks=_COUNT,
    working=_COUNT,
    rows=_COUNT,
    chunks=_COUNT,
    more={"type": "boolean"},
    user=_TEXT,
    app=_TEXT,
    version=_COUNT,
    procedure={"type": ["string", "null"]},
    began_ms=_TIME,
    since_ms=_TIME,
    left_ms=_TIME,
    level={"type": "string", "enum": ["good", "note", "warn"]},
    do=_TEXT,
)


@ROUTES.on("GET", "/v1/sinks", SELF, items_of(_ATTEMPT, after=_TEXT))
async def list_attempts(
    node: Node,
    asked: Asked,
    here: Here,
    after: Annotated[TextOrNone, Query(description="Only those behind this name.")] = None,
) -> Plain:
    """What Spark has staged

    Attempts at batches, by name, a hundred on a page; `after` in the answer: there are more behind
    it. For tables on which you have any right. `state`: `OPEN` (rows are staged, under a lease),
    `PREPARED` (a job's, stays until somebody decides), `COMMITTING`, `DONE` (visible, being
    cleaned), `ABORTED`, `EXPIRED` (its lease ended with finished tasks; said for a day), `ORPHAN`.
    `tasks`, `rows`, `chunks`: of finished tasks, each of a partition of Spark; `working`: other
    tasks that lay rows in place; `more`: it has more tasks than were counted. `user`: who began it,
    at `began_ms`; `app` and `version`: its application and batch, once it is prepared or committed;
    null and empty if nobody has said so. `procedure` commits or prepared it. `since_ms`: for how
    long it is in that state; `left_ms` of its lease. `level`: `warn` where somebody should look;
    `do`: what it waits for, and what helps.
    """
    name = "" if after is None else checked_text(after, "after", SINK_ATTEMPT_CHARS_MAX)
    book = book_of(asked, here)
    seen = None if book is None else seen_tables(asked.identity, book)
    found, on = await node.sink_attempts(name, seen)
    return {"items": [one.to_plain() for one in found], **({"after": on} if on else {})}
