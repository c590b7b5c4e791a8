"""Two sessions at READ COMMITTED whose statements come in some order, as PostgreSQL 15 answers
them, and the rows that they leave: recorded by scripts/record_sql_interleavings.py.

differences.json: case → why it ends otherwise here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import pytest

from scripts.record_sql_interleavings import DEADLOCK, HERE, Server, cases
from tests.clients.sql.conftest import started
from tests.kit.each import each
from tests.kit.processes import NodeProcess

node = pytest.fixture(scope="module", name="node")(started)

RECORDED: dict[str, list[list[Any]]] = {
    name: json.loads((HERE / f"{name}.json").read_text("utf-8"))
    for name in ("cases", "generated", "deferrable", "deferrable_generated")
}
NAMES = ("cases", "deferrable")
DIFFERENT: dict[str, str] = json.loads((HERE / "differences.json").read_text("utf-8"))
SOME, OTHERS = (
    {
        name: [one for at, one in enumerate(RECORDED[name]) if (at % 4 == 0) is some]
        for name in NAMES
    }
    for some in (True, False)
)
STRIDE = 20
WAITING = "select count(distinct holder) from kvorum.locks where waiting"


@pytest.fixture(scope="module")
def server(node: NodeProcess) -> Iterator[Server]:
    """A database with the tables of the cases."""
    address = f"host=127.0.0.1 port={node.base + 3} user=kvorum"
    found = Server(address, "interleavings", waiting=WAITING)
    yield found
    found.close()


@pytest.fixture(scope="module")
def deferrable(node: NodeProcess) -> Iterator[Server]:
    """A database with deferrable constraints."""
    address = f"host=127.0.0.1 port={node.base + 3} user=kvorum"
    found = Server(address, "deferring", waiting=WAITING, world="deferrable")
    yield found
    found.close()


def plain(case: list[Any]) -> list[Any]:
    """Without who waited, as PostgreSQL does also for what is refused then, and the order of rows,
    which none is asked for in RETURNING.
    """

    def said(answer: list[Any]) -> Any:
        return sorted(answer[-1]) if isinstance(answer[-1], list) else answer[-1]

    return [case[0], *([said(one) for one in answers] for answers in case[1:3]), case[3]]


def compare(
    server: Server, recorded: list[Any], of: Callable[[list[Any]], list[Any]] = list
) -> None:
    found, wanted = of(server.asked(recorded[0])), of(recorded)
    if (found == wanted) is (recorded[0] in DIFFERENT):
        # What a commit leaves is put away behind it: who comes at once may wait for a moment.
        found = of(server.asked(recorded[0]))
    if recorded[0] in DIFFERENT:
        assert found != wanted, "it is the same now: take it out of differences.json"
    else:
        assert found == wanted


@each("recorded", SOME["cases"], ids=itemgetter(0))
def test_p10_two_sessions_end_as_in_postgresql(server: Server, recorded: list[Any]) -> None:
    """A statement that waited sees another row than in PostgreSQL, or is refused."""
    compare(server, recorded)


@pytest.mark.slow
@each("recorded", OTHERS["cases"], ids=itemgetter(0))
def test_p10_other_two_sessions_end_as_in_postgresql(server: Server, recorded: list[Any]) -> None:
    """The same of what `make test` leaves out."""
    compare(server, recorded)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(RECORDED["generated"]), STRIDE))
def test_p10_any_order_of_two_sessions_ends_as_in_postgresql(server: Server, first: int) -> None:
    """An update is lost, a row is changed that is not meant any more, or one is refused, in some
    order of the statements of two sessions.
    """
    for recorded in RECORDED["generated"][first : first + STRIDE]:
        compare(server, recorded, plain)


@pytest.mark.slow
@each("recorded", SOME["deferrable"], ids=itemgetter(0))
def test_p11_deferrable_constraints_end_as_in_postgresql(
    deferrable: Server, recorded: list[Any]
) -> None:
    """Rows that share a key for a moment are refused, or are not found, or stay so."""
    compare(deferrable, recorded, plain)


@pytest.mark.slow
@each("recorded", OTHERS["deferrable"], ids=itemgetter(0))
def test_p11_other_deferrable_constraints_end_as_in_postgresql(
    deferrable: Server, recorded: list[Any]
) -> None:
    """The same of what `make test` leaves out."""
    compare(deferrable, recorded, plain)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(RECORDED["deferrable_generated"]), STRIDE))
def test_p11_deferrable_constraints_end_alike_in_any_order(deferrable: Server, first: int) -> None:
    """Two rows are committed with one key, or an entry of the index leads nowhere, in some order of
    statements of two sessions.
    """
    for recorded in RECORDED["deferrable_generated"][first : first + STRIDE]:
        compare(deferrable, recorded, plain)


def test_what_is_recorded_of_interleavings_is_what_is_asked() -> None:
    """A case was added and not recorded, so it is not compared; or a difference is of no case."""
    assert list(cases()) == [one[0] for one in RECORDED["cases"]]
    assert list(cases("deferrable")) == [one[0] for one in RECORDED["deferrable"]]
    assert DIFFERENT.keys() <= {one[0] for found in RECORDED.values() for one in found}
    assert DEADLOCK not in json.dumps(RECORDED)
