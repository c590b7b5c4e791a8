"""Who a node is: chosen at its first start and kept in its state DB.

    meta "node"   sealed msgpack [cluster, node, incarnation, founders]
                  and, if there are witnesses, [… founders, their witnesses, is it one itself]
                  and, if the cluster has hybrid clocks, "hybrid" after these
    log  ff… "node"   the same, for a node whose state DB is lost

`incarnation` is random and as old as the data: a node that comes back under its id without its data
has forgotten its votes, so its peers refuse it. `founders` are the first voters of the meta
partition; empty for a node that joined later. A witness votes and keeps no data, for all its
life: its log lacks what a node with data needs. A record of an earlier version has only cluster and
node: that cluster had one node.

How a first start decides:

    no --join, or itself alone     a cluster of this node alone, with a random id
    own address in --join          a founder: id and first voters are the places in the list, the
                                   cluster's id follows from the list and the secret, so that every
                                   founder comes to the same without asking anybody;
                                   --witnesses is part of the list
    own address not in --join      a later node: the members give it its id
                                   (kvorum/cluster/joining.py)
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.config import HYBRID, ORACLE, NodeConfig
from kv.base.errors import Corruption, InvalidArgument
from kv.base.ids import NodeId
from kv.base.ports import Rng
from kv.storage.engine import LOG_FAMILIES, Engine

_KEY: Final = b"node"
_COPY_KEY: Final = b"\xff" * 17 + _KEY  # after all groups
_ID_BYTES: Final = 8
_INCARNATION_BYTES: Final = 16
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[object]).decode


class Identity(NamedTuple):
    """See the module."""

    cluster: str
    node: NodeId
    incarnation: bytes
    founders: tuple[NodeId, ...]
    witnesses: tuple[NodeId, ...] = ()
    """Those of the founders that keep no data."""
    witness: bool = False
    """This node keeps no data."""
    clock: str = ORACLE
    """Where the cluster's timestamps come from."""


def founding(config: NodeConfig, rng: Rng) -> Identity | None:
    """The identity of a first start; None if the members must give it."""
    incarnation = rng.token(_INCARNATION_BYTES)
    if not config.join or (config.place is not None and len(config.join) == 1):
        node = NodeId(config.node_id or 1)
        return Identity(
            rng.token(_ID_BYTES).hex(), node, incarnation, (node,), clock=config.clock or ORACLE
        )
    if config.place is None:
        return None
    founders = tuple(NodeId(i) for i in range(1, len(config.join) + 1))
    node, witnesses = NodeId(config.place), tuple(map(NodeId, sorted(config.witnesses)))
    return Identity(
        cluster_id(config),
        node,
        incarnation,
        founders,
        witnesses,
        witness=node in witnesses,
        clock=config.clock or ORACLE,
    )


def joined(
    cluster: str, node: int, rng: Rng, *, witness: bool = False, clock: str = ORACLE
) -> Identity:
    """The identity that the members of a cluster gave."""
    incarnation = rng.token(_INCARNATION_BYTES)
    return Identity(cluster, NodeId(node), incarnation, (), witness=witness, clock=clock)


def cluster_id(config: NodeConfig) -> str:
    """The same at every founder, and another one for another list, secret or kind of clock."""
    listed = "\n".join(config.join).encode()
    if config.witnesses:
        listed += b"\nwitnesses " + ",".join(map(str, sorted(config.witnesses))).encode()
    if config.clock == HYBRID:
        listed += b"\nhybrid clocks"
    return hmac.digest(config.cluster_secret.encode(), listed, hashlib.sha256)[:_ID_BYTES].hex()


def alone(identity: Identity) -> bool:
    """It founded a cluster of itself: perhaps nobody has a copy of its data."""
    return identity.founders == (identity.node,)


def stored(state: Engine) -> Identity | None:
    """The identity as the state DB has it. Raises Corruption."""
    record = state.getter("meta")(_KEY)
    return None if record is None else _read(_KEY, record)


def copied(log: Engine) -> Identity | None:
    """The identity as the log DB has it. Raises Corruption."""
    record = log.getter(LOG_FAMILIES[0])(_COPY_KEY)
    return None if record is None else _read(_COPY_KEY, record)


def load(state: Engine, log: Engine, directory: Path) -> Identity | None:
    """The stored identity, None at a first start. Raises Corruption.

    It is durable in both databases before the log has any record of a group. So a log beside an
    empty state DB has lost its data, and starting anew would hide that; but where others have
    copies, the node comes back as who it is: its log and its votes are there.
    """
    found = stored(state)
    if found is not None:
        return found
    copy = copied(log)
    if copy is not None and not alone(copy):
        return copy
    if any(log.scan(name, b"", _COPY_KEY, limit=1) for name in LOG_FAMILIES):
        raise Corruption(
            f"{directory / 'log'} is the log of a node whose data are not in "
            f"{directory / 'state'}: the two belong together; restore {directory} as a whole "
            "from a copy",
            details={"path": str(directory)},
        )
    return None


