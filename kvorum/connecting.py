"""How to get a database: `connect` and `aconnect` to a running node, `open` and `aopen` with a node
of one's own.

    kvorum.connect("kvorum://host:7600,other:7600")    native protocol, the fast way
    kvorum.connect("http://host:7602")                 the same API over HTTP
    kvorum.connect("kvorums://host", tls_dir="tls")    with TLS; https:// likewise
    kvorum.open("directory")                           a node in this process, no ports

`connect` and `open` give the synchronous `Database` (any number of threads), `aconnect` and `aopen`
the `AsyncDatabase` of the running loop.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from kv.base.adapters import SystemRng
from kv.base.config_values import domains
from kv.base.credentials import NONE, Credential, from_environment
from kv.base.errors import InvalidArgument
from kv.base.limits import DEADLINE_MS_DEFAULT, DEADLINE_MS_MAX
from kv.base.tls import Tls
from kvorum.api.addresses import Address, parse_url, tls_for
from kvorum.api.backend import Backend
from kvorum.native.remote import connect_backend
from kvorum.sdk.database import AsyncDatabase
from kvorum.sdk.operation_deadlines import bounded
from kvorum.sdk.portal import Portal
from kvorum.sdk.sync import Database

if TYPE_CHECKING:
    from kvorum.native.native import NativeBackend

P = ParamSpec("P")


async def aconnect(
    url: str,
    *,
    timeout_ms: int | None = None,
    session: str | int = "",
    token: str = "",
    user: str = "",
    password: str = "",
    tls_dir: str | Path | None = None,
    ca: str | Path | None = None,
    near: str | None = None,
) -> AsyncDatabase:
    """A database behind a URL. Who asks: a `token`, or a `user` and a `password`; left out, what
    KVORUM_TOKEN, KVORUM_TOKEN_FILE, or KVORUM_USER and KVORUM_PASSWORD_FILE say. `timeout_ms`
    bounds every operation as a whole, also a schema change and a `wait` that says no time of its
    own; what then may have been done, or goes on, is raised as UnknownOutcome. Left out: 10
    seconds, schema changes 2 minutes, `wait` for ever. `session`: what another process's
    `db.session_token()` gave, to see all that it had seen.

    `near`: where this program runs, as labels of nodes (dc=NAME,rack=NAME,server=NAME; "": nowhere
    in particular): reads of the past (`at`) are answered by the nearest replica then, instead of by
    leaders. Over HTTP the node decides.

    TLS: `tls_dir` is the directory of ca.crt and, if there is one, the client's certificate, which
    is a login, too (`kvorum cert client`); `ca`: a file of who signs the nodes. Left out:
    KVORUM_TLS_DIR, KVORUM_CA, or for kvorums:// and https:// whom this machine believes. Raises
    Unavailable, InvalidArgument.
    """
    _check_timeout(timeout_ms)
    given = Credential(token, user, password)
    credential = from_environment(os.environ) if given == NONE else given
    here = None if near is None else _domains(near)
    scheme, addresses = parse_url(url)
    tls = tls_for(url, tls_dir, ca, credential.user)
    usual_ms = timeout_ms or DEADLINE_MS_DEFAULT
    if scheme == "http":
        whole = timeout_ms is not None
        backend = _http(addresses[0], usual_ms, credential, tls, whole=whole)
    else:
        native = await connect_backend(addresses, usual_ms, tls, credential, here)
        backend = _in_time(native, timeout_ms)
    db = AsyncDatabase(backend, SystemRng())
    db.patience_ms = timeout_ms
    db.where = f"{scheme}://" + ",".join(f"{host}:{port}" for host, port in addresses)
    if session != "":
        try:
            await db.resume_session(session)
        except BaseException:
            await db.close()
            raise
    return db


async def aopen(
    directory: str | Path,
    *,
    port: int | None = None,
    procedure_modules: Sequence[str] = (),
    timeout_ms: int | None = None,
) -> AsyncDatabase:
    """A node of one's own in this process, on the running loop (`open`: on a loop in a thread of
    its own); `close` stops it.

    With `port` it also listens, on BASE and BASE+2 of the loopback, so that others can connect.
    `timeout_ms` as of `connect`.
    """
    from kv.base.config import NodeConfig
    from kvorum.local.ports import system_ports
    from kvorum.node.node import build

    _check_timeout(timeout_ms)
    config = NodeConfig(data=Path(directory), port=port, procedure_modules=tuple(procedure_modules))
    node = await build(config, system_ports(asyncio.get_running_loop()))
    await node.start()
    backend = node.surface("embedded")
    if timeout_ms is not None:
        backend = bounded(backend, timeout_ms)
    db = AsyncDatabase(backend, SystemRng())
    db.patience_ms = timeout_ms
    return db


def _blocking(
    make: Callable[P, Coroutine[object, None, AsyncDatabase]], name: str, loop: str
) -> Callable[P, Database]:
    """The same for callers without a loop: on one of its own, in a thread of its own."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Database:
        portal = Portal(loop)
        try:
            return Database(portal, portal.call(make(*args, **kwargs)))
        except BaseException:
            portal.close()
            raise

    made.__name__ = made.__qualname__ = name
    shown = inspect.signature(make).replace(return_annotation="Database")
    made.__dict__["__signature__"] = shown  # what help() and editors show
    return made


connect = _blocking(aconnect, "connect", "kvorum-sdk")
open = _blocking(aopen, "open", "kvorum-node")


def _in_time(backend: NativeBackend, timeout_ms: int | None) -> Backend:
    if timeout_ms is not None:
        backend.patience_ms = timeout_ms
        return bounded(backend, timeout_ms)
    return bounded(backend, DEADLINE_MS_DEFAULT, procedures=DEADLINE_MS_MAX)


def _domains(near: str) -> tuple[str, str, str]:
    try:
        return domains(near)
    except ValueError as e:
        raise InvalidArgument(f"near = {near!r:.80} is not {e}") from None


def _check_timeout(timeout_ms: int | None) -> None:
    if timeout_ms is None:
        return
    if type(timeout_ms) is not int or not 0 < timeout_ms <= DEADLINE_MS_MAX:
        raise InvalidArgument(f"timeout_ms must be 1 to {DEADLINE_MS_MAX}, got {timeout_ms!r}")


def _http(
    address: Address, timeout_ms: int, credential: Credential, tls: Tls | None, *, whole: bool
) -> Backend:
    from kvorum.http.client.http_backend import HttpBackend
    from kvorum.http.client.transport import HttpTransport, authorization

    said = authorization(credential)
    transport = HttpTransport(*address, asyncio.get_running_loop(), said, tls)
    return HttpBackend(transport, timeout_ms, whole=whole)
