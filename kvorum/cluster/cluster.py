"""The other nodes, as this one reaches them: consensus messages, native links, addresses, cuts.

    raft host ◀──▶ MuxTransport on BASE+1 ◀──▶ peers
    clients of this node ──▶ NodeChannels ──▶ own dispatcher, or BASE of a peer

A node without ports is alone and has only the first half of the second line. A node with ports
listens for peers, so that others can join it, unless strangers could reach it and there is no
secret to tell them from friends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kv.base.config import PEERS_OFFSET, NodeConfig, split_address
from kv.base.credentials import Credential
from kv.base.errors import InvalidArgument, NotLeader, Refused
from kv.base.ids import META_PARTITION
from kv.base.limits import ENTRY_BYTES_MAX
from kv.base.members import leader_details, others_details
from kv.base.spoken_time import Time
from kv.base.wire_row import WireRow
from kv.client.client import KvClient
from kv.client.links import Submitter
from kv.client.router import ANYWHERE, Address
from kv.storage.engine import Engine
from kvorum.cluster.links import NodeCalls, NodeChannels
from kvorum.cluster.peers import KnownPeers
from kvorum.local.identity import Identity, cluster_id
from kvorum.local.ports import PeerNet, Ports
from procedures.master.map.nodes import NodeRow, NodeState
from raft.api import RaftConfig
from raft.errors import BadConfig
from raft.handshake import WRONG_INCARNATION
from raft.host import RaftHost
from raft.limits import TransportLimits

_IN, _OUT, _BOTH = "in", "out", "both"  # ways of a link that may be cut

CONSENSUS: Final = RaftConfig(
    heartbeat_ms=100,
    election_min_ms=500,
    election_max_ms=900,
    lease_ms=400,
    tick_ms=25,
    entry_bytes_max=ENTRY_BYTES_MAX,
    append_bytes_max=2 * ENTRY_BYTES_MAX,
)
"""Failover within a second: the first of the followers' timers, drawn from these 400 ms, ends about
0.65 s after the last heartbeat, and the votes take two syncs and two round trips more.
"""
SILENCE_MS: Final = CONSENSUS.election_min_ms // 2
"""A peer from which nothing came for so long is down, as far as sleeping groups are concerned."""

_CUT_OFF_S: Final = CONSENSUS.election_max_ms / 1000
_LOOK_S: Final = 0.02  # a thousand callers look once
_FORGET_S: Final = 3 * _CUT_OFF_S


class Cluster:
    """See the module. `connect` once the dispatcher is there, then `start`, in the end `close`.

    Clients of this node that reach every node: `kv`, `oracle` (for timestamps alone), and `calls`
    for one node that is named.
    """

    def __init__(
        self,
        ports: Ports,
        config: NodeConfig,
        identity: Identity,
        state: Engine,
        time: Time | None = None,
    ) -> None:
        """`time`: of a node with a hybrid clock. Raises Corruption."""
        self.identity = identity
        self._ports = ports
        self._config = config
        self.peers = KnownPeers(state, identity.node, config.address)
        self.peers.found(self.listed())
        self.transport = self._transport()
        own = ANYWHERE if config.port is None else split_address(config.address)
        credential = Credential(secret=config.cluster_secret.encode())
        connector = ports.network.connector(
            ports.timers, identity.cluster, identity.node, credential, time=time
        )
        shared, apart = (NodeChannels(self.peers, own, connector, ports.timers) for _ in range(2))
        timers, rng = ports.timers, ports.rng
        self.kv = KvClient(shared, timers, rng, cut_off=self.cut_off)
        self.oracle = KvClient(apart, timers, rng, cut_off=self.cut_off)
        self.calls = NodeCalls(self.kv, self.peers, identity.node)
        self._channels = (shared, apart)
        self._voters: Callable[[], Sequence[int]] = lambda: ()  # of the meta partition
        self._alone_since: float | None = None
        self._looked_at = 0.0
        self._cut: dict[int, str] = {}  # which ways of the links to which nodes
        self._gone: set[int] = set()  # nodes that were decommissioned
        self.on_stranger: Callable[[], object] = lambda: None  # the members table's reader
        self.on_cut: Callable[[list[int]], object] = lambda _nodes: None  # the native port's

    def listed(self) -> list[tuple[int, str]]:
        """The founders and their addresses, while the list is the one that founded the cluster."""
        join = self._config.join
        if len(join) == len(self.identity.founders) and cluster_id(self._config) == (
            self.identity.cluster
        ):
            return list(enumerate(join, 1))
        return []

    def _transport(self) -> PeerNet | None:
        config = self._config
        if config.port is None or not (config.cluster_secret or config.on_loopback):
            return None
        ports, identity = self._ports, self.identity
        return ports.network.peers(
            cluster=identity.cluster,
            node_id=identity.node,
            incarnation=identity.incarnation,
            secret=config.cluster_secret.encode(),
            timers=ports.timers,
            rng=ports.rng,
            peers=self.peers,
            limits=TransportLimits(silence_ms=SILENCE_MS),
        )

    # ------------------------------------------------------------------------------------ life

    def connect(self, host: RaftHost, dispatcher: Submitter) -> None:
        """Carry messages to the groups, and requests for this node to its dispatcher."""
        self._voters = partial(_voters, host)
        if self.transport is not None:
            self.transport.on_message = host.receive
            self.transport.on_up = partial(self._met, host)
            self.transport.on_down = host.peer_down
        for channels in self._channels:
            channels.enter(dispatcher)

    def _met(self, host: RaftHost, node: int) -> None:
        """A peer is there. One without an address is new: it may lead soon, and then clients of
        this node must learn where it is.
        """
        host.peer_up(node)
        if self.peers.address_of(node) is None:
            self.on_stranger()

    async def start(self) -> None:
        """Listen for peers and look for them. Raises InvalidArgument (CANNOT_LISTEN)."""
        if self.transport is None:
            return
        assert self._config.port is not None, "a transport has a port"
        try:
            await self.transport.start(self._config.listen, self._config.port + PEERS_OFFSET)
        except BadConfig as error:
            raise InvalidArgument(str(error), code="CANNOT_LISTEN") from error
        self.peers.on_address = self._reach
        for node in self.peers.nodes:
            address = self.peers.address_of(node)
            assert address is not None, "these have one"
            self._reach(node, address)

    def _reach(self, node: int, address: Address) -> None:
        if self.transport is not None:
            self.transport.set_peer(node, (address[0], address[1] + PEERS_OFFSET))

    def hang_up(self) -> None:
        """Clients of this node end; what they wait for is lost."""
        for channels in self._channels:
            channels.close()

    async def close(self) -> None:
        """No peer hears from this node any more."""
        self.hang_up()
        self.peers.close()
        self.peers.on_address = lambda _node, _address: None
        # Whoever keeps a client, which asks here whether it is cut off, does not keep the database.
        self._voters = lambda: ()
        transport, self.transport = self.transport, None
        if transport is not None:
            await transport.close()

    # --------------------------------------------------------------------------------- members

    def learn(self, rows: Sequence[NodeRow]) -> None:
        """Take addresses from the members table; hang up on who left for good."""
        self.peers.found([(r.id, r.address) for r in rows if r.state is not NodeState.GONE])
        for row in rows:
            if row.state is NodeState.GONE and row.id not in self._gone:
                self._gone.add(row.id)
                self.peers.forget(row.id)
                if self.transport is not None and row.id != self.identity.node:
                    self.transport.forget_peer(row.id)

    def hears(self, node: int) -> bool:
        """Whether consensus messages of a node arrive here now."""
        if self.transport is None:
            return False
        found = self.transport.figures().get(node)
        return found is not None and found.connected and not found.silent

    def cut_off(self) -> str:
        """Why this node's clients need not wait any more: it has heard too few of the others for
        longer than they need to elect new leaders. Empty: it hears enough. To be asked while
        somebody waits: a look counts with those before if they were not long ago.
        """
        voters, me = self._voters(), self.identity.node
        if self.transport is None or set(voters) <= {me}:
            return ""
        now = self._ports.timers.monotonic()
        if now - self._looked_at < _LOOK_S and self._alone_since is None:
            return ""
        figures = self.transport.figures()
        heard = {n for n, found in figures.items() if found.connected and not found.silent} | {me}
        silent = [node for node in voters if node not in heard]
        if 2 * len(silent) < len(voters):
            self._alone_since = None
        elif self._alone_since is None or now - self._looked_at > _FORGET_S:
            self._alone_since = now
        self._looked_at = now
        if self._alone_since is None or now - self._alone_since < _CUT_OFF_S:
            return ""
        names = ", ".join(map(str, silent))
        return f"node {me} is cut off: of the {len(voters)} that decide it does not hear {names}"

    def unheard(self, node: int) -> str:
        """Where a founder should be, and why there is no connection."""
        found = None if self.transport is None else self.transport.figures().get(node)
        where = dict(self.listed()).get(node, "its address is not known")
        return where if found is None or not found.trouble else f"{where}: {found.trouble}"

    def refusals(self) -> list[str]:
        """Why what answers where nodes should be is none of them."""
        return sorted({why for channels in self._channels for why in channels.refused.values()})

    def forgotten(self) -> Refused | None:
        """Why this node must not go on: a peer knows its number by other data."""
        if self.transport is None:
            return None
        for node, found in self.transport.figures().items():
            if found.refused == WRONG_INCARNATION:
                me = self.identity.node
                return Refused(
                    f"node {me} has been here before with other data, says node {node}: its votes "
                    "are gone with them, so it must not come back under its number. Decommission "
                    f"it (kvorum node decommission {me}; if too few others have their data for "
                    "that, first kvorum node force-members at one that has); then start with an "
                    "empty directory, without --node-id, and with a --join that names others only",
                    code="DATA_GONE",
                    details={"node": me, "peer": node},
                )
        return None

    def not_leader(self, leader: int | None, what: str) -> NotLeader:
        """The refusal of something that another node does."""
        who = "nobody leads it now" if leader is None else f"ask node {leader}"
        details = leader_details(leader, self.peers) | others_details(self.peers)
        return NotLeader(f"{what}: {who}", details=details)

    # --------------------------------------------------------------------------- fault injection

    def links(self, _context: object, args: WireRow) -> list[object]:
        """The node method LINKS. Raises Refused, InvalidArgument."""
        if not self._config.fault_injection:
            raise Refused(
                "links are cut only at a node that was started with --fault-injection true",
                code="NO_FAULT_INJECTION",
            )
        if args[0] is not None:
            self._set_cut(dict(map(_cut_of, args[0])))
        cuts = sorted(self._cut.items())
        return [[node if way == _BOTH else [node, way] for node, way in cuts]]

    def _set_cut(self, cuts: dict[int, str]) -> None:
        """Requests between the nodes stop both ways even if the cut is one-way: one without its
        reply is of no use.
        """
        if self.transport is None:
            raise InvalidArgument("this node has no links to other nodes: there is nothing to cut")
        for node in cuts:
            if self.peers.address_of(node) is None or node == self.identity.node:
                raise InvalidArgument(f"there is no other node {node} to be cut from")
        for node in self._cut:
            self.transport.unblock(node)
        for node, way in cuts.items():
            self.transport.block(node, incoming=way != _OUT, outgoing=way != _IN)
        self._cut = cuts
        self.on_cut(sorted(cuts))
        addresses = frozenset(a for n in cuts if (a := self.peers.address_of(n)) is not None)
        for channels in self._channels:
            channels.cut(addresses)


def _voters(host: RaftHost) -> Sequence[int]:
    meta = host.group(META_PARTITION)
    return () if meta is None else meta.voters


def _cut_of(cut: Any) -> tuple[int, str]:
    """A checked entry: the node, and the ways that are cut."""
    return (cut, _BOTH) if type(cut) is int else (cut[0], cut[1])
