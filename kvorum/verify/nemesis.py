"""Hurts a local cluster as a plan says, and heals it.

Only nodes of the cluster's own directory are touched, which are known by pid and start time, and of
those only what was whole at the beginning: a node that was dead then stays dead. After `heal`,
which looks at what is rather than at what it did, every other node runs, awake and uncut.

Whatever blocks (signals, starts, waits) runs in a thread, one at a time; `heal` first waits for the
one that is under way, so a cancelled run cannot break anything unseen.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, assert_never

from kv.base.adapters import LoopTimers, SystemRng
from kv.base.errors import KvorumError, Unavailable
from kv.client.client import connect
from kvorum.api.verbs import LINKS
from kvorum.connecting import aconnect
from kvorum.programs.localcluster import LocalCluster, LocalNode
from kvorum.verify.plan import Fault

T = TypeVar("T")
Cut = int | list[int | str]
"""An entry of the method LINKS: a node, or a node and the way that is cut."""

_ASK_MS: Final = 3_000
_STOP_S: Final = 20.0


class Nemesis:
    """See the module. `on_act(what, nodes)` is called for every fault and every healing."""

    def __init__(
        self,
        cluster: LocalCluster,
        faults: Sequence[Fault],
        on_act: Callable[[str, list[int]], None],
    ) -> None:
        """Raises Unavailable if a majority of the nodes does not run."""
        self._cluster = cluster
        self._faults = faults
        self._on_act = on_act
        self._whole = [node.id for node in cluster.nodes if node.state() == "running"]
        self._options = {number: cluster.options(number) for number in self._whole}
        self.deaths: list[str] = []
        """Nodes that ended though nobody killed them, or did not come back, with what they say."""
        self._under_way: asyncio.Future[Any] | None = None
        self._ended: set[int] = set()  # by the nemesis, and not started again yet
        if 2 * len(self._whole) <= len(cluster.nodes):
            raise Unavailable(
                f"{len(self._whole)} of {len(cluster.nodes)} nodes in {cluster.directory} run: "
                f"start them with `kvorum cluster up --data {cluster.directory}`"
            )

    async def run(self) -> None:
        """All faults, each at its time from now. A fault that cannot be done (the node is gone
        already, nobody knows the leader) is reported and passed over.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        for fault in self._faults:
            await asyncio.sleep(max(0.0, began + fault.at_s - loop.time()))
            try:
                await self._start(self._bury())
                await self._inflict(fault)
            except KvorumError as e:
                self._on_act(f"{fault.kind} {fault.shape} passed over: {e.code}", [])

    async def heal(self) -> None:
        """Wake, uncut, start and wait until all are ready. Raises Unavailable if one is not."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
        for number in self._whole:
            if self._cluster.node(number).state() == "paused":
                self._cluster.signal(number, signal.SIGCONT)
        self._bury()
        dead = [n for n in self._whole if self._cluster.node(n).state() == "dead"]
        for number in self._whole:
            if number not in dead:
                await set_links(self._cluster.node(number), [])
        await self._start(dead, wait=False)
        await self._ready(self._whole)
        self._on_act("healed", self._whole)

    def _bury(self) -> list[int]:
        """Nodes that ended by themselves: they are reported, and to be started again."""
        found = []
        for number in self._whole:
            if number not in self._ended and self._cluster.node(number).state() == "dead":
                said = self._cluster.tail(number, 1)
                self.deaths.append(f"node {number} ended by itself; its log ends with: {said}")
                self._on_act("died", [number])
                found.append(number)
        return found

    # ---------------------------------------------------------------------------------- faults

    async def _inflict(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                victims = await self._victims(fault)
                self._on_act("kill", victims)
                for number in victims:
                    self._ended.add(number)
                    await self._signal(number, signal.SIGKILL)
                await asyncio.sleep(fault.lasts_s)
                await self._start(victims)
            case "pause":
                victims = await self._victims(fault)
                self._on_act("pause", victims)
                for number in victims:
                    await self._signal(number, signal.SIGSTOP)
                await asyncio.sleep(fault.lasts_s)
                for number in victims:
                    await self._signal(number, signal.SIGCONT)
                self._on_act("resume", victims)
            case "cut":
                await self._cut(fault)
            case "restart":
                victims = await self._victims(fault)
                self._on_act("restart", victims)
                for number in victims:
                    self._ended.add(number)
                    await self._thread(partial(self._cluster.stop, number, within_s=_STOP_S))
                await asyncio.sleep(fault.lasts_s)
                await self._start(victims)
            case _:
                assert_never(fault.kind)

    async def _victims(self, fault: Fault) -> list[int]:
        if fault.shape == "all":
            return list(self._whole)
        if fault.shape == "leader":
            return [await self._leader(fault.draw)]
        return [self._whole[int(fault.draw * len(self._whole))]]

    async def _leader(self, draw: float) -> int:
        """The leader of some partition. Raises Unavailable."""
        living = [n for n in self._whole if self._cluster.node(n).state() == "running"]
        url = ",".join(self._cluster.node(n).address for n in living or self._whole)
        async with await aconnect(url, timeout_ms=_ASK_MS) as db:
            rows = await db.partitions()
        leaders = [row["leader"] for row in rows if row["leader"] in self._whole]
        if not leaders:
            raise Unavailable("no partition has a leader now")
        return int(leaders[int(draw * len(leaders))])

    async def _cut(self, fault: Fault) -> None:
        """Both ends of a cut hear of it, so that it outlives a restart of either."""
        blocked, text = await self._shape_of_cut(fault)
        self._on_act(f"cut {text}", [])
        try:
            for number, cuts in blocked.items():
                await set_links(self._cluster.node(number), cuts)
            await asyncio.sleep(fault.lasts_s)
        finally:
            for number in blocked:
                await set_links(self._cluster.node(number), [])
        self._on_act("uncut", sorted(blocked))

    async def _shape_of_cut(self, fault: Fault) -> tuple[dict[int, list[Cut]], str]:
        """What each node is to be cut off from, and the cut in words."""
        nodes = self._whole
        if fault.shape == "ring":
            at = int(fault.draw * len(nodes))
            one, other = nodes[at], nodes[(at + 1) % len(nodes)]
            return {one: [other], other: [one]}, f"{one} from {other}"
        if fault.shape == "one-way":
            mute = await self._leader(fault.draw)
            deaf: dict[int, list[Cut]] = {n: [[mute, "in"]] for n in nodes if n != mute}
            return deaf, f"one way: nobody hears {mute}"
        leads = fault.shape == "leader"
        first = await self._leader(fault.draw) if leads else nodes[int(fault.draw * len(nodes))]
        size = 1 if leads else (len(nodes) - 1) // 2
        turned = nodes[nodes.index(first) :] + nodes[: nodes.index(first)]
        side, rest = turned[:size], turned[size:]
        blocked: dict[int, list[Cut]] = {n: list(rest) for n in side}
        blocked |= {n: list(side) for n in rest}
        names = (",".join(map(str, part)) for part in (side, rest))
        return blocked, " from ".join(names)

    # ------------------------------------------------------------------------------------- how

    async def _signal(self, number: int, what: signal.Signals) -> None:
        await self._thread(lambda: self._cluster.signal(number, what))

    async def _start(self, numbers: Sequence[int], *, wait: bool = True) -> None:
        for number in numbers:
            start = partial(self._cluster.start, number, self._options[number])
            await self._thread(start)
        if not wait or not numbers:
            return
        try:
            await self._ready(numbers)
        except Unavailable as e:
            self.deaths.append(f"did not come back: {e.message}")
            raise
        self._ended.difference_update(numbers)
        self._on_act("ready", list(numbers))

    async def _ready(self, numbers: Sequence[int]) -> None:
        await self._thread(
            partial(self._cluster.wait_ready, list(numbers), on_ready=lambda _number: None)
        )

    async def _thread(self, call: Callable[[], T]) -> T:
        """Run what blocks. Cancelled, it goes on: `heal` waits for it."""
        loop = asyncio.get_running_loop()
        self._under_way = loop.run_in_executor(None, call)
        return await asyncio.shield(self._under_way)


async def set_links(node: LocalNode, cuts: Sequence[Cut] | None) -> list[Cut]:
    """What a node is cut off from, from now on (None: only ask). Raises Unavailable."""
    host, _, port = node.address.rpartition(":")
    address = (host, int(port))
    timers = LoopTimers(asyncio.get_running_loop())
    client = await connect([address], timers=timers, rng=SystemRng(), budget_ms=_ASK_MS)
    try:
        # This very node, and no other one in its place.
        (now,) = await client.call_at(address, LINKS, cuts, budget_ms=_ASK_MS)
    finally:
        client.close()
    return list(now)
