"""Settings of a node: from its flags, the environment, a file, or the defaults, in this order.
 One table, `OPTIONS`, has every setting with its flag, its environment variable, its default and
its help; `kvorum start --help`, `load` and docs/reference/config.md are made from it. Nothing is
guessed: a value that is not allowed, and a name that is not known, is an error that says where it
came from.

    flag        --gc-retention-ms 60000
    environment KVORUM_GC_RETENTION_MS=60000
    file        gc_retention_ms = 60000          (TOML, flat; --config FILE or KVORUM_CONFIG)

Lists are comma-separated in flags and the environment, arrays in the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints
from urllib.parse import urlsplit

from kv.base import config_values as of
from kv.base.config_values import ENVIRONMENT_PREFIX as ENVIRONMENT_PREFIX
from kv.base.config_values import PORTS_PER_NODE as PORTS_PER_NODE
from kv.base.config_values import SITE_LABELS as SITE_LABELS
from kv.base.config_values import Option as Option
from kv.base.config_values import Setting
from kv.base.config_values import place_in as place_in
from kv.base.config_values import split_address as split_address
from kv.base.errors import InvalidArgument
from kv.base.limits import (
    AUDIT_FILES_MAX,
    DEAD_AFTER_MS_DEFAULT,
    DEAD_AFTER_MS_MIN,
    FIRST_NODES_MAX,
    GC_RETENTION_MS_DEFAULT,
    PROCEDURE_WORKERS_DEFAULT,
    PROCEDURE_WORKERS_MAX,
    SECRET_CHARS_MIN,
    SQL_MEMORY_BYTES_DEFAULT,
    SQL_MEMORY_BYTES_MIN,
    SQL_PROCESSES_MAX,
    SQL_STATEMENT_MEMORY_BYTES_DEFAULT,
    SQL_STATEMENT_MEMORY_BYTES_MIN,
    STORES_MAX,
    TAGS_MAX,
)

ROLES: Final = ("partitions", "master", "tso", "http", "sql")
ENGINES: Final = ("rocks", "memory")
ORACLE: Final = "oracle"  # where timestamps come from: the leader of the meta partition …
HYBRID: Final = "hybrid"  # … or every node's own clock (tso/hybrid.py)
CLOCKS: Final = (ORACLE, HYBRID)
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
PORT_DEFAULT: Final = 7600
PEERS_OFFSET: Final = 1
"""Other nodes' consensus messages arrive at BASE and this."""
HTTP_OFFSET: Final = 2
"""HTTP listens at BASE and this."""
SQL_OFFSET: Final = 3
"""The PostgreSQL protocol is spoken at BASE and this."""
CONFIG_VARIABLE: Final = "KVORUM_CONFIG"
SUPERVISED: Final = "KVORUM_SUPERVISED"
"""Set for the processes of `--stores`: who started them holds the other end of their stdin."""
# With our prefix, but not a node's settings.
OTHER_VARIABLES: Final = frozenset(
    {CONFIG_VARIABLE, SUPERVISED, "KVORUM_CONNECT", "KVORUM_CA"}
    | {"KVORUM_TOKEN", "KVORUM_TOKEN_FILE", "KVORUM_USER", "KVORUM_PASSWORD_FILE"}
)
_DAY_MS: Final = 86_400_000


# -- the settings


