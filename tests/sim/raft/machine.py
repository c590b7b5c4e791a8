"""The replicated state of a simulation: a running hash of everything applied, on a disk of its own
that is written without a sync. A crash keeps the last flush and some prefix of what came after.

Snapshots are those few bytes with padding, so that they need several chunks; a checksum at their
end tells of chunks that were mixed up. Making, reading, staging may be refused (`unavailable`).
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from raft import SnapshotId, SnapshotUnavailable
from tests.sim.raft.probes import probes
from tests.sim.raft.truth import Proposal, Truth

if TYPE_CHECKING:
    from tests.sim.raft.node import SimNode

State = tuple[int, int, int]
"""(index, term, hash)."""
_STATE = struct.Struct(">QQI")
_STEP = struct.Struct(">QQ")
_NUMBER = struct.Struct(">Q")


def encode_command(number: int, filler: int) -> bytes:
    return _NUMBER.pack(number) + b"x" * filler


class StateDB:
    """What survives of a machine: the states since the last flush, and a snapshot being taken."""

    def __init__(self) -> None:
        self.states: list[State] = [(0, 0, 0)]
        self.staged_id: SnapshotId | None = None
        self.staged: list[bytes] = []
        self.installing: State | None = None
        self.sink: object = None  # the open one: what an abandoned one still had on its way is lost

    @property
    def flushed(self) -> State:
        return self.states[0]

    def flush(self) -> None:
        del self.states[:-1]

    def crash(self, random: Callable[[], float]) -> None:
        kept = 1 + int(random() * len(self.states))
        del self.states[kept:]
        if self.installing is not None:
            probes.hit("crash while a snapshot was installed")
            if random() < 0.5:
                self.states = [self.installing]
            self.installing = None


class Machine:
    """raft.api.StateMachine of one life."""

    def __init__(self, node: SimNode, truth: Truth, db: StateDB) -> None:
        self._node, self._truth, self._db = node, truth, db
        self._life = node.life
        self.index, self.term, self.hash = db.states[-1]
        self.leading = False

    # ------------------------------------------------------------------ applying

    def applied(self) -> tuple[int, int]:
        return self.index, self.term

    def apply(
        self, index: int, term: int, command: bytes | memoryview, token: object | None
    ) -> None:
        (number,) = _NUMBER.unpack_from(command)
        self._step(index, term, zlib.crc32(command, self.hash), number)
        if token is not None:
            assert isinstance(token, Proposal)
            if token.number != number:
                self._truth.fail(f"token of command {token.number} came with command {number}")
            self._truth.acknowledged(token, index)
            self._node.world.floor_rose(self._node)

    def advance(self, index: int, term: int) -> None:
        self._step(index, term, self.hash, None)

    def _step(self, index: int, term: int, hash_: int, number: int | None) -> None:
        if index != self.index + 1 or term < self.term:
            self._truth.fail(f"node {self._node.id} applied {index} after {self.index}")
        if self._db.installing is not None:
            self._truth.fail(f"node {self._node.id} applied {index} while a snapshot is installed")
        self.hash = zlib.crc32(_STEP.pack(index, term), hash_)
        self.index, self.term = index, term
        self._db.states.append((index, term, self.hash))
        self._truth.applies(self._node.id, index, self.hash, number)
        self._node.acts("applies", index)

    def dropped(self, tokens: list[object], *, unknown: bool) -> None:
        for token in tokens:
            assert isinstance(token, Proposal)
            if unknown:
                self._truth.unknown(token)
            else:
                probes.hit("certainly not executed")
                self._truth.refused(token)

    def role(self, *, leader: bool, term: int) -> None:
        if leader == self.leading:
            self._truth.fail(f"node {self._node.id} was told leader={leader} twice")
        self.leading = leader

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> Source:
        self._node.world.maybe_unavailable("snapshot")
        behind = self._node.world.rng.random() < 0.3
        state = self._db.flushed if behind else (self.index, self.term, self.hash)
        if state[0] == 0:
            raise SnapshotUnavailable("nothing is applied yet")
        return Source(self._node, self._truth, state)

    def restore(self, snapshot: SnapshotId) -> Sink:
        self._node.world.maybe_unavailable("restore")
        return Sink(self._node, self._truth, self._db, self, snapshot)

    def become(self, state: State) -> None:
        self.index, self.term, self.hash = state
        self._truth.installs(self._node.id, state[0], state[2])


class Source:
    """raft.api.SnapshotSource."""

    def __init__(self, node: SimNode, truth: Truth, state: State) -> None:
        self.index, self.term = state[0], state[1]
        self._node, self._at, self._open = node, 0, True
        body = _STATE.pack(*state) * (1 + node.world.snapshot_copies)
        self._bytes = body + struct.pack(">I", zlib.crc32(body))
        probes.hit("snapshots begun")

    def read(self, bytes_max: int) -> bytes | None:
        assert self._open, "read after close"
        self._node.world.maybe_unavailable("read")
        chunk = self._bytes[self._at : self._at + bytes_max]
        self._at += len(chunk)
        return chunk or None

    def close(self) -> None:
        assert self._open, "closed twice"
        self._open = False


class Sink:
    """raft.api.SnapshotSink."""

    def __init__(
        self, node: SimNode, truth: Truth, db: StateDB, machine: Machine, snapshot: SnapshotId
    ) -> None:
        self._node, self._truth, self._db, self._machine = node, truth, db, machine
        self._id = snapshot
        db.sink = self
        if db.staged_id != snapshot:
            db.staged_id, db.staged = snapshot, []
        elif db.staged:
            probes.hit("snapshot resumed")
        self._begun = len(db.staged)
        self._on_their_way: deque[tuple[bytes, Callable[[], None]]] = deque()

    def staged(self) -> int:
        return len(self._db.staged)

    def stage(self, number: int, chunk: bytes, done: Callable[[], None]) -> None:
        self._node.world.maybe_unavailable("stage")
        if number != self._begun:
            self._truth.fail(f"chunk {number} staged when {self._begun} was due")
        self._begun += 1
        self._truth.chunk(self._id, number, zlib.crc32(chunk))
        self._on_their_way.append((bytes(chunk), done))
        self._node.disk_work(self._staged)

    def _staged(self) -> None:
        chunk, done = self._on_their_way.popleft()  # in order, whichever delay was drawn
        if self._db.sink is self:
            self._db.staged.append(chunk)
            self._node.enter(done, ())

    def install(self, done: Callable[[], None]) -> None:
        self._node.world.maybe_unavailable("install")
        data = b"".join(self._db.staged)
        body = data[:-4]
        if len(data) < 4 or zlib.crc32(body) != int.from_bytes(data[-4:], "big"):
            self._truth.fail(f"node {self._node.id} installs a damaged snapshot {self._id}")
            return
        index, term, hash_ = _STATE.unpack_from(body)
        if (index, term) != (self._id.index, self._id.term):
            self._truth.fail(f"snapshot {self._id} holds the state at {(index, term)}")
        if self._db.installing is not None:
            self._truth.fail(f"node {self._node.id} installs two snapshots at once")
        self._db.installing = (index, term, hash_)
        self._node.world.ambush(self._node, "installs")
        self._node.disk_work(self._installed, done)

    def _installed(self, done: Callable[[], None]) -> None:
        state, self._db.installing = self._db.installing, None
        assert state is not None
        self._node.world.ambush(self._node, "has installed")
        probes.hit("snapshots installed")
        self._db.states, self._db.staged_id, self._db.staged = [state], None, []
        self._machine.become(state)
        self._node.enter(done, ())

    def discard(self) -> None:
        self._db.staged_id, self._db.staged = None, []
