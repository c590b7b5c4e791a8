"""Long answers take turns, so that who wants one row waits for one piece of them."""

from __future__ import annotations

import asyncio
import time

import pytest

from kv.base.accounts import USER, Account
from kv.base.fair_turns import FairTurns


@pytest.mark.parametrize("answers", [1, 2, 40])
def test_p1_one_piece_in_each_pass_of_the_loop(answers: int) -> None:
    """Sixty answers that nobody reads make everybody wait for sixty pieces."""
    pieces: list[tuple[int, int]] = []  # pass of the loop, answer

    async def run() -> None:
        loop, passes, over = asyncio.get_running_loop(), 0, False

        def passed() -> None:
            nonlocal passes
            passes += 1
            if not over:
                loop.call_soon(passed)

        turns, who = FairTurns(time.monotonic), Account(USER, "a", lambda: 0, shown=True)

        async def answer(number: int) -> None:
            for _ in range(5):
                await turns.turn(who)
                pieces.append((passes, number))

        loop.call_soon(passed)
        await asyncio.gather(*map(answer, range(answers)))
        over = True

    asyncio.run(run())
    assert len(pieces) == 5 * answers
    assert len({at for at, _ in pieces}) == len(pieces)
    order = [number for _, number in pieces]
    assert order == list(range(answers)) * 5, "nobody waits for another one's second piece"
    assert pieces[-1][0] <= 3 * len(pieces), "and none is passed over"


def test_p1_who_goes_away_while_waiting_is_passed_over() -> None:
    """A statement that is cancelled would keep the others waiting for ever."""

    async def run() -> None:
        turns, who = FairTurns(time.monotonic), Account(USER, "a", lambda: 0, shown=True)
        waiting = [asyncio.create_task(turns.turn(who)) for _ in range(4)]
        await asyncio.sleep(0)
        for gone in waiting[:3]:
            gone.cancel()
        await asyncio.wait_for(waiting[3], 5)
        await asyncio.wait_for(turns.turn(who), 5)

    asyncio.run(run())
