"""What a client sends reaches files, stores, servers and programs by one door alone."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SERVERS: Final = ("raft", "kv", "tso", "txn", "procedures", "sqlproxy", "kvorum")
_LIBRARIES: Final = (
    r"fsspec|pyarrow\.fs|psycopg|urllib\.request|http\.client|requests|httpx|aiohttp|ftplib|smtplib"
    r"|paramiko|boto3|subprocess|multiprocessing"
)
LIBRARIES: Final = re.compile(rf"({_LIBRARIES})(\.|\Z)")
MENTIONED: Final = re.compile(
    rf"(import|from|needed|import_module)\b.*\n?.*\b({_LIBRARIES}|urllib|pyarrow|http)\b"
)
"""In every text that uses one: texts are looked at before they are parsed."""
ALLOWED: Final = {
    "kvorum/transfer/places.py": "the door's own: opened by kvorum/transfer/allowed_places.py",
    "kvorum/transfer/postgresql.py": "the same, of databases",
    "kvorum/sql/dumping.py": "a client's, of its own cluster",
    "kvorum/security/bounded_http.py": "the issuer and the keeper of logs that its settings name",
    "kvorum/programs/localcluster.py": "a command's, that starts nodes of this machine",
}
"""Who may use libraries that open what a URL or a path names, and why."""
OPENERS: Final = frozenset({"place_of", "Directory", "Remote", "FsspecPlace"})
OPENING: Final = {
    "kvorum/transfer/places.py": "makes them",
    "kvorum/transfer/allowed_places.py": "asks the list of places before",
    "kvorum/transfer/create_table.py": "runs in a command alone, for its user",
}


@functools.cache
def _modules() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for package in SERVERS
        for path in (ROOT / package).rglob("*.py")
        if path.parent.name not in ("cli", "verify", "workloads")  # of commands
    }


def _used(tree: ast.Module) -> Iterator[str]:
    """Modules that it imports, by `needed` too."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{one.name}" for one in names)
            case ast.Call(
                func=ast.Name(id="needed") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module


def _reaches(tree: ast.Module) -> bool:
    return any(map(LIBRARIES.match, _used(tree)))


def _opens(tree: ast.Module) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id in OPENERS for called in calls)


@pytest.mark.parametrize(
    ("does", "named", "allowed"),
    [(_reaches, MENTIONED, ALLOWED), (_opens, re.compile("|".join(OPENERS)), OPENING)],
    ids=["libraries", "places"],
)
def test_u13_nothing_else_opens_what_a_client_names(
    does: Callable[[ast.Module], bool], named: re.Pattern[str], allowed: dict[str, str]
) -> None:
    """A new procedure, verb or hook would have a node read its files, or ask any server, by way of
    its own instead of Services.place, which asks transfer_places.
    """
    found = {name: text for name, text in _modules().items() if named.search(text)}
    assert {name for name, text in found.items() if does(ast.parse(text))} == set(allowed)
