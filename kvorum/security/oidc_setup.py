"""What a process has of its issuer, made of its settings: who verifies tokens of requests, and who
logs people in to the console.

joserfc costs 60 ms: only a process that has an issuer imports this.
"""

from __future__ import annotations

from typing import Final

from kv.base.config import NodeConfig
from kv.base.credentials import from_file
from kv.base.ports import Clock, Rng
from kvorum.security.discovery import Discovery
from kvorum.security.oidc import Issuer, fetching
from kvorum.security.oidc_login import Client, InThread, Logins

ISSUER_CALLS_MAX: Final = 8  # at once, of a process


def issuer_and_logins(
    config: NodeConfig, clock: Clock, rng: Rng, in_thread: InThread
) -> tuple[Issuer | None, Logins | None]:
    """None: the settings have no audience, or no client. `in_thread`: for calls that block for as
    long as somebody else likes. Raises InvalidArgument: the client's secret cannot be read.
    """

    def now_s() -> float:
        return clock.now_ms() / 1_000

    discovery = Discovery(config.oidc_issuer, config.oidc_hosts, clock.monotonic)
    issuer = Issuer(
        *(config.oidc_issuer, config.oidc_audience, config.oidc_claim),
        fetching(config.oidc_jwks, discovery),
        now_s=now_s,
        in_thread=in_thread,
    )
    logins = None
    if config.oidc_client_id:
        if config.oidc_client_secret_file:
            from_file(config.oidc_client_secret_file, "oidc_client_secret_file")
        client = Client(
            *(config.oidc_issuer, config.oidc_client_id, config.oidc_client_secret_file),
            *(config.oidc_scopes, config.oidc_redirect_url),
        )
        logins = Logins(
            *(client, discovery, issuer),
            rng=rng,
            monotonic=clock.monotonic,
            in_thread=in_thread,
        )
    return issuer if config.oidc_audience else None, logins
