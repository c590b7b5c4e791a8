"""Heartbeats: what every node reports to the master about once a second, and what that answers.

    node                                              master (leader of the meta partition)
    Heart ── BEAT node, boot, number, {name: bytes} ──▶ Pulse: alive; each section's `handle`
      ▲  ◀── reign, {name: bytes} ──────────────────── answers for the sections that have some
      └───── BEAT_NOW ──────────────────────────────── a new master, or one with something urgent

A *section* is a named part of a beat with one owner at each side. Both sides are ordinary objects:

    class Node:                                        # every node: `store.heart.add(name, it)`
        def collect(self) -> object | None             # something that msgpack takes; None: nothing
        def take(self, reply: object) -> None          # what the master's half answered
        def again(self) -> None                        # what was collected may be lost, or the
                                                       # master is new: report everything anew
    class Master:                                      # at the master: `store.pulse.add(name, it)`
        def begin(self) -> None                        # a reign begins: what was known is old
        def handle(self, node: int, payload: object | None) -> object | None

`handle` is called for every beat of every node, with None if the node had nothing for it: so a
master can send something to a node that has nothing to say. Beats of one node come in order and
none twice; a lost one is not repeated, `again` is called instead. Whoever wants a beat sooner calls
`Heart.hurry` (at the node) or `Pulse.hurry` (at the master).

Rules: one beat of a node is under way at a time; a section that raises, or reports more than
BEAT_SECTION_BYTES_MAX, is left out and harms no other; a node that is no member is refused, so that
the picture stays bounded. Whether a node lives: procedures/master/map/liveness.py; `Pulse.health`
has it for all.

Who sends a beat has proved to be a node of this cluster, as for all orders between nodes
(kv/server/socket_server.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Protocol

import msgspec

from kv.base.errors import KvorumError, NotLeader, Refused
from kv.base.ids import META_PARTITION
from kv.base.limits import (
    BEAT_AGAIN_MS,
    BEAT_BUDGET_MS,
    BEAT_GAP_MS,
    BEAT_MS,
    BEAT_SECTION_BYTES_MAX,
    BEAT_SECTIONS_MAX,
    NAME_CHARS_MAX,
    NODES_MAX,
    SUSPECT_MS,
)
from kv.base.node_methods import NodesById
from kv.base.ports import Timers
from kv.base.wire_row import WireRow
from kvorum.api.verbs import BEAT, BEAT_NOW
from procedures.master.map.liveness import Health, Liveness

log = logging.getLogger(__name__)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class NodeSection(Protocol):
    """See the module."""

    def collect(self) -> object: ...

    def take(self, reply: object) -> None: ...

    def again(self) -> None: ...


class MasterSection(Protocol):
    """See the module."""

    def begin(self) -> None: ...

    def handle(self, node: int, payload: object) -> object: ...


class Heart:
    """A node's half. `run` until it is cancelled."""

    def __init__(
        self,
        node: int,
        boot: bytes,
        calls: NodesById,
        leader: Callable[[], int | None],
        timers: Timers,
    ) -> None:
        """`boot`: of this process. `leader`: of the meta partition, as far as this node knows."""
        self.beats = self.failed = self.left_out = 0
        self._node, self._boot = node, boot
        self._calls, self._leader, self._timers = calls, leader, timers
        self._sections: dict[str, NodeSection] = {}
        self._number = 0
        self._reign: object = None  # of the last answer
        self._hint: int | None = None  # who called, or was named, as the master
        self._urgent = asyncio.Event()
        self._broken: set[str] = set()  # sections that raised the last time

    def add(self, name: str, section: NodeSection) -> None:
        """Tell this, too. Once per name."""
        _check_new(name, self._sections)
        self._sections[name] = section

    def hurry(self) -> None:
        """Something is urgent: beat soon."""
        self._urgent.set()

    def asked(self, _context: object, args: WireRow) -> WireRow:
        """The method BEAT_NOW."""
        self._hint = args[0]
        self.hurry()
        return [True]

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._urgent.clear()
            pause_ms = BEAT_MS if await self.beat() else BEAT_AGAIN_MS
            await asyncio.sleep(BEAT_GAP_MS / 1000)
            try:
                async with asyncio.timeout((pause_ms - BEAT_GAP_MS) / 1000):
                    await self._urgent.wait()
            except TimeoutError:
                continue

    async def beat(self) -> bool:
        """One beat. False: the master did not take it."""
        hint, self._hint = self._hint, None
        master = hint or self._leader()
        if master is None:
            return False
        self._number += 1
        sections = self._collected()
        try:
            reign, replies = await self._calls.call_at(
                *(master, BEAT, self._node, self._boot, self._number, sections),
                budget_ms=BEAT_BUDGET_MS,
            )
        except KvorumError as error:
            self.failed += 1
            log.debug("beat %d was not taken by node %d: %s", self._number, master, error)
            if isinstance(error, NotLeader) and error.details.get("leader") != master:
                self._hint = error.details.get("leader")
            self._tell_again()
            return False
        self.beats += 1
        if reign != self._reign:
            if self._reign is not None or sections:
                self._tell_again()
                self.hurry()
            self._reign = reign
        self._deliver(replies)
        return True

    def _collected(self) -> dict[str, bytes]:
        sections: dict[str, bytes] = {}
        for name, section in self._sections.items():
            with _Boundary(name, self._left_out):
                packed = _packed(section.collect())
                self._broken.discard(name)
                if packed:
                    sections[name] = packed
        return sections

    def _deliver(self, replies: Mapping[str, bytes]) -> None:
        for name, packed in replies.items():
            section = self._sections.get(name)
            if section is None:
                continue  # the master is of a later version
            with _Boundary(name, self._left_out):
                section.take(_decode(packed))

    def _tell_again(self) -> None:
        for name, section in self._sections.items():
            with _Boundary(name, self._left_out):
                section.again()

    def _left_out(self, name: str, error: Exception) -> None:
        self.left_out += 1
        if name not in self._broken:
            self._broken.add(name)
            log.error("section %s of the heartbeat is left out: %s", name, error, exc_info=error)

    def stats(self) -> dict[str, int]:
        """For metrics."""
        return {
            "beats_sent": self.beats,
            "beats_failed": self.failed,
            "sections_left_out": self.left_out,
        }


