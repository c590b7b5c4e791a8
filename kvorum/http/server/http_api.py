"""The HTTP API over one backend: applications, sessions and metrics put together. Importing this
imports FastAPI.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial

from kv.base.connection_slots import Seats
from kv.base.ports import Rng, Timers
from kv.base.tls import Tls
from kvorum.api.backend import Backend
from kvorum.audit.audit_log import NO_FIGURES, StampLog
from kvorum.http.metrics.metrics import Metrics
from kvorum.http.routes.leases import Leases
from kvorum.http.server.audited_requests import StampedHttp
from kvorum.http.server.authentication import Door
from kvorum.http.server.causal_tokens import CausalTokens
from kvorum.http.server.fastapi_app import ColdApi
from kvorum.http.server.host_header import HostGuard
from kvorum.http.server.hot_app import HotApi
from kvorum.http.server.http_server import HttpServer
from kvorum.http.server.http_sessions import Sessions
from kvorum.http.server.watch_streams import Watches
from kvorum.http.wire.console_sessions import Visits
from kvorum.security.oidc_login import Logins
from kvorum.version import VERSION
from procedures.engine.plain_data import Plain
from sqlproxy.catalog.guard import Guard

Spawn = Callable[[Coroutine[object, None, None]], object]


class HttpApi:
    """The HTTP API over one backend, a node's or a proxy's; `start` and `stop` once."""

    def __init__(
        self,
        backend: Backend,
        sock: socket.socket,
        spawn: Spawn,
        guard: Guard,
        *,
        timers: Timers,
        rng: Rng,
        now: Callable[[], float],
        not_ready: Callable[[], str | None],
        hosts: Iterable[str],
        holder: Callable[[int], Awaitable[str | None]] | None = None,
        stamps: StampLog | None = None,
        seats: Seats | None = None,
        tls: Tls | None = None,
        logins: Logins | None = None,
        notice: str = "",
        leases: Leases | None = None,
        hybrid: bool = False,
        sql: Callable[..., Awaitable[Plain]] | None = None,
    ) -> None:
        """`now` in seconds: the loop's own time is that of its last pass, in ms. `not_ready` says
        why requests cannot be served, None if they can. `hosts`: names that it may be asked for by
        beside its machine's (host_header.py). `holder`: see Sessions. `stamps`: tell it
        of every request; `backend` does already. `logins`: of the console, by an issuer.
        `leases`: of workers that speak HTTP.
        `notice`: what whoever looks at it should know. `hybrid`: clocks may be (causal_tokens.py).
        `sql`: runs a statement; None: SQL is switched off here.
        """
        self.metrics = Metrics()
        self.sessions = Sessions(backend, timers, spawn, holder)
        visits = Visits(guard, rng, now)
        door = Door(guard, backend, visits)
        tokens = CausalTokens(backend, on=hybrid)
        cold = ColdApi(
            *(backend, self.metrics, not_ready, VERSION, now, door, guard, visits, tokens),
            *(logins, notice, leases, sql),
        )
        self._leases = leases
        self._guard = guard
        requests = self.metrics.requests
        self._watches = watches = Watches(backend, requests, now, door, tokens)
        hot = HotApi(backend, self.sessions, cold.application, requests, now, watches, door, tokens)
        app = HostGuard(hot, (*hosts, socket.gethostname()))
        served = app if stamps is None else StampedHttp(app, stamps, now, rng)
        self._server = HttpServer(served, sock, seats or Seats(), tls)
        self.metrics.add("audit", NO_FIGURES.copy if stamps is None else stamps.figures)
        if tls is not None:
            from kvorum.security import certificates  # 0.15 s: only who needs it imports it

            self.metrics.add("tls", partial(certificates.figures, tls))
        sessions = self.sessions
        self._reviews = door.review, sessions.review
        self.metrics.add(
            "http", lambda: {"transactions_open": len(sessions), "watches_open": len(watches)}
        )

    async def start(self) -> None:
        self._guard.followers += self._reviews
        await self._server.start()

    async def stop(self) -> None:
        """Requests under way finish; transactions that clients hold open are aborted."""
        self._watches.close()
        if self._leases is not None:
            await self._leases.close()
        await self._server.stop()
        followers = self._guard.followers
        followers[:] = [one for one in followers if one not in self._reviews]
        await self.sessions.close()
