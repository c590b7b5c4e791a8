"""A pipeline: 1,000 parts are counted, each by a procedure of its own, and their counts are summed.

python -m demo.samples.pipeline   in a directory of its own; kill it, and start it again
"""

from __future__ import annotations

from collections import Counter

import kvorum
from demo.samples import outside
from kvorum import procedures

PARTS = 1_000


def read(ctx: kvorum.StepContext, part: int) -> dict[str, int]:
    outside.ask(ctx.token, f"read part {part}")
    return dict(Counter(["even" if n % 2 == 0 else "odd" for n in range(part)]))


@kvorum.workflow("part")
async def part(flow: kvorum.Flow, number: int) -> dict[str, int]:
    return await flow.step(read, number)


@kvorum.workflow("pipeline")
async def pipeline(flow: kvorum.Flow, parts: int) -> dict[str, int]:
    counts = await flow.gather(*[flow.start(part, n) for n in range(parts)])
    return dict(sum(map(Counter, counts), Counter()))


if __name__ == "__main__":
    with procedures.open("pipelines", procedures=[part, pipeline]) as p:
        print(p.wait(p.submit(pipeline, PARTS, nonce="pipeline")))
