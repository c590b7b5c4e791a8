"""Where the other nodes are, and how a reply says who leads.

`details` of NotLeader: `{"leader": node id or None, "address": [host, port] or None}`. A client
goes to the address at once; without one it looks the leader up. A node that may know no better, or
only what was true once, because it has no replica any more, names the others: `{"nodes": [[host,
port], …]}`, so that a client that knows no other node goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kv.base.limits import ADDRESSES_MAX

Address = tuple[str, int]  # of the native protocol: host, BASE


class Members(Protocol):
    """The nodes of the cluster, as far as this one knows. What it answers may change at any
    time.
    """

    def address_of(self, node: int) -> Address | None:
        """Where a node is reached, itself included; None if that is not known."""
        ...

    def others(self) -> list[Address]:
        """Where every other node is reached."""
        ...


class Alone:
    """The members of a cluster of one node."""

    def address_of(self, node: int) -> Address | None:
        return None

    def others(self) -> list[Address]:
        return []


def leader_details(leader: int | None, members: Members) -> dict[str, object]:
    """The details of a NotLeader."""
    address = None if leader is None else members.address_of(leader)
    return {"leader": leader, "address": None if address is None else list(address)}


def others_details(members: Members) -> dict[str, object]:
    """More details of a refusal by a node that may know nothing but its peers."""
    return {"nodes": [list(address) for address in members.others()[:ADDRESSES_MAX]]}


def others_in(details: Mapping[str, object]) -> list[Address]:
    """The other nodes in the details of an error; what cannot be used is left out."""
    named = details.get("nodes")
    if not isinstance(named, list):
        return []
    found = (address_in({"address": one}) for one in named[:ADDRESSES_MAX])
    return [address for address in found if address is not None]


def address_in(details: Mapping[str, object]) -> Address | None:
    """The leader's address in the details of an error, None if it has none that can be used."""
    match details.get("address"):
        case [str(host), int(port)] if host and 0 < port < 65_536:
            return host, port
        case _:
            return None
