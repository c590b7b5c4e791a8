"""`kvorum start|dev|proxy|status`: running a node or a proxy, and asking one how it is."""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kv.base.config import OPTIONS, PORT_DEFAULT, NodeConfig, Option, load, not_closed
from kv.base.config_values import host_pattern, is_loopback, some_of
from kv.base.errors import InvalidArgument, KvorumError
from kv.base.tls import TLS_DIR, node_tls
from kvorum.cli import output
from kvorum.cli.connection import DEFAULT, Clock, Connect, Json, opened

if TYPE_CHECKING:
    from kvorum.node.node import Node


def start(**given: Any) -> None:
    """Run a node until SIGTERM or Ctrl-C; with --stores several, one process each.
    Settings: flags, then KVORUM_… variables, then the file.
    """
    json = given.pop("json")
    config_file = given.pop("config")
    try:
        config = load(given, os.environ, config=config_file)
        from kvorum.programs.stores import check_layout

        check_layout(config.data, config.stores)
    except KvorumError as e:
        output.die(e, as_json=json)
    if config.stores > 1:
        _run_stores(config, json)
    else:
        _run(config, json)


def _run_stores(config: NodeConfig, json: bool) -> None:
    from kvorum.programs.stores import run

    def ready(stores: Sequence[dict[str, Any]]) -> None:
        connect = ",".join(answer["native"] for answer in stores).replace(",kvorum://", ",")
        if json:
            output.emit({"stores": list(stores), "connect": connect})
        else:
            titles = ("STORE", "NODE", "PID", "NATIVE", "HTTP")
            rows = [[answer.get(t.lower(), "-") for t in titles] for answer in stores]
            output.table(titles, rows)
            output.lines(["", f"connect  {connect}"])
        sys.stdout.flush()

    try:
        run(config, ready)
    except KvorumError as e:
        output.die(e, as_json=json)
    except OSError as e:
        output.die(f"cannot start the stores: {e.strerror or e}", as_json=json)


def _flags(options: Iterable[Option]) -> list[inspect.Parameter]:
    """One per setting of kv.base.config, so that `--help` shows all of them."""
    return [
        _keyword(
            option.name,
            Annotated[
                (str if option.metavar else bool) | None,
                typer.Option(
                    option.flag,
                    metavar=option.metavar or None,
                    help=f"{option.help} Default: {_shown(option.default)}. {option.variable}",
                    show_default=False,
                ),
            ],
            None,
        )
        for option in options
        if not option.secret
    ]


def _keyword(name: str, annotation: object, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _takes(command: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """What typer sees of a command that takes any keyword."""
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        return ",".join(map(str, default)) or "none"
    return str(default).lower() if isinstance(default, bool) else str(default) or "none"


_CONFIG = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="TOML file of settings. KVORUM_CONFIG"),
]
_takes(
    start,
    [*_flags(OPTIONS), _keyword("config", _CONFIG, None), _keyword("json", Json, False)],
)


def dev(
    data: Annotated[
        Path | None,
        typer.Option(help="Keep the data here; without it they are gone at the end."),
    ] = None,
    port: Annotated[int, typer.Option(help="BASE of the ports.")] = PORT_DEFAULT,
    procedure_modules: Annotated[
        str, typer.Option(metavar="MODULE,…", help="Modules whose procedures it runs.")
    ] = "",
    secure: Annotated[
        bool,
        typer.Option("--secure", help="TLS, and an administrator: files in DATA-tls."),
    ] = False,
    clock: Clock = None,
    json: Json = False,
) -> None:
    """Run one node for trying things out, with everything on. Prints where it is."""
    from kvorum.programs import secured

    with tempfile.TemporaryDirectory(prefix="kvorum-dev-") as temporary:
        data = data or Path(temporary) / "data"
        at = data.with_name(f"{data.name}-tls") if secure else None
        flags = {
            "data": data,
            "tls_dir": str(secured.node_dir(at)) if at else None,
            "port": port,
            "procedure_modules": procedure_modules,
            "clock": clock or "",
            "log_level": "warning",
        }
        try:
            if at is not None:
                secured.make(at, datetime.now(UTC))
            config = load(flags, {})
        except KvorumError as e:
            output.die(e, as_json=json)
        _run(config, json, at)


