"""Makes docs/reference/http.md from kvorum/http/routes: `python -m scripts.http_reference`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvorum.http.routes.openapi import ERROR_MEANINGS, TAGS
from kvorum.http.server.fastapi_app import document

TARGET = Path(__file__).parent.parent / "docs" / "reference" / "http.md"


def render() -> str:
    """The whole page."""
    api: dict[str, Any] = document("")
    lines = [
        "# HTTP API",
        "",
        "Made from the routes by `python -m scripts.http_reference`. The same as a page: `/docs` "
        "of a node; for programs: `/openapi.json`. How to use it: [the guide](../guides/http.md).",
        "",
        api["info"]["description"],
        "",
    ]
    for tag, title in TAGS.items():
        lines += [f"## {title}", ""]
        for path, methods in api["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag]:
                    lines += _route(f"{method.upper()} {path}", operation)
    lines += ["## Errors", "", "| status | meaning |", "|---|---|"]
    lines += [f"| {status} | {meaning} |" for status, meaning in ERROR_MEANINGS.items()]
    return "\n".join(lines) + "\n"


def _route(name: str, operation: dict[str, Any]) -> list[str]:
    said = f"{operation['summary']}. {operation['description']}".strip()
    lines = [f"### {name}", "", said, ""]
    content = operation.get("requestBody", {}).get("content", {})
    body = content.get("application/json", {}).get("schema", {})
    needed = body.get("required", ())
    rows = [
        _row(one["in"], one["name"], one["schema"], one["required"], one["description"])
        for one in operation["parameters"]
        if one["in"] != "path"
    ]
    rows += [
        _row("body", field, schema, field in needed, schema["description"])
        for field, schema in body.get("properties", {}).items()
    ]
    if rows:
        lines += ["| in | name | type | needed | meaning |", "|---|---|---|---|---|", *rows, ""]
    if "application/octet-stream" in content:
        lines += ["Body: the raw bytes of the value.", ""]
    answers = operation["responses"]
    refusals = ", ".join(sorted(status for status in answers if status >= "400"))
    for status, answer in answers.items():
        if status < "400":
            shown = _shape(answer["content"])
            lines += [f"Answers {status}: {shown}. Refusals: {refusals}.", ""]
    return lines


def _row(where: str, name: str, schema: dict[str, Any], needed: bool, doc: str) -> str:
    return f"| {where} | `{name}` | {_type(schema)} | {'yes' if needed else 'no'} | {doc} |"


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


def _shape(content: dict[str, Any]) -> str:
    if "application/octet-stream" in content:
        return "raw bytes"
    if "application/json" not in content:
        return f"`{next(iter(content))}`"
    properties = content["application/json"]["schema"].get("properties")
    if not properties:
        return "`{}`"
    return "`{" + ", ".join(f'"{name}"' for name in properties) + "}`"


if __name__ == "__main__":
    TARGET.write_text(render())
