"""What is said of a hot route, and the schemas that several routes answer with."""

from __future__ import annotations

from typing import Final, NamedTuple

from kvorum.http.routes.rights import Right
from kvorum.http.wire.fields import DATA, VERSION, Fields, Schema

OBJECT: Final[Schema] = {"type": "object"}


class Route(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    right: Right
    tag: str
    summary: str
    description: str
    query: Fields = ()
    body: Fields | None = None
    raw_body: bool = False
    ok: int = 200
    answer: Schema = OBJECT
    raw_answer: str = ""  # its type, of one that is neither JSON nor msgpack
    errors: tuple[int, ...] = ()
    headers: Fields = ()


def object_of(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def items_of(item: Schema, **more: Schema) -> Schema:
    return object_of(items={"type": "array", "items": item}, **more)


TS: Final[Schema] = VERSION.schema
RAW: Final[Schema] = {"type": "string", "format": "binary"}
D: Final[Schema] = DATA.schema
ERROR: Final[Schema] = object_of(
    error=object_of(
        code={"type": "string"},
        message={"type": "string"},
        retry={
            "type": "string",
            "enum": ["no", "retry", "restart_txn", "reroute", "unknown_outcome"],
        },
        details={"type": "object"},
    )
)
