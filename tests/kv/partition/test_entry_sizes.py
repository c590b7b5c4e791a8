"""What an entry is taken to be long, by rows and by columns."""

from __future__ import annotations

import random

from kv.base.limits import SHIP_OLD_BYTES_MAX
from kv.mvcc.view import Mutations
from kv.partition.entry import size_of


def test_many_rows_weigh_what_they_weigh_alone() -> None:
    """An entry that is longer than it is taken for is refused by the log."""
    chance = random.Random(3)

    def some(most: int) -> bytes | None:
        return chance.choice((None, bytes(chance.randrange(most))))

    many, alone = Mutations(), 0
    for _ in range(200):
        m = Mutations()
        row = (bytes(chance.randrange(1, 9)), some(40), some(20), some(2 * SHIP_OLD_BYTES_MAX))
        row = row if row[2] is not None else (*row[:3], None)
        for one in (m, many):
            one.rows.append(row)
        alone += size_of(m)
    assert size_of(many) == alone
