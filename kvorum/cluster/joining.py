"""A later node comes to a cluster that runs.

    new node ── JOIN address, version, token, proof, witness ──▶ master: a row JOINING with a new id
             ◀── id, cluster, members ─────────────────        └─▶ procedure AddReplicas

It opens with an empty meta partition, reaches the members, and is made a learner and then a voter
everywhere by the procedure (procedures/master/members/membership.py), which also ends its JOINING.
Its id is kept with its data: at later starts it only says again that it waits.

The proof is an HMAC of the cluster's secret: the native port is open to clients, and a stranger
must neither get an id nor learn the members. The token makes it new at every start of the node.
Who repeats what it overheard gets the ids of the overheard node, which it cannot use: peers prove
themselves by more (raft/handshake.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from kv.base.config import HYBRID, ORACLE, NodeConfig, split_address
from kv.base.credentials import Credential
from kv.base.errors import InvalidArgument, KvorumError, Refused, Unavailable
from kv.base.limits import JOIN_MS_MAX
from kv.base.wire_row import WireRow
from kv.client.channels import SocketChannels
from kv.client.client import KvClient
from kvorum.api.verbs import JOIN, TOKEN_BYTES
from kvorum.local.identity import Identity
from kvorum.local.ports import Ports
from kvorum.version import VERSION
from procedures.engine.submission import Submission
from procedures.master.map.nodes import NodeRow, NodeState, all_nodes, take_in
from procedures.master.members.membership import ADD_REPLICAS
from txn.client import TxnClient

log = logging.getLogger(__name__)

_AGAIN_S: Final = 0.5
_OWNER: Final = "cluster"


class Joined(NamedTuple):
    """What the master answers."""

    node: int
    cluster: str
    members: list[tuple[int, str]]
    clock: str


def request(
    config: NodeConfig, token: bytes, *, witness: bool = False
) -> tuple[str, str, bytes, bytes, bool]:
    """The arguments of JOIN."""
    proof = _proof(config.cluster_secret, config.address, token, witness=witness)
    return config.address, VERSION, token, proof, witness


def _proof(secret: str, address: str, token: bytes, *, witness: bool) -> bytes:
    kind = b"kvorum join witness\n" if witness else b"kvorum join\n"
    signed = kind + address.encode() + b"\n" + token
    return hmac.digest(secret.encode(), signed, hashlib.sha256)


async def ask(config: NodeConfig, ports: Ports) -> Joined:
    """An id from the members of the cluster behind `config.join`.

    Raises Unavailable with the last reason after JOIN_MS_MAX; Refused (the secret, the address)
    at once.
    """
    token = ports.rng.token(TOKEN_BYTES)
    credential = Credential(secret=config.cluster_secret.encode())
    connector = ports.network.connector(ports.timers, "", 0, credential)
    addresses = [split_address(address) for address in config.join]
    kv = KvClient(SocketChannels(addresses, connector), ports.timers, ports.rng)
    deadline = ports.timers.monotonic() + JOIN_MS_MAX / 1000
    logged = ""
    try:
        while True:
            try:
                node, cluster, rows, *more = await kv.call_node(
                    JOIN, *request(config, token, witness=config.witness)
                )
                members = [(member, address) for member, address in rows]
                return Joined(node, cluster, members, *more or (ORACLE,))
            except KvorumError as error:
                if error.disposition == "no":
                    raise
                if ports.timers.monotonic() > deadline:
                    raise Unavailable(
                        f"no node of the cluster took {config.address} in within "
                        f"{JOIN_MS_MAX // 1000} s: {error.message}. (If this node founds a new "
                        f"cluster, its own address, {config.address}, must be in --join as it "
                        "stands there; see --advertise)"
                    ) from error
                if error.message != logged:
                    logged = error.message
                    log.info("not taken in yet: %s", logged)
            await asyncio.sleep(_AGAIN_S)
    finally:
        kv.close()


class Procedures(Protocol):
    """kvorum.master.roles.Master."""

    async def submit(self, sub: Submission) -> int: ...

    def current(self) -> object:
        """Raises NotLeader elsewhere than at the master."""
        ...


class JoinMethod:
    """JOIN at the master."""

    def __init__(
        self,
        config: NodeConfig,
        identity: Identity,
        txn: TxnClient,
        procedures: Procedures,
        learn: Callable[[Sequence[NodeRow]], object],
    ) -> None:
        """`learn` is called with all members, the new one among them."""
        self._config, self._identity = config, identity
        self._txn, self._procedures, self._learn = txn, procedures, learn

    def handle(self, _context: object, args: WireRow) -> Awaitable[list[object]]:
        """The handler. Raises InvalidArgument, Refused, NotLeader, what `take_in` raises."""
        self._procedures.current()
        address, version, token, proof, witness = (*args, False)[:5]  # optional, the last one
        if not _is_address(address):
            raise InvalidArgument("JOIN: address must be HOST:BASE")
        if self._config.port is None or not (
            self._config.cluster_secret or self._config.on_loopback
        ):
            raise Refused(
                "this node takes nobody in: it listens beyond this machine without a "
                "cluster_secret; set one and start it again",
                code="NO_SECRET",
            )
        secret = self._config.cluster_secret
        if not hmac.compare_digest(proof, _proof(secret, address, token, witness=witness)):
            raise Refused(
                f"{address} does not know this cluster's secret: give it the same cluster_secret",
                code="WRONG_SECRET",
            )
        return self._take_in(address, version, token, witness=witness)

    async def _take_in(
        self, address: str, version: str, token: bytes, *, witness: bool
    ) -> list[object]:
        founders = self._identity.founders
        row = await self._txn.run(
            lambda t: take_in(t, address, version, founders=founders, witness=witness)
        )
        members = await self._members()
        self._learn(members)
        if row.state is NodeState.JOINING:
            await self._procedures.submit(
                Submission(ADD_REPLICAS, {"node": row.id}, _OWNER, f"join/{row.id}/{token.hex()}")
            )
        log.info("node %d (%s) joins%s", row.id, address, " as a witness" if witness else "")
        known = [[member.id, member.address] for member in members]
        hybrid = [HYBRID] if self._identity.clock == HYBRID else []
        return [row.id, self._identity.cluster, known, *hybrid]

    async def _members(self) -> list[NodeRow]:
        rows = await self._txn.run(all_nodes)
        return [row for row in rows if row.state is not NodeState.GONE and row.address]


def _is_address(text: str) -> bool:
    try:
        host, port = split_address(text)
    except ValueError:
        return False
    return bool(host) and 0 < port < 65_536
