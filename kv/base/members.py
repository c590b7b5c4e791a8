"""Where the other nodes are, and how a reply says who leads.

`details` of NotLeader: `{"leader": node id or None, "address": [host, port] or None}`. A client
goes to the address at once; without one it looks the leader up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

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


def leader_details(leader: int | None, members: Members) -> dict[str, Any]:
    """The details of a NotLeader."""
    address = None if leader is None else members.address_of(leader)
    return {"leader": leader, "address": None if address is None else list(address)}


def address_in(details: Mapping[str, Any]) -> Address | None:
    """The leader's address in the details of an error, None if it has none that can be used."""
    match details.get("address"):
        case [str(host), int(port)] if host and 0 < port < 65_536:
            return host, port
        case _:
            return None
