"""Schema changes are procedures, whoever asks for them, and races of them leave no ruins (J1)."""

from __future__ import annotations

import ast
import itertools
import threading
from collections.abc import Callable

import pytest

import kvorum
from tests.kit.machine import ROOT

WRITERS = {
    "create_namespace",
    "create_table_record",
    "drop_namespace",
    "finish_drop",
    "next_table_id",
    "publish",
    "start_drop",
}
_numbers = itertools.count(1)


@pytest.mark.slow
def test_j1_no_surface_writes_the_catalog_itself() -> None:
    """A change that is no procedure would be half done after a crash."""
    found = []
    for path in (ROOT / "kvorum").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "catalog"
                and node.attr in WRITERS
            ):
                found.append(f"{path.name}:{node.lineno}")
            elif isinstance(node, ast.ImportFrom) and node.module == "sqlproxy.catalog.catalog":
                found += [f"{path.name}: {a.name}" for a in node.names if a.name in WRITERS]
    assert not found


def at_once(*calls: Callable[[], object]) -> list[object]:
    """What each returned or raised."""
    ended: list[object] = [None] * len(calls)

    def run(i: int) -> None:
        try:
            ended[i] = calls[i]()
        except kvorum.KvorumError as error:
            ended[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


@pytest.mark.slow
def test_j1_namespace_dropped_while_a_table_is_made(db: kvorum.Database) -> None:
    """A table would be left in a namespace that is gone, or partitions without a table."""
    for _ in range(8):
        ns = f"race{next(_numbers)}"
        db.create_namespace(ns)
        before = len(db.partitions())
        made, dropped = at_once(
            lambda: db.create_table(ns, "t", split_keys=["m"]),  # noqa: B023
            lambda: db.drop_namespace(ns),  # noqa: B023
        )
        if isinstance(dropped, kvorum.KvorumError):
            assert dropped.code == "NAMESPACE_NOT_EMPTY", dropped
            assert not isinstance(made, kvorum.KvorumError)
            assert [t.name for t in db.tables(ns)] == ["t"]
            assert len(db.partitions()) == before + 2
            db.table(ns, "t").put("k", b"v")
            db.drop_table(ns, "t")
            db.drop_namespace(ns)
        else:
            assert isinstance(made, kvorum.NotFound), made
        assert ns not in db.namespaces()
        assert len(db.partitions()) == before


def test_j1_one_of_many_creates_wins(db: kvorum.Database) -> None:
    """Two tables would share a name, and a drop would take the wrong one's data."""
    name = f"many{next(_numbers)}"
    ended = at_once(*[lambda: db.create_table("default", name)] * 6)
    refused = [e for e in ended if isinstance(e, kvorum.KvorumError)]
    assert len(refused) == 5
    assert {type(e) for e in refused} == {kvorum.AlreadyExists}
    assert [t.name for t in db.tables("default")].count(name) == 1
    ended = at_once(*[lambda: db.drop_table("default", name)] * 4)
    assert sum(isinstance(e, kvorum.NotFound) for e in ended) == 3, ended
