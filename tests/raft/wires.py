"""Sockets in virtual time: what `raft.mux` runs on in tests. Deterministic for a seed.

A stream is cut into arbitrary pieces, delayed, and kept in order. A *cut* holds back what is under
way, as TCP does, and lets nobody connect; a crash takes a node's sockets away without a word.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from raft.limits import TransportLimits
from raft.link import Link
from raft.memory import MemoryPeers, VirtualTimers
from raft.mux import Mux
from raft.peers import Address, Peer

RETRANSMIT_S = 0.2


class SeededRng:
    """Chance that repeats."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.random = self._random.random

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)


def incarnation_of(node: int) -> bytes:
    return bytes([node]) * 16


class End:
    """One end of a connection: the `Writer` of its link."""

    def __init__(self, net: Net, node: int, link: Link) -> None:
        self.net, self.node, self.link = net, node, link
        self.other: End | None = None
        self.open = True
        self.pipe: list[bytes | None] = []  # on the way to the other end; None = the end
        self.unsent = 0
        self.moving = False
        self.paused = False
        self.into_nothing = False  # nobody takes it and nobody says so

    def write(self, data: bytes) -> None:
        if not self.open:  # lost, but the link does not know yet
            return
        self.pipe.append(bytes(data))
        self.unsent += len(data)
        self._move()
        if self.get_write_buffer_size() > self.net.limits.socket_bytes_high and not self.paused:
            self.paused = True
            self.link.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def close(self) -> None:
        if self.open:
            self.pipe.append(None)
            self._move()
            self._lose(None)

    def abort(self) -> None:
        if self.open:
            self._reset()
            self._lose(None)

    def vanish(self, *, machine: bool) -> None:
        """The process is gone and its machine says so; or the machine is gone, too."""
        self.open = False
        if machine:
            assert self.other is not None
            self.other.into_nothing = True
            self.pipe.clear()
        else:
            self._reset()

    def _reset(self) -> None:
        """What is under way may still arrive; what was not sent never does."""
        kept = self.pipe[:1] if self.moving and self.net.random.random() < 0.7 else []
        self.pipe[:] = [data for data in kept if data is not None] + [None]
        self.unsent = sum(len(data) for data in self.pipe if data is not None)
        self._move()

    def _lose(self, error: Exception | None) -> None:
        self.open = False
        self.net.timers.call_soon(self.link.connection_lost, error)

    def _move(self) -> None:
        if not self.moving and self.pipe:
            self.moving = True
            self.net.timers.call_later(self.net.delay_s(), self._arrive)

    def _arrive(self) -> None:
        self.moving = False
        other, net = self.other, self.net
        assert other is not None
        if net.is_cut(self.node, other.node) or self.into_nothing:
            self.moving = True
            net.timers.call_later(RETRANSMIT_S, self._arrive)
            return
        if not self.pipe:
            return
        data = self.pipe[0]
        if data is None or not other.open:
            self.pipe.clear()
            self.unsent = 0
            if other.open:
                other._lose(None)
            return
        taken = min(len(data), net.chunk(), len(room := other.link.get_buffer(-1)))
        room[:taken] = data[:taken]
        self.unsent -= taken
        if taken == len(data):
            self.pipe.pop(0)
        else:
            self.pipe[0] = data[taken:]
        if self.paused and self.open and self.get_write_buffer_size() == 0:
            self.paused = False
            self.link.resume_writing()
        self._move()
        other.link.buffer_updated(taken)


class SimMux(Mux):
    """A Mux on the net's sockets."""

    net: Net

    def new_link(self, dialed: Peer | None) -> Link:
        return Link(self, dialed)

    def dial(self, link: Link, address: Address) -> Any:
        return self.net.timers.call_later(
            self.net.delay_s(), self.net.connect, self, link, address[1]
        )


