"""The real clock and timers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import uvloop

from kv.base.adapters import LoopTimers, SystemClock

_SHIFTED = """
import asyncio, time
from kv.base.adapters import LoopTimers, SystemClock
loop = asyncio.new_event_loop()
for clock in (SystemClock(), LoopTimers(loop)):
    print(round((clock.monotonic() - time.monotonic()) / 1_000))
"""


def test_time_of_a_suspension_counts() -> None:
    """CLOCK_MONOTONIC stands still meanwhile: leases of who wakes would seem to hold. Here the two
    clocks are apart as after a suspension, by a name space of time.
    """
    shift = ["unshare", "--time", "--boottime", "100000"]
    if subprocess.run([*shift, "true"], check=False, capture_output=True).returncode:
        assert SystemClock.monotonic.args == (time.CLOCK_BOOTTIME,)
        return
    ran = subprocess.run(
        [*shift, sys.executable, "-c", _SHIFTED], check=True, capture_output=True, text=True
    )
    assert ran.stdout.split() == ["100", "100"]


@pytest.mark.parametrize("policy", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_timer_is_never_due_before_its_time(
    policy: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Loops count in milliseconds: who looks at the clock too early waits for another round."""

    async def main() -> None:
        timers = LoopTimers(asyncio.get_running_loop())
        early: list[float] = []
        done = asyncio.Event()
        left = 60

        def fired(due: float) -> None:
            nonlocal left
            early.append(due - timers.monotonic())
            left -= 1
            if not left:
                done.set()

        for i in range(left):
            delay_s = 0.001 + i * 0.00073
            timers.call_later(delay_s, fired, timers.monotonic() + delay_s)
        await done.wait()
        assert max(early) <= 0

    with asyncio.Runner(loop_factory=policy) as runner:
        runner.run(main())
