"""`RaftHost`: all groups of a node on one event loop, with one write and one sync for all of them
(F7).

Here: which groups there are, messages from outside, time. The order of one sync's end, which is the
speed of the hot path, is in `cycle`.

Sources: Raft thesis 10.2.1; multi-raft stores (CockroachDB's scheduler, TiKV's batch system) for
sharing the disk. Left out: splitting the groups over several loops (a node is one loop; run more
nodes).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from raft import records, recovery
from raft.api import (
    LogDB,
    Members,
    PeerTransport,
    RaftConfig,
    RaftCounters,
    Recovery,
    Rng,
    StateMachine,
    Syncer,
    Timers,
)
from raft.cycle import Cycle
from raft.errors import BadConfig, Stopped, UnknownGroup
from raft.group import Group
from raft.journal import Journal
from raft.pinned import Message
from raft.records import Base, HardState
from raft.replica import Replica
from raft.rules.membership import membership
from raft.shapes import trouble
from raft.snapshot import Budget
from raft.witness import WitnessMachine

log = logging.getLogger(__name__)


class RaftHost(Cycle):
    """See the module. Everything is called on the loop; only the LogDB may block."""

    def __init__(
        self,
        *,
        node_id: int,
        log_db: LogDB,
        syncer: Syncer,
        timers: Timers,
        rng: Rng,
        on_fatal: Callable[[BaseException], object],
        transport: PeerTransport | None = None,
        config: RaftConfig | None = None,
        counters: RaftCounters | None = None,
    ) -> None:
        """`on_fatal(error)` is called once per replica that stops itself, and once when a failed
        sync stops them all.
        """
        super().__init__(
            log_db,
            syncer,
            timers,
            on_fatal,
            transport,
            RaftConfig() if config is None else config,
            RaftCounters() if counters is None else counters,
        )
        self.node_id = node_id
        self._db, self._rng = log_db, rng
        self._unreachable: set[int] = set()
        self._misshapen: set[tuple[int, str]] = set()  # peers and kinds that are in the log
        self.clock = timers.monotonic
        self.snapshot_budget = Budget(self.config)
        # Told of messages for groups that are not open here: perhaps they should be.
        self.on_unknown: Callable[[int], object] | None = None

    # ------------------------------------------------------------------ groups

    def create_group(
        self,
        group_id: int,
        voters: Members,
        learners: Members = (),
        witnesses: Members = (),
        *,
        after: tuple[int, int] = (0, 0),
    ) -> None:
        """Store the bootstrap record of a group: its first members and an empty log. Nothing
        happens if it exists.

        Durable with the next sync; a leader of the group cannot exist before. Every first voter
        must be given the same members, `witnesses` among the voters. A replica that joins later
        starts with no voters and learns them from the leader. `after`: the (index, term) at which
        every founder's state machine stands already, where the group does not begin empty; who
        joins it without that state gets a snapshot, because no log reaches back so far. Raises
        BadConfig.
        """
        self._check_open(group_id)
        if not 0 <= group_id <= records.GROUP_ID_MAX:
            raise BadConfig(f"group id {group_id} must lie in 0..{records.GROUP_ID_MAX}")
        config = membership(0, voters, learners, witnesses)
        self._buffer.write()
        if recovery.exists(self._db, group_id):
            return
        base_key, hard_key = records.base_key(group_id), records.hard_key(group_id)
        self._buffer.put(base_key, records.encode_base(base_key, Base(*after, config)))
        self._buffer.put(hard_key, records.encode_hard(hard_key, HardState(after[1], None)))
        self._kick_soon()

    def open_group(
        self,
        group_id: int,
        sm: StateMachine,
        *,
        hibernates: bool = True,
        fresh: bool = False,
        blank: bool = False,
        founded_by_all: bool = False,
    ) -> Replica:
        """Recover a group and let it take part. Entries after `sm.applied()` are replayed once a
        first sync has made sure that they are durable and they are known committed; for a lone
        voter that is all of them. `sm.role(leader=True)` comes after the replay. As leader, a
        group that does not hibernate keeps its lease while it is idle, at the price of heartbeats.
        `fresh`: this replica has just been made and never ran, also not before a crash: it has
        promised nobody anything, so it may help to an election at once (`Replica.campaign`).
        `blank`: as long as its log is empty, it must begin with a snapshot: the entries that the
        others have from the first on would not give their state here. `founded_by_all`: its first
        leader is elected by all first voters, not by a majority (`rules/prevote`).

        Raises UnknownGroup, LogCorrupt, LogHole, BadConfig (already open).
        """
        return self._open(
            *(group_id, sm),
            hibernates=hibernates,
            fresh=fresh,
            blank=blank,
            founded_by_all=founded_by_all,
        )

    def open_witness(self, group_id: int) -> Replica:
        """Take part in a group as a witness: vote, and keep no data (`rules/witness`).

        Raises UnknownGroup, LogCorrupt, BadConfig (already open).
        """
        self._check_open(group_id)
        self._buffer.write()
        base = recovery.read_log(self._db, group_id).base
        machine = WitnessMachine(group_id, (base.index, base.term))
        replica = self._open(group_id, machine, keeps_data=False)
        machine.forget = replica.forget
        return replica

    def _open(
        self,
        group_id: int,
        sm: StateMachine,
        *,
        hibernates: bool = True,
        keeps_data: bool = True,
        fresh: bool = False,
        blank: bool = False,
        founded_by_all: bool = False,
    ) -> Replica:
        self._check_open(group_id)
        if group_id in self._replicas:
            raise BadConfig(
                f"group {group_id} is open already; a group has one state machine per node"
            )
        self._buffer.write()
        stored, applied = recovery.read_log(self._db, group_id), sm.applied()
        journal = Journal(
            group_id,
            stored.base,
            stored.hard,
            stored.entries,
            db=self._db,
            buffer=self._buffer,
            config=self.config,
            counters=self.counters,
            on_dirty=partial(self._note_dirty, group_id),
        )
        announced = stored.announced
        reset = recovery.needs_restart(journal, announced, applied)
        if reset and announced is not None:
            journal.restart(announced)
        term_max = max(journal.term, journal.last_term, applied[1])
        if term_max > journal.term:
            journal.set_hard_state(term_max, None)
        core = self._core(
            *(journal, applied[0]),
            hibernates=hibernates,
            keeps_data=keeps_data,
            fresh=fresh,
            blank=blank,
            founded_by_all=founded_by_all,
        )
        found = Recovery(
            journal.base_index + 1,
            journal.last_index,
            applied[0],
            stored.entries.bytes,
            reset,
        )
        self.counters.logs_reset += found.reset
        replica = Replica(self, journal, core, sm, self.config, found)
        self._replicas[group_id] = replica
        journal.touch()
        self._start(replica, core, journal)
        return replica

    def _core(
        self,
        journal: Journal,
        applied_index: int,
        *,
        hibernates: bool,
        keeps_data: bool,
        fresh: bool,
        blank: bool,
        founded_by_all: bool,
    ) -> Group:
        return Group(
            node_id=self.node_id,
            journal=journal,
            applied_index=applied_index,
            timers=self._timers,
            rng=self._rng,
            config=self.config,
            out=partial(self._post, journal.group_id),
            room=self._room,
            counters=self.counters,
            keeps_data=keeps_data,
            hibernates=hibernates,
            unreachable=self._unreachable,
            on_wake=partial(self._woken, journal.group_id),
            fresh=fresh,
            blank=blank,
            founded_by_all=founded_by_all,
        )

    def _start(self, replica: Replica, core: Group, journal: Journal) -> None:
        """A lone voter need not wait for an election timeout, if its being alone is certain."""
        current = journal.memberships.current
        if current.voters == (self.node_id,) and current.index <= replica.applied_index:
            core.campaign_now()
            self.guard(replica, replica.tick)
        self.schedule(replica)

    def stored_groups(self) -> list[int]:
        """Ids of all groups that this node has, open or not."""
        self._buffer.write()
        return list(recovery.stored_groups(self._db))

    def force_members(self, group_id: int, voters: Members, reason: str) -> int:
        """An operator's last resort, when the majority of a group will not come back: make `voters`
        (survivors, this node among them) its only ones, without asking anybody. The index of the
        configuration, which keeps the `reason`; durable with the next sync (`barrier`).

        What only the others have is lost, so run it on the survivor whose `status()` shows the
        highest (last_term, last_index), and on no other. The other side, should it live, is stopped
        as soon as one of its replicas speaks to one of ours; until then it may go on: make sure
        that it is down. Its replicas have to be dropped and join anew.

        Raises UnknownGroup (not open), BadConfig (the reason why not), Stopped.
        """
        self._check_open(group_id)
        replica = self._replicas.get(group_id)
        if replica is None:
            raise UnknownGroup(group_id)
        return replica.force_members(voters, reason)

    def group(self, group_id: int) -> Replica | None:
        return self._replicas.get(group_id)

    def close_group(self, group_id: int) -> None:
        """Stop a group here; its log and hard state stay until `drop_group`. It cannot be opened
        again before a restart, for what was sent in its name may still be on its way.
        """
        self._check_open(group_id)
        replica = self._replicas.pop(group_id, None)
        if replica is not None:
            replica.stop("closed")
            self._ticker.forget(group_id)

    def drop_group(self, group_id: int) -> None:
        """Stop a group and remove its log and hard state. Durable with the next sync (`barrier`
        tells when).

        A node id must not vote again in a group after its hard state was dropped: use a new id for
        a new replica.
        """
        self._check_open(group_id)
        replica = self._replicas.pop(group_id, None)
        if replica is not None:
            replica.stop("dropped")
            self._ticker.forget(group_id)
        self._buffer.delete_range(records.prefix(group_id), records.prefix(group_id + 1))
        self._kick_soon()

    def close(self) -> None:
        """Stop all groups. What is not synced yet stays unknown: nothing is acknowledged."""
        self._shut("closed")

    def _check_open(self, group_id: int) -> None:
        if self._closed is not None:
            raise Stopped(group_id, self._closed)

    def _count_dropped(self) -> None:
        self.counters.messages_dropped += 1

    # ------------------------------------------------------------------ messages

    def receive(self, peer: int, group_id: int, message: Message) -> None:
        """A message from another node, in any order, perhaps twice. Groups that are not open here
        ignore it.
        """
        replica = self._replicas.get(group_id)
        if replica is None or self._closed is not None:
            self._count_dropped()
            if self._closed is None and self.on_unknown is not None:
                self.on_unknown(group_id)
            return
        wrong = trouble(message)
        if wrong is not None:
            self._count_dropped()
            if (peer, message["type"]) not in self._misshapen:
                self._misshapen.add((peer, message["type"]))
                log.warning("a message of node %d is dropped: %s", peer, wrong)
            return
        self.guard(replica, replica.receive, peer, message)
        self.schedule(replica)

    def peer_up(self, peer: int) -> None:
        """The transport reaches this node again: what was sent before may be lost."""
        self._unreachable.discard(peer)
        for replica in list(self._replicas.values()):
            self.guard(replica, replica.peer_up, peer)
            self.schedule(replica)

    def peer_down(self, peer: int) -> None:
        """The transport does not reach this node any more. Groups that sleep depend on that call
        (`rules/hibernate`); a node that was never up counts as reachable.
        """
        self._unreachable.add(peer)
        for replica in list(self._replicas.values()):
            self.guard(replica, replica.peer_down, peer)
            self.schedule(replica)

    def _room(self, peer: int) -> bool:
        return self._transport is None or self._transport.room(peer)

    # ------------------------------------------------------------------ time

    def _woken(self, group_id: int) -> None:
        replica = self._replicas.get(group_id)
        if replica is not None:
            self.schedule(replica)