class Pulse:
    """The master's half. `role` whenever this node begins or ends to be the master."""

    def __init__(
        self,
        node: int,
        calls: NodesById,
        timers: Timers,
        *,
        dead_after_ms: int,
        token: Callable[[], bytes],
        serves: Callable[[], bool],
        not_master: Callable[[], NotLeader],
    ) -> None:
        """`token`: random, of a reign. `serves`: whether this node is the master now, for sure."""
        self.dead_after_ms = dead_after_ms
        self.taken = self.overtaken = 0
        self._node, self._calls, self._timers = node, calls, timers
        self._token, self._serves, self._not_master = token, serves, not_master
        self._sections: dict[str, MasterSection] = {}
        self._members: tuple[int, ...] = (node,)
        self.on_stranger: Callable[[], object] = lambda: None  # the members table's reader
        self._reign: bytes | None = None
        self._live: Liveness | None = None
        self._broken: set[str] = set()
        self._calling: set[asyncio.Task[None]] = set()

    def add(self, name: str, section: MasterSection) -> None:
        """Answer this section. Once per name."""
        _check_new(name, self._sections)
        self._sections[name] = section

    # ------------------------------------------------------------------------------------ reigns

    def role(self, *, leader: bool) -> None:
        """The meta partition's role at this node changed."""
        if leader == (self._reign is not None):
            return
        if not leader:
            self._reign = self._live = None
            return
        self._reign = self._token()
        self._live = Liveness(
            self._now_ms(),
            suspect_ms=SUSPECT_MS,
            dead_ms=self.dead_after_ms,
            step_ms_max=2 * BEAT_MS,
        )
        for name, section in self._sections.items():
            with _Boundary(name, self._failed):
                section.begin()
        self.hurry()

    def members(self, nodes: Iterable[int]) -> None:
        """Who belongs to the cluster, as the members table has it."""
        found = tuple(sorted({*nodes, self._node}))
        fresh = set(found) - set(self._members)
        self._members = found
        if self._live is not None:
            self._live.keep(found)
            if fresh:
                self.hurry(fresh)

    def hurry(self, nodes: Iterable[int] | None = None) -> None:
        """Ask these (all members, if none is named) for a beat at once. Whoever does not answer
        beats in its time.
        """
        if self._reign is None:
            return
        loop = asyncio.get_running_loop()
        for node in self._members if nodes is None else nodes:
            task = loop.create_task(self._ask(node))
            self._calling.add(task)
            task.add_done_callback(self._calling.discard)

    async def _ask(self, node: int) -> None:
        try:
            await self._calls.call_at(node, BEAT_NOW, self._node, budget_ms=BEAT_BUDGET_MS)
        except KvorumError as error:
            log.debug("node %d was not asked for a beat: %s", node, error)

    async def run(self) -> None:
        """Look at the clock until cancelled: silence is counted while the master is awake."""
        try:
            while True:
                await asyncio.sleep(BEAT_MS / 1000)
                if self._live is not None:
                    self._live.tick(self._now_ms())
        finally:
            for task in list(self._calling):
                task.cancel()

    # ------------------------------------------------------------------------------------- beats

    def handle(self, _context: object, args: WireRow) -> list[object]:
        """The method BEAT. Raises NotLeader, Refused (NOT_A_MEMBER)."""
        live = self._live
        if live is None or not self._serves():
            raise self._not_master()
        node, boot, number, sections = args
        if node not in self._members:
            self.on_stranger()
            raise Refused(
                f"node {node} is no member of this cluster, as far as its master knows",
                code="NOT_A_MEMBER",
                details={"node": node},
            )
        if not live.heard(node, boot, number, self._now_ms()):
            self.overtaken += 1
            return [self._reign, {}]
        self.taken += 1
        replies: dict[str, bytes] = {}
        for name, section in self._sections.items():
            with _Boundary(name, self._failed):
                packed = sections.get(name)
                reply = section.handle(node, None if packed is None else _decode(packed))
                if reply is not None:
                    replies[name] = _packed(reply)
                self._broken.discard(name)
        return [self._reign, replies]

    def _failed(self, name: str, error: Exception) -> None:
        if name not in self._broken:
            self._broken.add(name)
            log.error("section %s of heartbeats failed: %s", name, error, exc_info=error)

    def _now_ms(self) -> float:
        return self._timers.monotonic() * 1000

    # ----------------------------------------------------------------------------------- picture

    @property
    def reigning(self) -> bool:
        return self._live is not None

    def health(self) -> dict[int, tuple[Health, int | None]]:
        """Every member: how it is, and how many ms ago it was heard (None: not in this reign).
        Empty elsewhere than at the master.
        """
        live = self._live
        if live is None:
            return {}
        live.tick(self._now_ms())
        return {
            node: (
                live.health(node),
                round(live.silence_ms(node)) if live.ever_heard(node) else None,
            )
            for node in self._members
        }

    def dead(self) -> list[int]:
        """Members that were silent for longer than `dead_after_ms`: what they had may be rebuilt
        elsewhere. Empty elsewhere than at the master.
        """
        return [node for node, (health, _) in self.health().items() if health is Health.DEAD]

    def stats(self) -> dict[str, int]:
        """For metrics: nodes by health at the master."""
        found = [health for health, _ in self.health().values()]
        figures = {f"nodes.{health}": found.count(health) for health in Health} if found else {}
        return {**figures, "beats_taken": self.taken, "beats_overtaken": self.overtaken}


class _Boundary:
    """What a section raises, whatever it is, harms no other section, and no beat."""

    __slots__ = ("_failed", "_name")

    def __init__(self, name: str, failed: Callable[[str, Exception], None]) -> None:
        self._name, self._failed = name, failed

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, Exception):
            self._failed(self._name, error)
            return True
        return False


def _packed(payload: object) -> bytes:
    """What a section reports; b"" for nothing. Raises ValueError, TypeError."""
    packed = b"" if payload is None else _encode(payload)
    if len(packed) > BEAT_SECTION_BYTES_MAX:
        raise ValueError(f"{len(packed)} bytes, the limit is {BEAT_SECTION_BYTES_MAX}")
    return packed


def _check_new(name: str, sections: Mapping[str, object]) -> None:
    assert name not in sections, f"section {name} is there already"
    assert 0 < len(name) <= NAME_CHARS_MAX
    assert len(sections) < BEAT_SECTIONS_MAX, "limits.BEAT_SECTIONS_MAX"


def leader_of_meta(leader_of: Callable[[int], int | None]) -> Callable[[], int | None]:
    """The `leader` of a Heart, from ReplicaManager.leader_of."""
    return lambda: leader_of(META_PARTITION)


assert NODES_MAX < 1 << 32
