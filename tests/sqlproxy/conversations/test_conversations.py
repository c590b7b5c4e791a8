"""Sequences of messages as PostgreSQL 15 answers them, and the rows that they leave: recorded by
scripts/record_sql_conversations.py.

differences.json: case → why it is answered otherwise here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.record_sql_conversations import GENERATED, HERE, Server, cases, files, generated
from tests.clients.sql.conftest import started
from tests.kit.each import each
from tests.kit.processes import NodeProcess

node = pytest.fixture(scope="module", name="node")(started)

RECORDED: dict[str, list[list[Any]]] = {
    name: json.loads((HERE / f"{name}.json").read_text("utf-8")) for name in files()
}
BY_HAND = [one for name, found in RECORDED.items() if name != GENERATED for one in found]
DIFFERENT: dict[str, str] = json.loads((HERE / "differences.json").read_text("utf-8"))
SOME = BY_HAND[::4]
OTHERS = [one for at, one in enumerate(BY_HAND) if at % 4]
STRIDE = 50


@pytest.fixture(scope="module")
def server(node: NodeProcess) -> Iterator[Server]:
    """A database with the tables of the cases."""
    found = Server(f"host=127.0.0.1 port={node.base + 3} user=kvorum", "conversations")
    yield found
    found.close()


@each("recorded", SOME, ids=[one[0] for one in SOME])
def test_messages_end_as_in_postgresql(server: Server, recorded: list[Any]) -> None:
    """A client waits for an answer that never comes, is told another state, or finds other rows."""
    compare(server, recorded)


@pytest.mark.slow
@each("recorded", OTHERS, ids=[one[0] for one in OTHERS])
def test_other_messages_end_as_in_postgresql(server: Server, recorded: list[Any]) -> None:
    """The same of what `make test` leaves out."""
    compare(server, recorded)


def compare(server: Server, recorded: list[Any]) -> None:
    found = server.asked(recorded[0])
    if recorded[0] in DIFFERENT:
        assert found != recorded, "it is the same now: take it out of differences.json"
    else:
        assert found == recorded


@pytest.mark.few(1)
@pytest.mark.parametrize("first", range(0, len(RECORDED[GENERATED]), STRIDE))
def test_statements_of_transactions_do_what_postgresql_does(server: Server, first: int) -> None:
    """A write that was rolled back stays, or one that was committed is lost, in some order of
    statements, split somehow over messages and pipelines.
    """
    for recorded in RECORDED[GENERATED][first : first + STRIDE]:
        assert server.asked(recorded[0]) == recorded


def test_what_is_recorded_of_conversations_is_what_is_asked() -> None:
    """A case was added and not recorded, so it is not compared; or a difference is of no case."""
    asked = {name: list(cases(HERE / f"{name}.txt")) for name in files() if name != GENERATED}
    asked[GENERATED] = list(generated())
    assert {name: [one[0] for one in found] for name, found in RECORDED.items()} == asked
    by_hand = [one[0] for one in BY_HAND]
    assert len(set(by_hand)) == len(by_hand)
    assert set(DIFFERENT) <= set(by_hand)
    assert len(DIFFERENT) * 10 < len(by_hand)
