"""All routes, and the OpenAPI document of them: /docs and docs/reference/http.md are made of it.
FastAPI writes the part of its own routes; that of the hot ones is made here of hot_routes.py.
"""

from __future__ import annotations

from typing import Any, Final

from kvorum.http.routes import (
    access_routes,
    cluster_routes,
    overview_routes,
    procedure_routes,
    schedule_routes,
    sink_routes,
    site_routes,
    snapshot_routes,
    sql_routes,
    table_routes,
    worker_routes,
)
from kvorum.http.routes.declaring import Declared
from kvorum.http.routes.hot_routes import HOT_ROUTES
from kvorum.http.routes.route import ERROR, RAW, Route
from kvorum.http.wire import fields
from kvorum.http.wire.fields import Schema
from procedures.engine.plain_data import Plain

DECLARED: Final = (
    *snapshot_routes.TIMESTAMPS.declared,
    *snapshot_routes.SNAPSHOTS.declared,
    *snapshot_routes.LOCKS.declared,
    *table_routes.ROUTES.declared,
    *procedure_routes.ROUTES.declared,
    *procedure_routes.LOCK_ROUTES.declared,
    *schedule_routes.ROUTES.declared,
    *worker_routes.ROUTES.declared,
    *cluster_routes.ROUTES.declared,
    *overview_routes.ROUTES.declared,
    *sink_routes.ROUTES.declared,
    *site_routes.ROUTES.declared,
    *sql_routes.ROUTES.declared,
    *access_routes.ROUTES.declared,
)
ROUTES: Final[tuple[Route | Declared, ...]] = (*HOT_ROUTES, *(one for one in DECLARED if one.shown))

TAGS: Final = {
    "data": "Records",
    "transactions": "Transactions and timestamps",
    "snapshots": "Snapshots that are held",
    "schedules": "Schedules and pauses",
    "locks": "Locks that users' code holds",
    "tables": "Namespaces and tables",
    "sql": "SQL",
    "procedures": "Procedures",
    "workers": "Workers in other languages",
    "cluster": "Nodes, health, metrics",
    "sites": "Links to other clusters",
    "access": "Users, tokens and grants",
}

ERROR_MEANINGS: Final = {
    400: "Bad input: nothing was done",
    401: "Nobody has logged in, or the credential is wrong",
    403: "The right is missing: details have the user, what is missing, and on what",
    404: "No such key, table, namespace, procedure or route",
    409: "Conflict",
    410: "The snapshot is older than what is kept",
    412: "A condition does not hold",
    413: "Too large: details have the limit and the actual size",
    429: "Too much at once: try again after Retry-After",
    503: "Not now: try again after Retry-After",
    504: "Deadline exceeded, or the outcome is unknown",
}

_REFUSALS: Final = {True: (), False: (401, 403)}
_DESCRIPTION = (
    "Bodies are JSON, or msgpack with `Content-Type: application/msgpack`; replies too, chosen by "
    '`Accept`. In JSON, keys and values are text, or `{"b64": "…"}` for other bytes. Versions and '
    "timestamps are decimal strings. An error has a `code`, and `retry` says what to do: `no`, "
    "`retry` (the same request later), `restart_txn` (the same work in a new transaction), "
    "`reroute`, `unknown_outcome` (ask for the status). Where clocks are hybrid every reply has a "
    "header `Kvorum-Causal-Token`: send it with the next request, to whichever node, and what that "
    "does and answers comes after."
)


def openapi(version: str, declared: Plain) -> dict[str, object]:
    """The OpenAPI 3.1 document of all routes. `declared`: FastAPI's of its own."""
    paths: dict[str, dict[str, object]] = {}
    for route in HOT_ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    models = declared.get("components", {}).get("schemas", {})
    for path, methods in declared["paths"].items():
        for method, operation in methods.items():
            paths.setdefault(path, {})[method] = _declared(operation, models)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Kvorum", "version": version, "description": _DESCRIPTION},
        "tags": [{"name": name, "description": title} for name, title in TAGS.items()],
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def answers(route: Declared) -> dict[int | str, Plain]:
    """What FastAPI is to say of a route's answers."""
    return {int(status): said for status, said in _responses(route).items()}


def _declared(operation: Plain, models: Plain) -> dict[str, object]:
    """FastAPI's description of a route, without names of our classes, and with msgpack."""
    found = {
        name: _inlined(part, models) for name, part in operation.items() if name != "responses"
    }
    found["parameters"] = found.get("parameters", [])
    if found["description"] == found["summary"]:  # it takes the docstring for want of one
        found["description"] = ""
    # FastAPI would refuse with 422; we do with 400.
    found["responses"] = {s: a for s, a in operation["responses"].items() if s != "422"}
    if (body := found.get("requestBody")) is not None:
        schema = body["content"]["application/json"]["schema"]
        found["requestBody"] = {"content": _content(schema)}
        if "properties" in schema:
            found["requestBody"]["required"] = bool(schema.get("required"))
    return found


def _inlined(part: object, models: dict[str, object]) -> Any:
    if isinstance(part, list):
        return [_inlined(one, models) for one in part]
    if isinstance(part, float) and part.is_integer():  # it makes floats of our limits
        return int(part)
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(models[part["$ref"].rpartition("/")[2]], models)
    described = {k: v for k, v in part.items() if k != "default" and not _is_title(k, v)}
    return {name: _inlined(one, models) for name, one in described.items()}


def _is_title(name: str, value: object) -> bool:
    return name == "title" and isinstance(value, str)


def _operation(route: Route) -> dict[str, object]:
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
    operation: dict[str, object] = {
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


def _responses(route: Route | Declared) -> Plain:
    if route.raw_answer:
        content: dict[str, object] = {route.raw_answer: {"schema": RAW}}
    else:
        content = _content(route.answer)
    found: Plain = {str(route.ok): {"description": "Done", "content": content}}
    error = _content({"$ref": "#/components/schemas/Error"})
    refusals = {400, *_REFUSALS[route.right.action is None], *route.errors}
    if route.method in ("PATCH", "POST", "PUT"):
        refusals.add(413)  # any body may be too large, and any list in it too long
    for status in sorted(refusals):
        found[str(status)] = {"description": ERROR_MEANINGS[status], "content": error}
    return found


def _content(schema: Schema) -> Plain:
    return {"application/json": {"schema": schema}, "application/msgpack": {"schema": schema}}
