"""How a client gets a link to an address: once per address, again after it broke, one attempt at a
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from kv.base.credentials import NONE, Credential
from kv.base.errors import Unavailable
from kv.base.limits import CONNECT_REST_MS
from kv.base.ports import Timers
from kv.base.spoken_time import Heard, Time
from kv.base.tls import Tls
from kv.client.connection import open_connection
from kv.client.links import Link, LinkLost, LocalLink, Submitter, client_closed
from kv.client.router import ANYWHERE, Address


class Channels(Protocol):
    """Links by address."""

    @property
    def addresses(self) -> list[Address]:
        """Where the cluster may be asked, in the order of preference; never empty."""
        ...

    def open_link(self, address: Address) -> Link | None:
        """The link if there is one now."""
        ...

    async def link(self, address: Address) -> Link:
        """The link, connecting if need be.

        Raises OSError, Unavailable, or the refusal of the other side.
        """
        ...

    def close(self) -> None: ...


class LocalChannels:
    """The embedded node, under any address: there is no other."""

    def __init__(self, submitter: Submitter, timers: Timers) -> None:
        self.addresses: list[Address] = [ANYWHERE]
        self._link = LocalLink(submitter, timers)

    def open_link(self, address: Address) -> Link | None:
        return None if self._link.closed else self._link

    async def link(self, address: Address) -> Link:
        if self._link.closed:
            raise client_closed()
        return self._link

    def close(self) -> None:
        self._link.close()


Connector = Callable[[Address], Awaitable[Link]]


class SocketChannels:
    """One connection per address.

    Who waits for a connection while another caller makes it takes what comes of it. An address that
    did not answer is left alone for CONNECT_REST_MS, so that a thousand callers of a node that died
    are not a thousand connections.
    """

    def __init__(self, addresses: list[Address], connector: Connector) -> None:
        assert addresses, "at least one address"
        self.addresses = list(dict.fromkeys(addresses))
        self.connects = 0
        self._connector = connector
        self._links: dict[Address, Link] = {}
        self._connecting: dict[Address, asyncio.Event] = {}
        self._failed: dict[Address, tuple[float, str]] = {}  # when and why
        self._closed = False

    def open_link(self, address: Address) -> Link | None:
        link = self._links.get(address)
        return None if link is None or link.closed else link

    async def link(self, address: Address) -> Link:
        while True:
            if self._closed:
                raise client_closed()
            if (link := self.open_link(address)) is not None:
                return link
            if (others := self._connecting.get(address)) is None:
                self._check_rest(address)
                return await self._connect(address)
            await others.wait()

    def _check_rest(self, address: Address) -> None:
        """Raises Unavailable (UNREACHABLE) if the last attempt has just failed."""
        failed = self._failed.get(address)
        if failed is None:
            return
        if asyncio.get_running_loop().time() - failed[0] < CONNECT_REST_MS / 1000:
            raise Unavailable(failed[1], code="UNREACHABLE")
        del self._failed[address]

    async def _connect(self, address: Address) -> Link:
        done = self._connecting[address] = asyncio.Event()
        self.connects += 1
        try:
            link = await self._connector(address)
        except (OSError, Unavailable, LinkLost) as error:
            self._failed[address] = (asyncio.get_running_loop().time(), str(error))
            raise
        finally:
            del self._connecting[address]
            done.set()
        if self._closed:
            link.close()
            raise client_closed()
        self._links[address] = link
        return link

    def close(self) -> None:
        self._closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()


def tcp_connector(
    timers: Timers,
    cluster: str,
    node: int = 0,
    credential: Credential = NONE,
    *,
    tls: Tls | None = None,
    time: Time | None = None,
) -> Connector:
    """Connects over TCP, or `tls`, with the native protocol. `node`: whose connections these are,
    which proves it by the cluster's secret or its certificate. All of them share one `time`.
    """
    heard = Heard() if time is None else time

    async def connect(address: Address) -> Link:
        host, port = address
        return await open_connection(
            *(host, port),
            timers=timers,
            cluster=cluster,
            node=node,
            credential=credential,
            tls=tls,
            time=heard,
        )

    return connect