def _read(key: bytes, record: bytes) -> Identity:
    try:
        if not intact(key, record):
            raise ValueError("its checksum is wrong")
        match _decode(record[:-CRC_BYTES]):
            case [str(cluster), int(node)]:
                return Identity(cluster, NodeId(node), b"", (NodeId(node),))
            case [str(cluster), int(node), bytes(incarnation), list(founders)]:
                return Identity(cluster, NodeId(node), incarnation, _ids(founders))
            case [
                str(cluster),
                int(node),
                bytes(incarnation),
                list(founders),
                list(some),
                bool(is_one),
                *clock,
            ] if clock in ([], [HYBRID]):
                first, kind = _ids(founders), HYBRID if clock else ORACLE
                return Identity(cluster, NodeId(node), incarnation, first, _ids(some), is_one, kind)
            case fields:
                raise ValueError(f"it has {len(fields)} fields")
    except (ValueError, msgspec.MsgspecError) as error:
        raise Corruption(
            f"the node's identity is damaged ({error}): restore the state DB from a backup",
            details={"key": key, "family": "meta"},
        ) from error


def _ids(found: list[object]) -> tuple[NodeId, ...]:
    return tuple(NodeId(one) for one in found if type(one) is int)


def check_newcomer(config: NodeConfig) -> None:
    """A later node is given its number. Raises InvalidArgument if it was given one: then its
    address or its list is not what whoever started it believes.
    """
    if config.node_id > 1:
        raise InvalidArgument(
            f"node_id = {config.node_id}, but {config.address} is not in join "
            f"({', '.join(config.join)}): a founder's own address is at its place in the list "
            "(--advertise, --port); a node that comes later is given its number: leave --node-id "
            "out",
            details={"setting": "node_id", "actual": config.node_id},
        )


def save(state: Engine, log: Engine, identity: Identity) -> None:
    """Write it; the caller makes it durable before the node says anything to anybody, in the log DB
    before the state DB.
    """
    cluster, node, incarnation, founders, witnesses, witness, clock = identity
    fields = [cluster, node, incarnation, list(founders)]
    if witnesses or witness or clock == HYBRID:
        fields += [list(witnesses), witness]
    if clock == HYBRID:
        fields.append(clock)
    for engine, key, family in ((log, _COPY_KEY, LOG_FAMILIES[0]), (state, _KEY, "meta")):
        batch = engine.batch()
        batch.put(key, seal(key, _encode(fields)), engine.family(family))
        engine.write(batch)


def with_incarnation(identity: Identity, rng: Rng) -> Identity:
    """An identity of an earlier version gets what it lacks."""
    return identity._replace(incarnation=rng.token(_INCARNATION_BYTES))


def check_kind(identity: Identity, config: NodeConfig) -> None:
    """Refuse to make a witness of a node with data. Raises InvalidArgument.

    The other way round nothing needs to be said: what is not said is kept.
    """
    if config.witness and not identity.witness:
        raise InvalidArgument(
            f"{config.data} has the data of node {identity.node}: it cannot become a witness. "
            "Decommission it, and start a witness on an empty --data",
            details={"setting": "witness"},
        )
    check_clock(identity.clock, config)


def check_clock(clock: str, config: NodeConfig) -> None:
    """Refuse another kind of clock than the cluster has. Raises InvalidArgument."""
    if config.clock not in ("", clock):
        raise InvalidArgument(
            f"clock = {config.clock}, but the cluster was founded with {clock}: that cannot be "
            "changed. Leave --clock out; or found another cluster, and restore a backup into it",
            details={"setting": "clock", "actual": config.clock, "expected": clock},
        )


def check_list(identity: Identity, config: NodeConfig, *, knows_others: bool) -> None:
    """Refuse a --join list that would found another cluster on data that belong to one.

    Raises InvalidArgument.
    """
    if knows_others or len(config.join) < 2 or config.place is None:
        return
    if identity.cluster != cluster_id(config):
        raise InvalidArgument(
            f"{config.data} belongs to cluster {identity.cluster} of node {identity.node} alone; "
            "it cannot found another one with the nodes of --join: start it without --join and let "
            "the others join it, or give an empty --data (or the cluster's own list and secret)",
            details={"setting": "join", "cluster": identity.cluster},
        )
