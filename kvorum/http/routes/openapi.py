"""Every route of the API in one table: what it does, takes and answers. The OpenAPI schema, /docs
and the reference in docs/reference/http.md are made of it, for the bare-ASGI routes as for those of
FastAPI.
"""

from __future__ import annotations

from typing import Any, Final

from kvorum.http.routes.admin_routes import ADMIN_ROUTES
from kvorum.http.routes.data_routes import DATA_ROUTES
from kvorum.http.routes.route import ERROR, RAW, Route
from kvorum.http.wire import fields
from kvorum.http.wire.fields import Schema

ROUTES: Final = (*DATA_ROUTES, *ADMIN_ROUTES)

TAGS: Final = {
    "data": "Records",
    "transactions": "Transactions and timestamps",
    "snapshots": "Snapshots that are held",
    "locks": "Locks that users' code holds",
    "tables": "Namespaces and tables",
    "procedures": "Procedures",
    "cluster": "Nodes, health, metrics",
}

ERROR_MEANINGS: Final = {
    400: "Bad input: nothing was done",
    404: "No such key, table, namespace, procedure or route",
    409: "Conflict",
    410: "The snapshot is older than what is kept",
    412: "A condition does not hold",
    413: "Too large: details have the limit and the actual size",
    429: "Too much at once: try again after Retry-After",
    503: "Not now: try again after Retry-After",
    504: "Deadline exceeded, or the outcome is unknown",
}

_DESCRIPTION = (
    "Bodies are JSON, or msgpack with `Content-Type: application/msgpack`; replies too, chosen by "
    '`Accept`. In JSON, keys and values are text, or `{"b64": "…"}` for other bytes. Versions and '
    "timestamps are decimal strings. An error has a `code`, and `retry` says what to do: `no`, "
    "`retry` (the same request later), `restart_txn` (the same work in a new transaction), "
    "`reroute`, `unknown_outcome` (ask for the status)."
)


def openapi(version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of all routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Kvorum", "version": version, "description": _DESCRIPTION},
        "tags": [{"name": name, "description": title} for name, title in TAGS.items()],
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in (part[1:-1] for part in route.path.split("/") if part.startswith("{"))
    ]
    for where, table in (("query", route.query), ("header", route.headers)):
        parameters += [
            {
                "name": f.name,
                "in": where,
                "required": f.required,
                "description": f.doc,
                "schema": f.kind.schema,
            }
            for f in table
        ]
    operation: dict[str, Any] = {
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.description,
        "operationId": f"{route.method.lower()} {route.path}",
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.raw_body:
        raw = {"application/octet-stream": {"schema": RAW}}
        operation["requestBody"] = {"required": True, "content": raw}
    elif route.body is not None:
        operation["requestBody"] = {
            "required": any(f.required for f in route.body),
            "content": _content(fields.object_schema(route.body)),
        }
    elif route.method == "POST":
        operation["requestBody"] = {"content": _content({"description": "Any value."})}
    return operation


def _responses(route: Route) -> dict[str, Any]:
    if route.raw_answer:
        content: dict[str, Any] = {"application/octet-stream": {"schema": RAW}}
    else:
        content = _content(route.answer)
    found: dict[str, Any] = {str(route.ok): {"description": "Done", "content": content}}
    error = _content({"$ref": "#/components/schemas/Error"})
    for status in sorted({400, *route.errors}):
        found[str(status)] = {"description": ERROR_MEANINGS[status], "content": error}
    return found


def _content(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}, "application/msgpack": {"schema": schema}}
