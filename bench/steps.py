"""The procedures that are measured. `bench.steps`: so many steps, each of which keeps a value of so
many bytes. The peers' workflow does the same: its steps return the value, which is stored with the
step.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import kvorum


@kvorum.procedure("bench.steps")
class Steps:
    """args: {"steps": how many, "size": bytes kept by each}

    The first one has no effect outside, and says so: it is stored with its submission where that
    is possible (docs/decisions/0520). Each step is durable before the next one begins, and the
    submission before it is answered, as the peers' are.
    """

    @kvorum.step(first=True, early=True)
    async def work(self, ctx: Any) -> Any:
        done = ctx.state.get("done", 0) + 1
        ctx.state["done"] = done
        ctx.state["value"] = "v" * ctx.args["size"]
        return kvorum.done(done) if done >= ctx.args["steps"] else kvorum.next("work")


@kvorum.procedure("bench.ticks")
class Ticks:
    """args: {"steps": how many, "pause_s": how long each takes}

    Its result: who ran each step and when, [process id, monotonic seconds] in order: of the node or
    the worker, beside which steps run. The clock is the machine's, so that processes can be
    compared.
    """

    @kvorum.step(first=True)
    async def tick(self, ctx: Any) -> Any:
        ticks = ctx.state.setdefault("ticks", [])
        ticks.append([os.getppid(), time.monotonic()])
        await asyncio.sleep(ctx.args["pause_s"])
        return kvorum.done(ticks) if len(ticks) >= ctx.args["steps"] else kvorum.next("tick")


@kvorum.procedure("bench.waits")
class Waits:
    """Waits for an event that nobody signals, with 100 bytes of state."""

    @kvorum.step(first=True)
    async def wait(self, ctx: Any) -> Any:
        ctx.state["value"] = "v" * 100
        return kvorum.suspend(event="bench.never", timeout_ms=86_400_000, then="end")

    @kvorum.step
    async def end(self, ctx: Any) -> Any:
        return kvorum.done(None)


@kvorum.procedure("bench.queues", locks=[kvorum.exclusive("bench/one")])
class Queues:
    """All want the same lock, and the first keeps it."""

    @kvorum.step(first=True)
    async def wait(self, ctx: Any) -> Any:
        return kvorum.suspend(event="bench.never", timeout_ms=86_400_000, then="end")

    @kvorum.step
    async def end(self, ctx: Any) -> Any:
        return kvorum.done(None)