class Net:
    """See the module. `log` has everything that nodes were told."""

    def __init__(self, seed: int = 1, limits: TransportLimits | None = None) -> None:
        self.timers = VirtualTimers()
        self.random = random.Random(seed)
        self.limits = TransportLimits() if limits is None else limits
        self.delay_s: Callable[[], float] = lambda: self.random.uniform(0.0001, 0.002)
        self.chunk: Callable[[], int] = lambda: 1 << 20
        self.nodes: dict[int, SimMux] = {}
        self.stores: dict[int, MemoryPeers] = {}
        self.ends: list[End] = []
        self.cuts: set[tuple[int, int]] = set()
        self.walls: set[tuple[int, int]] = set()  # nobody answers these dials; the rest passes
        self.log: list[tuple[Any, ...]] = []
        self.inbox: dict[int, list[tuple[int, int, dict[str, Any]]]] = {}
        self._starts = 0

    def start(self, node: int, **options: Any) -> SimMux:
        """Start a node, or start it again."""
        self._starts += 1
        settings: dict[str, Any] = {
            "cluster": "c",
            "node_id": node,
            "incarnation": incarnation_of(node),
            "secret": b"secret",
            "rng": SeededRng(self.random.randrange(1 << 30)),
            "peers": self.stores.setdefault(node, MemoryPeers()),
            "limits": self.limits,
        }
        mux = SimMux(timers=self.timers, **{**settings, **options})
        mux.net = self
        mux.on_message = lambda peer, group, message: self.inbox[node].append(
            (peer, group, message)
        )
        mux.on_up = lambda peer: self.log.append((node, "up", peer))
        mux.on_down = lambda peer: self.log.append((node, "down", peer))
        self.nodes[node] = mux
        self.inbox[node] = []
        mux.begin()
        return mux

    def cluster(self, *nodes: int, **options: Any) -> list[SimMux]:
        """Nodes that know each other's addresses (host "127.0.0.1", port = 7000 + node)."""
        muxes = [self.start(node, **options) for node in nodes]
        for mux in muxes:
            self.introduce(mux, *nodes)
        return muxes

    def introduce(self, mux: SimMux, *nodes: int) -> None:
        for node in nodes:
            if node != mux.identity.node:
                mux.set_peer(node, ("127.0.0.1", 7000 + node))

    def crash(self, node: int, *, machine: bool = False) -> None:
        """Gone, without a word of its own; its operating system closes its sockets, unless the
        whole machine is gone. (The old object's timers go on and find nothing to do.)
        """
        mux = self.nodes.pop(node)
        for end in [end for end in self.ends if end.node == node and end.open]:
            end.vanish(machine=machine)
        mux.on_message = mux.on_up = mux.on_down = _nobody
        mux._running = False

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self.cuts

    def connect(self, mux: SimMux, link: Link, port: int) -> None:
        """A dial reached the other machine, or did not."""
        source, target = mux.identity.node, port - 7000
        way = (source, target)
        if link.ended or way in self.walls or self.is_cut(*way) or self.is_cut(target, source):
            return  # nobody answers
        listener = self.nodes.get(target)
        if listener is None:
            mux.dial_failed(link, "connection refused")
            return
        self.join(mux, link, listener)

    def join(self, dialer: SimMux, link: Link, listener: SimMux) -> tuple[End, End]:
        called = listener.new_link(None)
        one, two = End(self, dialer.identity.node, link), End(self, listener.identity.node, called)
        one.other, two.other = two, one
        self.ends = [end for end in self.ends if end.open] + [one, two]
        called.connection_made(two)
        link.connection_made(one)
        return one, two

    def pairs(self) -> Iterator[tuple[int, int, bool]]:
        """(one, other, whether they hold the two ends of one connection)."""
        for one, mux in self.nodes.items():
            for other, peer in self.nodes.items():
                if one < other:
                    yield one, other, joined(mux, peer)

    def whole(self) -> bool:
        return all(is_joined for _, _, is_joined in self.pairs())

    def strays(self) -> list[Link]:
        """Connections that have proved themselves, and are not the one of their pair."""
        return [
            end.link
            for end in self.ends
            if end.open and (peer := end.link.peer) is not None and not end.link.ended
            if self.nodes[end.node]._links.get(peer.node) is not end.link
        ]


def joined(one: Mux, other: Mux) -> bool:
    """Do both use the same connection, and think that it works?"""
    first = one._links.get(other.identity.node)
    second = other._links.get(one.identity.node)
    if first is None or second is None or first.silent or second.silent:
        return False
    end = first._writer
    return isinstance(end, End) and end.other is second._writer


class Wire:
    """A bare `Writer` that remembers what was written: for playing a peer by hand."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.closed = self.aborted = False

    def write(self, data: bytes) -> None:
        assert not self.closed, "written after the end"
        self.data += data

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def take(self) -> bytes:
        taken = bytes(self.data)
        self.data.clear()
        return taken


def feed(link: Link, data: bytes) -> None:
    """Bytes arrive at a link, in pieces that fit its buffer."""
    while data and not link.ended:
        room = link.get_buffer(-1)
        taken = min(len(room), len(data))
        room[:taken] = data[:taken]
        link.buffer_updated(taken)
        data = data[taken:]


def _nobody(*_arguments: object) -> None:
    pass
