"""What SQL says when it refuses: in the words of who knows databases and schemas."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sqlproxy

_ROOT: Final = Path(sqlproxy.__file__).parent
_OF_SQL: Final = {"SqlError", "refusal", "invalid", "unsupported", "dependents", "notice"}
"""What says a text to clients of SQL as it is."""
_OF_STORE: Final = {"AlreadyExists", "InvalidArgument", "NotFound", "Refused", "TooLarge"}
"""What does so unless its details have another text for them."""
_TOLD: Final = {"_as_sql", "sql_message"}


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


def _says(node: ast.AST) -> bool:
    texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
    return any(isinstance(text, str) and "namespace" in text for text in texts)


def _told(node: ast.Call) -> bool:
    """Whether its details say it anew."""
    return any(
        getattr(one, "id", getattr(one, "value", "")) in _TOLD
        for keyword in node.keywords
        for one in ast.walk(keyword.value)
    )


def _wrong(source: str) -> Iterator[int]:
    if "namespace" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = _called(node)
        said = [*node.args, *(k.value for k in node.keywords if k.arg in ("detail", "hint"))]
        if name in _OF_SQL and any(map(_says, said)):
            yield node.lineno
        if name in _OF_STORE and node.args and _says(node.args[0]) and not _told(node):
            yield node.lineno


# Of procedures that SQL has no statement for: their callers know namespaces.
_NO_SQL: Final = {"catalog/grants.py", "ddl/placing.py"}


def test_no_error_of_sql_says_namespace() -> None:
    """A client of SQL is told of a "namespace", which it has never heard of."""
    assert list(_wrong('x = refusal("2BP01", f"namespace {n} has tables")')) == [1]
    assert list(_wrong('x = Refused("no namespace", details={"namespace": n})')) == [1]
    assert not list(_wrong('x = Refused("no namespace", details={"sql_message": m})'))
    found = [
        f"{name}:{line}"
        for path in sorted(_ROOT.rglob("*.py"))
        if (name := str(path.relative_to(_ROOT))) not in _NO_SQL
        for line in _wrong(path.read_text("utf-8"))
    ]
    assert not found
