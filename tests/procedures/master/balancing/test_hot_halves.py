"""What follows a split by load (H5)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from procedures.engine import plain_data
from procedures.master.members.move_apart import MOVE_APART
from procedures.master.shape.splitter import SPLIT, _Work
from tests.procedures.master.test_splitter import Lab


@pytest.mark.parametrize(("how", "moves"), [("load", True), ("middle", False), ("end", False)])
def test_h5_the_new_half_of_a_hot_partition_is_moved_away(how: str, moves: bool) -> None:
    """Of one that was split by its size, both halves may stay."""

    async def main() -> None:
        lab = Lab()
        result = plain_data.encode({"partition": 2, "new": 9, "key": b"m"}, "result", 1_000)
        lab.records[77] = SimpleNamespace(ended=True, error=None, result=result)
        lab.splitter._working.append(_Work(77, SPLIT, (2,), how))
        await lab.look()
        found = [(sub.name, sub.args) for sub in lab.submitted]
        assert found == ([(MOVE_APART, {"partition": 9, "beside": 2})] if moves else [])

    asyncio.run(main())
