"""Whether a node that starts has what the others have. For each partition that it does not lead,
the leader says up to where (ReadIndex), and it waits until that is applied. The commit index that
a follower knows of is no measure: right after its start it knows of none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kv.replica.manager import ReplicaManager
from kv.replica.replica import Replica

_AGAIN_S: Final = 0.05


async def caught_up(manager: ReplicaManager, stopped: Callable[[], bool]) -> None:
    """Wait until every replica here has applied all that was committed when this was called.
    Replicas that go meanwhile are not waited for; nothing is when `stopped()`.
    """
    lagging = [replica for replica in manager.replicas() if not replica.leads()]
    while lagging and not stopped():
        answers = [_asked(replica) for replica in lagging]
        await asyncio.wait(answers)
        lagging = [
            replica
            for replica, answer in zip(lagging, answers, strict=True)
            if answer.result() is None  # not known now: a leader changes, or does not answer
            and not replica.leads()
            and manager.replica(replica.descriptor.id) is replica
        ]
        if lagging:
            await asyncio.sleep(_AGAIN_S)


def _asked(replica: Replica) -> asyncio.Future[int | None]:
    answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def done(index: int | None) -> None:
        if not answer.done():
            answer.set_result(index)

    replica.group.read_barrier(done)
    return answer
