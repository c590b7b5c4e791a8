"""/docs: the OpenAPI document as one self-contained page. No script and nothing from
other hosts, so it works anywhere.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any, Final

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:13px/1.4 ui-monospace,monospace}"
    "pre{background:#8881;padding:.6rem;overflow:auto}"
    "details{border:1px solid #8884;border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}"
    "summary{cursor:pointer}summary b{display:inline-block;width:4.5rem}"
    "td{padding:.1rem .8rem .1rem 0;vertical-align:top}@media(prefers-color-scheme:dark)"
    "{body{background:#111;color:#ddd}a{color:#8cf}}"
)


def docs_page(schema: dict[str, Any]) -> str:
    """The whole page for an OpenAPI document."""
    info = schema["info"]
    groups: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            section = _operation(path, method, operation)
            groups.setdefault(operation["tags"][0], []).append(section)
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(ops)}" for tag, ops in groups.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Kvorum HTTP API</title>'
        '<meta name="viewport" content="width=device-width"><style>'
        f"{_STYLE}</style><h1>Kvorum HTTP API {escape(info['version'])}</h1>"
        f"<p>{_prose(info['description'])}</p>"
        '<p>The machine-readable document: <a href="openapi.json">openapi.json</a></p>'
        f"{body}</html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code><td>{p['in']}"
        f"<td>{_prose(p.get('description', ''))}"
        for p in operation["parameters"]
    )
    parts = [f"<p>{_prose(operation['description'])}</p>" if operation["description"] else ""]
    if rows:
        parts.append(f"<table>{rows}</table>")
    body = operation.get("requestBody")
    if body:
        kind, content = next(iter(body["content"].items()))
        parts.append(f"<p>Body ({kind}):</p><pre>{_json(content['schema'])}</pre>")
    for status, answer in operation["responses"].items():
        schema = next(iter(answer["content"].values()))["schema"]
        shown = "" if "$ref" in schema else f"<pre>{_json(schema)}</pre>"
        parts.append(f"<p><b>{status}</b> {escape(answer['description'])}</p>{shown}")
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
        f"{escape(operation['summary'])}</summary>{''.join(parts)}</details>"
    )


def _prose(text: str) -> str:
    """Text with `code` marked up."""
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def _json(value: Any) -> str:
    return escape(json.dumps(value, indent=1, ensure_ascii=False))
