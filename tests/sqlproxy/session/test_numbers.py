"""Numbers of one run of a statement: what is computed again gets the same ones."""

from __future__ import annotations

import pytest

from sqlproxy.front.bound.env import Wanting
from sqlproxy.front.bound.exprs import Once
from sqlproxy.pgcatalog.oids import relation
from sqlproxy.rows.schema import ROWID, Sequence
from sqlproxy.session.running.numbers import Numbers
from sqlproxy.values.errors import SqlError

ONE, OTHER = Sequence(7, "shop", "s"), Sequence(8, "shop", "o")
OF_S, OF_O = relation(ONE.id), relation(OTHER.id)
THERE = (OF_S, OF_O)


def test_a_row_that_is_computed_again_asks_with_the_same_answers() -> None:
    """A row that had to wait for its last number would take the others twice."""
    currvals = {OF_S: 3}
    numbers = Numbers(currvals)
    numbers.add("s", ONE, [4, 5], 1)
    numbers.begin()
    assert (numbers.currval(OF_S, "s"), numbers.nextval("s"), numbers.nextval("s")) == (3, 4, 5)
    with pytest.raises(Wanting) as caught:
        numbers.nextval("s")
    assert caught.value.name == "s"
    numbers.add("s", ONE, [6, 7], 1)
    numbers.again()
    assert (numbers.currval(OF_S, "s"), numbers.nextval("s"), numbers.nextval("s")) == (3, 4, 5)
    assert (numbers.nextval("s"), numbers.lastval(THERE)) == (6, 6)
    numbers.begin()
    assert numbers.nextval("s") == 7
    numbers.end()
    assert currvals == {OF_S: 7, 0: OF_S}


def test_another_way_by_chance_takes_new_numbers() -> None:
    """A number of one sequence would be given out as one of another."""
    numbers = Numbers({})
    numbers.add("s", ONE, [1, 2], 1)
    numbers.add("o", OTHER, [10], 1)
    numbers.begin()
    assert numbers.nextval("s") == 1
    numbers.again()
    assert numbers.nextval("o") == 10
    assert numbers.nextval("s") == 2


def test_setval_waits_and_drops_what_was_reserved() -> None:
    """nextval() behind setval() in the same row would go on from before."""
    numbers = Numbers({})
    assert not numbers.setval("s", 5, True)  # nobody waits: it is done behind the last row
    numbers.add("s", ONE, [1, 2, 3], 1)
    numbers.begin()
    assert numbers.nextval("s") == 1
    with pytest.raises(Wanting) as caught:
        numbers.setval("s", 50, True)
    assert (caught.value.name, caught.value.value, caught.value.called) == ("s", 50, True)
    numbers.was_set("s", ONE, 50, True)
    numbers.again()
    assert numbers.nextval("s") == 1
    assert numbers.setval("s", 50, True)
    assert (numbers.currval(OF_S, "s"), numbers.lastval(THERE), numbers.left("s")) == (50, 50, 0)
    with pytest.raises(Wanting):
        numbers.nextval("s")
    with pytest.raises(Wanting):
        numbers.setval("s", 51, False)


def test_lastval_is_about_nextval_only() -> None:
    """setval() of another sequence would change it."""
    numbers = Numbers({})
    numbers.add("s", ONE, [1], 1)
    assert numbers.nextval("s") == 1
    numbers.set(OTHER, 9, called=True)
    assert (numbers.lastval(THERE), numbers.currval(OF_O, "o")) == (1, 9)
    numbers.set(ONE, 7, called=True)
    assert numbers.lastval(THERE) == 7
    numbers.set(ONE, 8, called=False)
    assert numbers.currval(OF_S, "s") == 7


class Pool:
    def __init__(self) -> None:
        self.back: list[tuple[int, list[int], int]] = []

    def give_back(self, sequence: Sequence, values: list[int], run: int) -> None:
        self.back.append((sequence.id, values, run))


def test_what_is_left_goes_back_once() -> None:
    """A number that was used would be given out again."""
    numbers, pool = Numbers({}), Pool()
    numbers.add("s", ONE, [1, 2, 3], 6)
    assert numbers.nextval("s") == 1
    numbers.give_back(pool)  # type: ignore[arg-type]
    numbers.give_back(pool)  # type: ignore[arg-type]
    assert pool.back == [(7, [2, 3], 6)]


def test_more_is_asked_for_each_time() -> None:
    """Each row of a query would change the store, or one row reserve for all."""
    numbers = Numbers({})
    asked = []
    for _ in range(14):
        asked.append(numbers.more("s", 10_000))
        numbers.add("s", ONE, [1] * asked[-1], 1)
    assert asked == [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]
    assert numbers.more("s", 3) == 3


def test_what_is_computed_once_shows_behind_itself() -> None:
    """currval() before it in the row would tell its number, or behind it not."""
    currvals = {OF_S: 3, 0: OF_S}
    numbers, once = Numbers(currvals), Once()
    numbers.begin()
    assert numbers.currval(OF_S, "s") == 3
    with pytest.raises(Wanting) as caught:
        numbers.once(once, [])
    assert caught.value.once is once
    before = numbers.standing()
    currvals.update({OF_O: 9, 0: OF_O})  # a query of its own took a number
    once.known["[]"] = 9
    numbers.was_done(once, before)
    numbers.again()
    assert (numbers.currval(OF_S, "s"), numbers.lastval(THERE)) == (3, 3)
    assert (numbers.once(once, []), numbers.lastval(THERE), numbers.currval(OF_O, "o")) == (9, 9, 9)
    numbers.begin()
    numbers.add("s", ONE, [4], 1)
    assert (numbers.nextval("s"), numbers.once(once, []), numbers.lastval(THERE)) == (4, 9, 4)


def test_rows_of_a_table_without_a_key_are_numbered_unseen() -> None:
    """lastval() would tell the number of a row instead of the sequence's."""
    numbers = Numbers({OF_S: 3, 0: OF_S})
    numbers.add("hidden", Sequence(9, "shop", ROWID), [1], 1)
    assert (numbers.nextval("hidden"), numbers.lastval(THERE)) == (1, 3)


def test_lastval_of_what_was_dropped_is_unknown() -> None:
    """It would tell a number of what is not there any more (PostgreSQL: 55000)."""
    numbers = Numbers({OF_S: 3, 0: OF_S})
    with pytest.raises(SqlError) as caught:
        numbers.lastval((OF_O,))
    assert caught.value.sqlstate == "55000"
