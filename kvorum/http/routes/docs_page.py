"""/docs: the OpenAPI document as one self-contained page. No script and nothing from
other hosts, so it works anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, Final

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:13px/1.4 ui-monospace,monospace}"
    "pre{background:#8881;padding:.6rem;overflow:auto}"
    "details{border:1px solid #8884;border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}"
    "summary{cursor:pointer}summary b{display:inline-block;width:4.5rem}"
    "summary span{float:right;opacity:.75}h4{margin:.8rem 0 .2rem}"
    "table{border-collapse:collapse}td,th{padding:.15rem 1rem .15rem 0;text-align:left;"
    "vertical-align:top}th{font-weight:normal;opacity:.6}@media(prefers-color-scheme:dark)"
    "{body{background:#111;color:#ddd}a{color:#8cf}}"
)
_INDENT: Final = "  "
_LINE: Final = 76  # a shape that is longer is broken up


def docs_page(schema: dict[str, Any]) -> str:
    """The whole page for an OpenAPI document."""
    info = schema["info"]
    groups: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            section = _operation(path, method, operation)
            groups.setdefault(operation["tags"][0], []).append(section)
    body = "".join(
        f'<h2 id="{tag["name"]}">{escape(tag["description"])}</h2>{"".join(groups[tag["name"]])}'
        for tag in schema["tags"]
    )
    meanings = {
        status: answer["description"]
        for methods in schema["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if status >= "400"
    }
    contents = " · ".join(
        f'<a href="#{tag["name"]}">{escape(tag["description"])}</a>' for tag in schema["tags"]
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Kvorum HTTP API</title>'
        '<meta name="viewport" content="width=device-width"><style>'
        f"{_STYLE}</style><h1>Kvorum HTTP API {escape(info['version'])}</h1>"
        f"<p>{_prose(info['description'])}</p>"
        f'<p>{contents} · <a href="#errors">Errors</a> · for programs: '
        '<a href="openapi.json">openapi.json</a></p>'
        f"{body}"
        '<h2 id="errors">Errors</h2>'
        f"<pre>{escape(shape(schema['components']['schemas']['Error']))}</pre>"
        f"{_table(('status', 'meaning'), sorted(meanings.items()))}</html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f"<p>{_prose(operation['description'])}</p>" if operation["description"] else ""]
    rows = [
        (p["name"], p["in"], shape(p["schema"]), p["required"], p.get("description", ""))
        for p in operation["parameters"]
        if p["in"] != "path"
    ]
    body = next(iter(operation.get("requestBody", {}).get("content", {}).values()), None)
    if body is not None:
        fields, needed = body["schema"].get("properties"), body["schema"].get("required", ())
        if fields is None:
            parts.append(f"<p>Body: {escape(shape(body['schema']))}.</p>")
        rows += [
            (name, "body", shape(field), name in needed, field["description"])
            for name, field in (fields or {}).items()
        ]
    if rows:
        cells = (
            (f"`{name}`", where, f"`{kind}`", "yes" if needed else "", doc)
            for name, where, kind, needed, doc in rows
        )
        parts.append(_table(("name", "in", "type", "needed", "meaning"), cells))
    refusals = []
    for status, answer in operation["responses"].items():
        if status >= "400":
            refusals.append(status)
            continue
        schema_text = shape(next(iter(answer["content"].values()))["schema"])
        parts.append(f"<h4>Answers {status}</h4><pre>{escape(schema_text)}</pre>")
    parts.append(f'<p>Refusals: <a href="#errors">{", ".join(refusals)}</a></p>')
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
        f"<span>{escape(operation['summary'])}</span></summary>{''.join(parts)}</details>"
    )


def shape(schema: dict[str, Any], indent: str = "") -> str:
    """A JSON schema as people write one down: `{"first": decimal string, "count"?: 1 to 9}`."""
    if "enum" in schema:
        return " or ".join(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            inner = indent + _INDENT
            needed = schema.get("required", schema["properties"])
            fields = [
                f'"{name}"{"" if name in needed else "?"}: {shape(one, inner)}'
                for name, one in schema["properties"].items()
            ]
            line = "{" + ", ".join(fields) + "}"
            if len(indent) + len(line) <= _LINE and "\n" not in line:
                return line
            return "{\n" + "".join(f"{inner}{f},\n" for f in fields)[:-2] + f"\n{indent}}}"
        case "array":
            return f"[{shape(schema['items'], indent)}, …]"
        case "integer" if "minimum" in schema:
            return f"{schema['minimum']} to {schema['maximum']}"
        case "string" if "pattern" in schema:
            return "decimal string"
        case "string":
            return "raw bytes" if schema.get("format") == "binary" else "text"
        case list() as kinds:
            return " or ".join("text" if k == "string" else k for k in kinds)
        case str() as kind:
            return kind
        case _ if "oneOf" in schema:
            return " or ".join(shape(one, indent) for one in schema["oneOf"])
        case _:
            return "any value"


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{title}" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{_prose(cell)}" for cell in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"


def _prose(text: str) -> str:
    """Text with `code` marked up."""
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))
