"""Makes docs/reference/http.md from kvorum/http/routes: `python -m scripts.http_reference`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvorum.http.routes.openapi import ERROR_MEANINGS, ROUTES, TAGS, Route, openapi
from kvorum.http.wire.fields import Fields

TARGET = Path(__file__).parent.parent / "docs" / "reference" / "http.md"


def render() -> str:
    """The whole page."""
    lines = [
        "# HTTP API",
        "",
        "Made from the routes by `python -m scripts.http_reference`. The same as a page: `/docs` "
        "of a node; for programs: `/openapi.json`. How to use it: [the guide](../guides/http.md).",
        "",
        openapi("")["info"]["description"],
        "",
    ]
    for tag, title in TAGS.items():
        lines += [f"## {title}", ""]
        for route in ROUTES:
            if route.tag == tag:
                lines += _route(route)
    lines += ["## Errors", "", "| status | meaning |", "|---|---|"]
    lines += [f"| {status} | {meaning} |" for status, meaning in ERROR_MEANINGS.items()]
    return "\n".join(lines) + "\n"


def _route(route: Route) -> list[str]:
    lines = [
        f"### {route.method} {route.path}",
        "",
        f"{route.summary}. {route.description}".strip(),
    ]
    lines.append("")
    fields: list[tuple[str, Fields]] = [
        ("query", route.query),
        ("header", route.headers),
        ("body", route.body or ()),
    ]
    rows = [
        f"| {where} | `{f.name}` | {_type(f.kind.schema)} "
        f"| {'yes' if f.required else 'no'} | {f.doc} |"
        for where, table in fields
        for f in table
    ]
    if rows:
        lines += ["| in | name | type | needed | meaning |", "|---|---|---|---|---|", *rows, ""]
    if route.raw_body:
        lines += ["Body: the raw bytes of the value.", ""]
    answer = "raw bytes" if route.raw_answer else _shape(route.answer)
    refusals = ", ".join(str(status) for status in sorted({400, *route.errors}))
    lines += [f"Answers {route.ok}: {answer}. Refusals: {refusals}.", ""]
    return lines


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if "oneOf" in schema:
        return 'text or `{"b64"}`'
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}, at most {schema['maxItems']}"
        case "object":
            if "properties" not in schema:
                return "{name: whole number}"
            return "{" + ", ".join(f"`{name}`" for name in schema["properties"]) + "}"
        case "integer":
            return f"{schema['minimum']} to {schema['maximum']}"
        case "string":
            return "decimal string" if "pattern" in schema else "text"
        case other:
            return str(other or "any value")


def _shape(schema: dict[str, Any]) -> str:
    properties = schema.get("properties")
    if not properties:
        return "`{}`"
    return "`{" + ", ".join(f'"{name}"' for name in properties) + "}`"


if __name__ == "__main__":
    TARGET.write_text(render())