_DATA_DEFAULT: Final = Path("kvorum-data")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """A node's settings, checked. Made by `load`, or directly by embedding code and tests."""

    data: Annotated[
        Path, Setting("DIR", of.path, "Directory of the node's data; made if it is missing.")
    ] = _DATA_DEFAULT
    listen: Annotated[
        str, Setting("HOST", of.host, "Address to listen on. 0.0.0.0 = every interface.")
    ] = "127.0.0.1"
    advertise: Annotated[
        str,
        Setting("HOST", of.host_or_empty, "Address that others reach it by; empty = --listen."),
    ] = ""
    port: Annotated[
        int | None,  # None, which only code can give: no ports at all (embedded)
        Setting("BASE", of.base_port, "BASE native RPC, +1 Raft peers, +2 HTTP, +3 SQL."),
    ] = PORT_DEFAULT
    node_id: Annotated[
        int,
        Setting(
            "N",
            of.integer(0, 65_535),
            "The node's number; 0 = its place in the first --join list, or what it is given.",
        ),
    ] = 0
    join: Annotated[
        tuple[str, ...],
        Setting(
            "HOST:BASE,…",
            of.some_of(of.address, "addresses HOST:BASE"),
            "At first all its nodes, the same list at each; later any. Empty = one node.",
        ),
    ] = ()
    witnesses: Annotated[
        tuple[int, ...],
        Setting(
            "N,…",
            of.some_of(of.integer(1, FIRST_NODES_MAX), "places in join"),
            "Which of the first --join list vote and keep no data; the same list at each.",
        ),
    ] = ()
    witness: Annotated[
        bool,
        Setting(
            "BOOL", of.flag, "A later node votes and keeps no data. Decided at its first start."
        ),
    ] = False
    clock: Annotated[
        str,
        Setting(
            "oracle|hybrid",
            of.one_of("", *CLOCKS),
            "Where timestamps come from. Decided when the cluster is founded; oracle if left out.",
        ),
    ] = ""
    cluster_secret: Annotated[
        str,
        Setting(
            "TEXT",
            of.secret,
            "What nodes prove to each other; the same at all. Needed beyond the loopback.",
            secret=True,
        ),
    ] = field(default="", repr=False)
    tls_dir: Annotated[
        str,
        Setting(
            "DIR",
            of.file,
            "ca.crt, node.crt, node.key (`kvorum cert`): every port speaks TLS only. Needed beyond "
            "the loopback.",
        ),
    ] = ""
    insecure: Annotated[
        bool,
        Setting(
            "",
            of.flag,
            "Listen beyond the loopback without TLS: whoever reaches a port reads what passes.",
        ),
    ] = False
    oidc_issuer: Annotated[
        str,
        Setting(
            "URL", of.url_or_empty, "Whose tokens log users in, as `iss` names it; empty = none."
        ),
    ] = ""
    oidc_audience: Annotated[
        str, Setting("ID", str, "Whom these tokens are for: this cluster, as `aud` names it.")
    ] = ""
    oidc_jwks: Annotated[
        str,
        Setting(
            "PLACE",
            of.file_or_url,
            "The issuer's keys, a JSON Web Key Set: a file or a URL; empty = it is asked for them.",
        ),
    ] = ""
    oidc_claim: Annotated[
        str, Setting("CLAIM", of.claim, "Which claim is the user's name: sub, email, ….")
    ] = "sub"
    oidc_hosts: Annotated[
        tuple[str, ...],
        Setting(
            "HOST,…",
            of.some_of(of.host, "host names"),
            "More hosts than the issuer's own that its description may name.",
        ),
    ] = ()
    oidc_client_id: Annotated[
        str,
        Setting("ID", str, "What the console is to the issuer; empty = no login there by it."),
    ] = ""
    oidc_client_secret_file: Annotated[
        str,
        Setting("FILE", of.file, "The secret of that client; empty = it has none. chmod 600."),
    ] = ""
    oidc_redirect_url: Annotated[
        str,
        Setting(
            "URL",
            of.url_or_empty,
            "Where the issuer sends people back to: this node's https://HOST:PORT/console/oidc.",
        ),
    ] = ""
    oidc_scopes: Annotated[
        tuple[str, ...],
        Setting("SCOPE,…", of.some_of(of.scope, "scopes"), "What the console asks the issuer for."),
    ] = ("openid",)
    roles: Annotated[
        tuple[str, ...],
        Setting(
            "R,…",
            of.some_of(of.one_of(*ROLES), f"roles ({', '.join(ROLES)})"),
            "What it may do.",
        ),
    ] = ROLES
    stores: Annotated[
        int,
        Setting("N", of.integer(1, STORES_MAX), "Node processes on this machine, one per core."),
    ] = 1
    machine: Annotated[
        str,
        Setting("NAME", of.label, "What fails together has the same; empty = by the address."),
    ] = ""
    labels: Annotated[
        tuple[str, ...],
        Setting(
            "dc=…,rack=…,server=…",
            of.some_of(of.site_label, "labels dc=NAME, rack=NAME, server=NAME"),
            "Where it is: replicas are kept apart by it; server is another word for machine.",
        ),
    ] = ()
    tags: Annotated[
        tuple[str, ...],
        Setting(
            "TAG,…",
            of.some_of(of.tag, "tags: letters, digits and . _ : -"),
            "What it carries: tables that want a tag are on nodes that have it.",
        ),
    ] = ()
    engine: Annotated[
        str,
        Setting("KIND", of.one_of(*ENGINES), "rocks = on disk, memory = gone with the process."),
    ] = "rocks"
    http: Annotated[
        bool, Setting("BOOL", of.flag, "Serve the HTTP API, the metrics and the console.")
    ] = True
    sql: Annotated[bool, Setting("BOOL", of.flag, "Serve PostgreSQL's clients.")] = True
    sql_processes: Annotated[
        int,
        Setting(
            "N",
            of.integer(0, SQL_PROCESSES_MAX),
            "Processes that serve PostgreSQL's clients; 0 = the node itself does.",
        ),
    ] = 0
    sql_memory_bytes: Annotated[
        int,
        Setting(
            "BYTES",
            of.integer(SQL_MEMORY_BYTES_MIN, 1 << 40),
            "What SQL's statements hold in memory together; shared out among its processes.",
        ),
    ] = SQL_MEMORY_BYTES_DEFAULT
    statement_memory_bytes: Annotated[
        int,
        Setting(
            "BYTES",
            of.integer(SQL_STATEMENT_MEMORY_BYTES_MIN, 1 << 40),
            "What the statements of one session hold; a session may SET another value.",
        ),
    ] = SQL_STATEMENT_MEMORY_BYTES_DEFAULT
    sql_isolation: Annotated[
        str,
        Setting(
            "LEVEL",
            of.one_of("read_committed", "repeatable_read", "serializable"),
            "default_transaction_isolation of SQL's sessions, which may SET another one.",
        ),
    ] = "read_committed"
    gc_retention_ms: Annotated[
        int,
        Setting("MS", of.integer(1, 365 * _DAY_MS), "How long old versions stay readable."),
    ] = GC_RETENTION_MS_DEFAULT
    gc_interval_ms: Annotated[
        int,
        Setting("MS", of.integer(100, _DAY_MS), "Pause between two collections of old versions."),
    ] = 30_000
    dead_after_ms: Annotated[
        int,
        Setting(
            "MS",
            of.integer(DEAD_AFTER_MS_MIN, 365 * _DAY_MS),
            "A node silent for so long is dead: what it had is rebuilt on others.",
        ),
    ] = DEAD_AFTER_MS_DEFAULT
    procedure_modules: Annotated[
        tuple[str, ...],
        Setting(
            "MODULE,…",
            of.some_of(of.module, "names of Python modules"),
            "Python modules whose procedures this node runs.",
        ),
    ] = ()
    procedure_workers: Annotated[
        int,
        Setting(
            "N",
            of.integer(1, PROCEDURE_WORKERS_MAX),
            "Procedures whose step may be under way at once.",
        ),
    ] = PROCEDURE_WORKERS_DEFAULT
    transfer_places: Annotated[
        tuple[str, ...],
        Setting(
            "URI,…",
            of.some_of(
                of.transfer_place,
                "places file:///DIRECTORY, postgresql://HOST/DATABASE or SCHEME://HOST/PATH",
            ),
            "Where backups, exports and imports of the nodes may read and write, and below.",
        ),
    ] = ()
    backup_key_file: Annotated[
        str,
        Setting(
            "FILE",
            of.file,
            "Key with which nodes encrypt backups: 64 hex digits, or 32 bytes; chmod 600.",
        ),
    ] = ""
    sites_file: Annotated[
        str,
        Setting("FILE", of.file, "Where other clusters are that links take over from (TOML)."),
    ] = ""
    http_hosts: Annotated[
        tuple[str, ...],
        Setting(
            "NAME,…",
            of.some_of(of.host_pattern, "host names, *.NAME or *"),
            "More names than --listen, --advertise and localhost by which HTTP is asked; * = any.",
        ),
    ] = ()
    log_level: Annotated[
        str, Setting("LEVEL", of.one_of(*LOG_LEVELS), "Least severe messages that are logged.")
    ] = "info"
    audit_log: Annotated[
        str,
        Setting("FILE", of.file, "Log every request with its timestamps there.", flag="--audit"),
    ] = ""
    audit_ship: Annotated[
        str,
        Setting(
            "URL", of.log_place, "The log of requests also goes there: syslog://… or https://…."
        ),
    ] = ""
    audit_keys: Annotated[
        bool, Setting("BOOL", of.flag, "The log of requests names keys, not only tables.")
    ] = False
    audit_file_mib: Annotated[
        int,
        Setting("MIB", of.integer(1, 1 << 20), "The log of requests begins a new file then."),
    ] = 64
    audit_files: Annotated[
        int,
        Setting("N", of.integer(0, AUDIT_FILES_MAX), "Older files of the log of requests kept."),
    ] = 10
    fault_injection: Annotated[
        bool,
        Setting(
            "BOOL", of.flag, "Let clients cut this node's links. Only for trying failures out."
        ),
    ] = False

    @property
    def session_defaults(self) -> dict[str, str]:
        """What sessions of SQL begin with, by the names of their settings."""
        return {
            "default_transaction_isolation": self.sql_isolation.replace("_", " "),
            "statement_memory_bytes": str(self.statement_memory_bytes),
        }

    def __post_init__(self) -> None:
        """Check what single settings cannot: their relations. Raises InvalidArgument."""
        if self.join and not self.advertise and self.listen in ("0.0.0.0", "::"):
            raise InvalidArgument(
                f"listen = {self.listen} is no address that others can reach: give --advertise",
                details={"setting": "advertise"},
            )
        self._check_closed()
        self._check_join()
        self._check_witnesses()
        self._check_labels()
        if not self.roles:
            raise InvalidArgument(
                f"roles is empty; a node needs at least one of {', '.join(ROLES)}",
                details={"setting": "roles"},
            )
        if self.port is not None and self.port + PORTS_PER_NODE * self.stores > 65_536:
            raise InvalidArgument(
                f"port = {self.port} leaves no room for {self.stores} stores below port 65536; "
                f"each takes {PORTS_PER_NODE}",
                details={"setting": "port", "actual": self.port},
            )

    def _check_closed(self) -> None:
        self._check_issuer()
        if self.tls_dir and self.insecure:
            raise InvalidArgument(
                f"insecure and tls_dir = {self.tls_dir} exclude each other: give one of them",
                details={"setting": "insecure"},
            )
        if self.port is not None and not (self.on_loopback or self.tls_dir or self.insecure):
            raise InvalidArgument(
                not_closed(self.listen, self.reachable_at), details={"setting": "tls_dir"}
            )

    def _check_issuer(self) -> None:
        uses = self.oidc_audience or self.oidc_client_id
        if bool(self.oidc_issuer) != bool(uses) or (self.oidc_jwks and not self.oidc_issuer):
            raise InvalidArgument(
                "oidc_issuer needs oidc_audience (tokens of requests), oidc_client_id (logins to "
                "the console), or both; and these need oidc_issuer",
                details={"setting": "oidc_issuer"},
            )
        if bool(self.oidc_client_id) != bool(self.oidc_redirect_url):
            raise InvalidArgument(
                "oidc_client_id and oidc_redirect_url belong together: set both, or none",
                details={"setting": "oidc_redirect_url"},
            )
        if self.oidc_redirect_url and not self.oidc_redirect_url.endswith("/console/oidc"):
            raise InvalidArgument(
                f"oidc_redirect_url = {self.oidc_redirect_url} does not end in /console/oidc, "
                "where the console takes the issuer's answers",
                details={"setting": "oidc_redirect_url"},
            )
        if self.oidc_client_id and "openid" not in self.oidc_scopes:
            raise InvalidArgument(
                "oidc_scopes lacks openid: the issuer would not say who has logged in",
                details={"setting": "oidc_scopes"},
            )

    def _check_labels(self) -> None:
        names = [label.partition("=")[0] for label in self.labels]
        if len(set(names)) < len(names):
            raise InvalidArgument(
                f"labels = {','.join(self.labels)} gives one of {', '.join(SITE_LABELS)} twice",
                details={"setting": "labels"},
            )
        if self.machine and self._site("server") not in ("", self.machine):
            raise InvalidArgument(
                f"machine = {self.machine} and the label server={self._site('server')} are two "
                "names of one thing: give one of them",
                details={"setting": "labels"},
            )
        if len(self.tags) > TAGS_MAX:
            raise InvalidArgument(
                f"{len(self.tags)} tags, the limit is {TAGS_MAX}",
                details={"setting": "tags", "limit": TAGS_MAX, "actual": len(self.tags)},
            )

    def _site(self, wanted: str) -> str:
        pairs = (label.partition("=") for label in self.labels)
        return next((value for name, _, value in pairs if name == wanted), "")

    @property
    def server(self) -> str:
        """What it calls its machine; empty = by the address."""
        return self.machine or self._site("server")

    @property
    def site(self) -> tuple[str, str]:
        """Its datacenter and its rack."""
        return self._site("dc"), self._site("rack")

    def _check_join(self) -> None:
        if not self.join:
            return
        if self.port is None:
            raise InvalidArgument(
                "join: a node without ports cannot be one of several", details={"setting": "join"}
            )
        if len(self.join) > FIRST_NODES_MAX:
            raise InvalidArgument(
                f"join names {len(self.join)} nodes, a new cluster has at most {FIRST_NODES_MAX}; "
                "start with fewer, others join later",
                details={"setting": "join", "limit": FIRST_NODES_MAX, "actual": len(self.join)},
            )
        if not self.cluster_secret and not self.on_loopback and not self.tls_dir:
            raise InvalidArgument(
                f"listen = {self.listen} is reached from other machines: give --tls-dir, or set "
                f"cluster_secret to the same {SECRET_CHARS_MIN} or more characters at every node "
                "(KVORUM_CLUSTER_SECRET, or in the file)",
                details={"setting": "cluster_secret"},
            )
        place = self.place
        if place is not None and self.node_id not in (0, place):
            raise InvalidArgument(
                f"node_id = {self.node_id}, but {self.address} is at place {place} of join: start "
                f"it with --node-id {place}, and give every node the same list",
                details={"setting": "node_id", "actual": self.node_id, "expected": place},
            )

    def _check_witnesses(self) -> None:
        place = self.place
        if self.witness and (not self.join or (place is not None and place not in self.witnesses)):
            raise InvalidArgument(
                "witness: a witness alone would keep nothing. One that joins later names members "
                "in join, without itself; one of the first start is named in witnesses, at every "
                "node",
                details={"setting": "witness"},
            )
        if self.witnesses and place is not None and max(self.witnesses) > len(self.join):
            raise InvalidArgument(
                f"witnesses = {max(self.witnesses)} is no place in join, which has "
                f"{len(self.join)}",
                details={"setting": "witnesses"},
            )
        if self.witnesses and place is not None and 2 * len(self.witnesses) >= len(self.join):
            raise InvalidArgument(
                f"{len(self.witnesses)} witnesses of {len(self.join)} nodes: fewer than the nodes "
                "with data are allowed, or a majority could have no data at all",
                details={"setting": "witnesses"},
            )
        if self.witnesses and not self.join:
            raise InvalidArgument(
                "witnesses are places in join: give that, too", details={"setting": "witnesses"}
            )

    @property
    def reachable_at(self) -> str:
        """The host that others are given."""
        return self.advertise or self.listen

    @property
    def known_as(self) -> tuple[str, ...]:
        """The names by which it may be asked over HTTP, beside localhost and addresses."""
        console = urlsplit(self.oidc_redirect_url).hostname or ""
        return self.listen, self.advertise, console, *self.http_hosts

    @property
    def address(self) -> str:
        """HOST:BASE that others are given; empty without ports."""
        if self.port is None:
            return ""
        host = self.reachable_at
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        """Only this machine reaches it."""
        return of.is_loopback(self.listen)

    @property
    def notice(self) -> str:
        """What its operator should be reminded of; empty: nothing."""
        if not self.insecure or self.on_loopback:
            return ""
        return insecure(self.listen)

    @property
    def place(self) -> int | None:
        """Where in the join list this node's own address stands, from 1 on; None: it does not."""
        return place_in(self.join, self.address)


