"""SQL over HTTP, for consoles and scripts; programs use the PostgreSQL protocol."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from kv.base.errors import Unavailable
from kv.base.limits import SQL_HTTP_ROWS_MAX, SQL_HTTP_TIMEOUT_MS_MAX
from kvorum.http.routes.declaring import (
    As,
    Asked,
    Body,
    BoolOrNone,
    Here,
    Me,
    Routes,
    Text,
    TextOrNone,
)
from kvorum.http.routes.rights import SELF
from kvorum.http.routes.route import object_of
from kvorum.http.wire.fields import Schema, integer
from procedures.engine.plain_data import Plain

ROUTES: Final = Routes("sql")

_TEXT: Final[Schema] = {"type": "string"}
_CELL: Final[Schema] = {"type": ["string", "null"]}
_ANSWER: Final = object_of(
    columns={"type": "array", "items": object_of(name=_TEXT, type=_TEXT)},
    rows={"type": "array", "items": {"type": "array", "items": _CELL}},
    tag=_TEXT,
    more={"type": "boolean"},
    notices={"type": "array", "items": object_of(severity=_TEXT, message=_TEXT)},
    took_ms={"type": "number"},
)
_ROWS: Final = 100
_TIMEOUT_MS: Final = 30_000


class Statement(Body):
    statement: Text = Field(description="One statement, or several with ; between them.")
    database: TextOrNone = Field(None, description="`default` if left out.")
    read_only: BoolOrNone = Field(None, description="In a read-only transaction: true if left out.")
    rows_max: Annotated[int | None, As(integer(1, SQL_HTTP_ROWS_MAX))] = Field(
        None, description="100 if left out."
    )
    timeout_ms: Annotated[int | None, As(integer(1, SQL_HTTP_TIMEOUT_MS_MAX))] = Field(
        None, description="Of all; 30000 if left out. Whoever hangs up ends it, too."
    )


@ROUTES.on("POST", "/v1/sql", SELF, _ANSWER, 409)
async def run_sql(asked: Asked, me: Me, here: Here, body: Statement) -> Plain:
    """Run a statement of SQL

    As who asks, with his rights on tables, in a session that ends with the request: what is to be
    one transaction goes into one request, without BEGIN even. Nothing is written unless `read_only`
    is false, whatever the statements set. The answer is that of the last statement: `rows` of texts
    as PostgreSQL writes them (null: NULL), `more`: there were others. An error is `SQL_ERROR`; its
    details have `sqlstate` and, if they are known, `position` (a character of the text, from 1),
    `detail` and `hint`.
    """
    asked.changes = body.read_only is False
    if here.sql is None:
        raise Unavailable("this node serves no SQL: its role sql is switched off; ask another one")
    return await here.sql(
        me,
        asked.address,
        body.database or "default",
        body.statement,
        read_only=body.read_only is not False,
        rows_max=body.rows_max or _ROWS,
        timeout_ms=body.timeout_ms or _TIMEOUT_MS,
        left=asked.left,
    )