def _run(config: NodeConfig, json: bool, at: Path | None = None) -> None:
    """`at`: where the certificates are of a node that is to make its administrator."""
    from kvorum.programs import secured
    from kvorum.programs.process import run, urls

    def initialised() -> None:
        assert at is not None
        try:
            secured.initialise(at, f"127.0.0.1:{config.port}")
        except (KvorumError, OSError) as e:
            sys.stderr.write(f"kvorum: no administrator was made: {e}\n")
            return
        if not json:
            output.lines(["", *secured.logins(at)])
            sys.stdout.flush()

    def ready(node: Node) -> None:
        answer = {
            "node": node.store.identity.node,
            "cluster": node.store.identity.cluster,
            "data": str(config.data),
            **urls(config),
            **({"tls_dir": str(secured.admin_dir(at))} if at else {}),
        }
        if json:
            output.emit(answer)
        else:
            output.lines(f"{name:8} {value}" for name, value in answer.items())
        sys.stdout.flush()
        if at is not None:  # over a connection to this very loop
            threading.Thread(target=initialised, name="kvorum-init").start()

    try:
        run(config, ready)
    except KvorumError as e:
        output.die(e, as_json=json)
    except OSError as e:
        where = f": {e.filename}" if e.filename else f" ({config.data})"
        output.die(f"cannot start: {e.strerror or e}{where}", as_json=json)


def proxy(
    connect: Connect = None,
    listen: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="HTTP listens on PORT+2, SQL on PORT+3.")
    ] = PORT_DEFAULT,
    http_hosts: Annotated[
        str,
        typer.Option(metavar="NAME,…", help="More names by which HTTP is asked; *.NAME, * = any."),
    ] = "",
    tls_dir: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            envvar=TLS_DIR,
            help="ca.crt, node.crt and node.key: it serves TLS only, and speaks it with the nodes.",
        ),
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond the loopback without TLS.")
    ] = False,
    json: Json = False,
    **oidc: object,
) -> None:
    """Serve HTTP and SQL of a cluster from a process that keeps nothing."""
    import uvloop

    from kvorum.api.addresses import parse_url
    from kvorum.local import logs
    from kvorum.programs.proxy import Proxy, serve

    def ready(proxy: Proxy) -> None:
        if json:
            output.emit({"http": proxy.url, "sql": proxy.sql_url})
        else:
            output.lines(
                [
                    f"http     {proxy.url}",
                    f"console  {proxy.url}/console",
                    f"docs     {proxy.url}/docs",
                    f"sql      {proxy.sql_url}",
                ]
            )
        sys.stdout.flush()

    logs.configure("info")
    try:
        scheme, addresses = parse_url(connect or DEFAULT)
        if scheme != "kvorum":
            raise InvalidArgument(f"--connect {connect}: a proxy needs HOST:BASE of nodes")
        if not (tls_dir or insecure or is_loopback(listen)):
            raise InvalidArgument(not_closed(listen, listen), details={"setting": "tls_dir"})
        tls = node_tls(tls_dir) if tls_dir else None
        hosts = _hosts(http_hosts)
        variables = {option.variable for option in _SHARED}
        said = {name: text for name, text in os.environ.items() if name in variables}
        settings = load(oidc, said)
        made = Proxy(addresses, listen, port, http_hosts=hosts, tls=tls, config=settings)
        uvloop.run(serve(made, ready))
    except KvorumError as e:
        output.die(e, as_json=json)


_OF_SQL = ("sql_memory_bytes", "statement_memory_bytes", "sql_isolation")
_SHARED = tuple(one for one in OPTIONS if one.name.startswith("oidc_") or one.name in _OF_SQL)
"""Settings of a node that a proxy has, too."""
_OWN = tuple(inspect.signature(proxy, eval_str=True).parameters.values())[:-1]
_takes(proxy, [*_OWN, *_flags(_SHARED)])


def _hosts(text: str) -> tuple[str, ...]:
    try:
        found: tuple[str, ...] = some_of(host_pattern, "host names, *.NAME or *")(text)
    except ValueError as e:
        raise InvalidArgument(f"--http-hosts {text}: allowed is {e}") from None
    return found


def status(connect: Connect = None, json: Json = False) -> None:
    """Print the nodes of a cluster and how many partitions they lead."""
    with opened(connect, json) as db:
        nodes, partitions = db.nodes(), db.partitions()
    if json:
        output.emit({"nodes": nodes, "partitions": len(partitions)})
        return
    rows = [(n["id"], n["address"], n["state"], n["leaders"], n["version"]) for n in nodes]
    output.table(("NODE", "ADDRESS", "STATE", "LEADS", "VERSION"), rows)