def own_addresses(listen: str, *, insecure: bool) -> Callable[[str], bool] | None:
    """Which addresses clients of this machine have: its loopback's, or the one that it listens on.
    None: all that can come, or all are let in.
    """
    if insecure or of.is_loopback(listen):
        return None
    return lambda address: address == listen or of.is_loopback(address)


def insecure(listen: str) -> str:
    """What is said at every start of what has no TLS and should have."""
    return f"insecure: {listen} is reached from other machines, and nothing is encrypted"


def not_closed(listen: str, host: str) -> str:
    """What a node or proxy says that would serve other machines without TLS."""
    if host in ("0.0.0.0", "::"):
        host = "NAME"  # the reader's machine
    return (
        f"listen = {listen} is reached from other machines. Run `kvorum cert ca --dir tls` and "
        f"`kvorum cert node --dir tls --host {host}`, and start with --tls-dir tls; or say "
        "--insecure: whoever reaches a port reads what passes"
    )


def _options() -> tuple[Option, ...]:
    hints = get_type_hints(NodeConfig, include_extras=True)
    found = []
    for item in fields(NodeConfig):
        (setting,) = hints[item.name].__metadata__
        found.append(
            Option(
                item.name,
                item.default,
                setting.help,
                setting.parse,
                setting.metavar,
                setting.secret,
                setting.flag,
            )
        )
    return tuple(found)


