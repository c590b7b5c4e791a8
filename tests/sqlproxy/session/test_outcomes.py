"""What an error of the store's commit is to SQL's clients."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kv.mvcc.refusals import condition_failed
from sqlproxy.session.state.outcomes import refused
from sqlproxy.values.errors import SqlError


class Writer:
    def violated(self, key: bytes) -> SqlError:
        return SqlError("23505", "duplicate key")


class Changed:
    """An outcome of a change of one table."""

    again = False
    writers = (Writer(),)


@pytest.mark.parametrize(("wanted", "told"), [(0, "23505"), (7, "40001")])
@pytest.mark.parametrize("there", [0, 9])
def test_p10_a_row_that_was_changed_meanwhile_is_no_duplicate(
    wanted: int, told: str, there: int
) -> None:
    """Who changed more rows than a block locks, and met another's change, was told of a duplicate
    key: clients run 40001 again, and not that.
    """
    error = condition_failed(b"key", wanted, there or 9 - wanted, None)
    assert refused(error, [cast(Any, Changed())]).sqlstate == told