OPTIONS: Final = _options()
_BY_NAME: Final = {option.name: option for option in OPTIONS}


# -- where values come from


def load(
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    *,
    config: str | Path | None = None,
    ignore: Iterable[str] = (),
) -> NodeConfig:
    """The settings of a node: `flags` (names of OPTIONS; None = not given) above the environment
    above the file `config` (or the one that KVORUM_CONFIG names) above the defaults.

    `ignore`: more variables with our prefix that mean something to others. Raises InvalidArgument.
    """
    values: dict[str, Any] = {}
    path = config if config is not None else environment.get(CONFIG_VARIABLE)
    if path is not None:
        values |= _from_file(Path(path))
    skip = OTHER_VARIABLES.union(ignore)
    variables = {option.variable: option for option in OPTIONS}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in skip:
            continue
        if variable not in variables:
            raise _unknown(variable, "the environment", variables)
        option = variables[variable]
        values[option.name] = _parsed(option, text, f"from {variable}")
    for name, value in flags.items():
        if name not in _BY_NAME:
            raise _unknown(name, "the flags", _BY_NAME)
        if value is not None:
            option = _BY_NAME[name]
            values[name] = _parsed(option, value, f"from {option.flag}")
    return NodeConfig(**values)


def _from_file(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise InvalidArgument(
            f"config file {path} cannot be read: {error.strerror}", details={"path": str(path)}
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"config file {path} is not TOML: {error}", details={"path": str(path)}
        ) from error
    values = {}
    for name, value in table.items():
        if name not in _BY_NAME:
            raise _unknown(name, str(path), _BY_NAME)
        values[name] = _parsed(_BY_NAME[name], value, f"from {path}")
    return values


def _parsed(option: Option, value: object, origin: str) -> object:
    try:
        return option.parse(value)
    except ValueError as error:
        shown = "…" if option.secret else of.without_secrets(repr(value))
        raise InvalidArgument(
            f"{option.name} = {shown} ({origin}): expected {error}",
            details={
                "setting": option.name,
                "value": "…" if option.secret else of.without_secrets(str(value)),
                "origin": origin,
            },
        ) from error


def _unknown(name: str, origin: str, known: Iterable[str]) -> InvalidArgument:
    names = list(known)
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(names)}"
    return InvalidArgument(
        f"{origin}: unknown setting {name!r}; {hint}", details={"setting": name, "origin": origin}
    )
