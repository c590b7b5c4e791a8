"""What a node is told: from its flags, the environment, a file, or the defaults, in this order.
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

import contextlib
import ipaddress
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

from kv.base.errors import InvalidArgument
from kv.base.limits import (
    AUDIT_FILES_MAX,
    DEAD_AFTER_MS_DEFAULT,
    DEAD_AFTER_MS_MIN,
    FIRST_NODES_MAX,
    GC_RETENTION_MS_DEFAULT,
    NAME_CHARS_MAX,
    PROCEDURE_WORKERS_DEFAULT,
    PROCEDURE_WORKERS_MAX,
    SECRET_CHARS_MAX,
    SECRET_CHARS_MIN,
    STORES_MAX,
    TAGS_MAX,
)

ROLES: Final = ("partitions", "master", "tso", "http", "sql")
ENGINES: Final = ("rocks", "memory")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
PORT_DEFAULT: Final = 7600
PEERS_OFFSET: Final = 1
"""Other nodes' consensus messages arrive at BASE and this."""
HTTP_OFFSET: Final = 2
"""HTTP listens at BASE and this."""
SQL_OFFSET: Final = 3
"""The PostgreSQL protocol is spoken at BASE and this."""
SITE_LABELS: Final = ("dc", "rack", "server")
PORTS_PER_NODE: Final = 10  # base: RPC, +1 Raft peers, +2 HTTP, +3 SQL; store i of a machine: +10·i
ENVIRONMENT_PREFIX: Final = "KVORUM_"
CONFIG_VARIABLE: Final = "KVORUM_CONFIG"
SUPERVISED: Final = "KVORUM_SUPERVISED"
"""Set for the processes of `--stores`: who started them holds the other end of their stdin."""
# With our prefix, but not a node's settings.
OTHER_VARIABLES: Final = frozenset({CONFIG_VARIABLE, SUPERVISED, "KVORUM_CONNECT"})
_DAY_MS: Final = 86_400_000

Parse = Callable[[Any], Any]
"""From text (flags, environment) or a TOML value. Raises ValueError that says what is allowed."""


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `help` is a sentence for `--help`; `default` is what holds if nothing is
    said. A `secret` has no flag (every user of a machine sees the flags of its processes) and is
    never repeated in a message.
    """

    name: str
    default: Any
    help: str
    parse: Parse
    metavar: str
    secret: bool = False
    own_flag: str = ""  # if it is not the name's

    @property
    def flag(self) -> str:
        return self.own_flag or "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


# -- what values may be


def _integer(low: int, high: int) -> Parse:
    def parse(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,20}", value.strip()):
            value = int(value)
        if type(value) is int and low <= value <= high:
            return value
        raise ValueError(f"an integer from {low} to {high}")

    return parse


def _flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    known = {"true": True, "yes": True, "on": True, "1": True}
    known |= {"false": False, "no": False, "off": False, "0": False}
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    raise ValueError("true or false (also yes, on, 1 and no, off, 0)")


def _one_of(*allowed: str) -> Parse:
    def parse(value: Any) -> str:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        raise ValueError(f"one of {', '.join(allowed)}")

    return parse


def _some_of(parse_item: Parse, what: str) -> Parse:
    def parse(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str):
            value = [item.strip() for item in value.split(",") if item.strip()]
        if not isinstance(value, list | tuple):
            raise ValueError(f"a list of {what}")
        found: list[Any] = []
        for item in value:
            parsed = parse_item(item)
            if parsed in found:
                raise ValueError(f"a list of {what} in which none is named twice")
            found.append(parsed)
        return tuple(found)

    return parse


def _path(value: Any) -> Path:
    if isinstance(value, str | Path) and str(value).strip():
        return Path(value).expanduser()
    raise ValueError("a directory's path")


def _file(value: Any) -> str:
    if isinstance(value, str | Path) and (not value or str(value).strip()):
        return str(Path(value).expanduser()) if value else ""
    raise ValueError("a file's path, or nothing")


def _host(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"[A-Za-z0-9._-]+", text):
        return text
    with contextlib.suppress(ValueError):
        return str(ipaddress.IPv6Address(text))
    raise ValueError("a host name or an IP address, without a port")


def _host_or_empty(value: Any) -> str:
    return "" if value == "" else _host(value)


def _address(value: Any) -> str:
    if isinstance(value, str):
        host, _, port = value.strip().rpartition(":")
        try:
            host, number = _host(host.strip("[]")), _base_port(port)
            return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
        except ValueError:
            pass
    raise ValueError("addresses HOST:BASE")


def _secret(value: Any) -> str:
    if value == "":
        return ""
    if isinstance(value, str) and SECRET_CHARS_MIN <= len(value) <= SECRET_CHARS_MAX:
        return value
    raise ValueError(f"{SECRET_CHARS_MIN} to {SECRET_CHARS_MAX} characters")


def _label(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(rf"[A-Za-z0-9._:-]{{0,{NAME_CHARS_MAX}}}", value):
        return value
    raise ValueError(f"up to {NAME_CHARS_MAX} letters, digits and . _ : -")


def _tag(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if text and _label(text) == text:
        return text
    raise ValueError(f"tags of up to {NAME_CHARS_MAX} letters, digits and . _ : -")


def _site_label(value: Any) -> str:
    name, equals, text = value.partition("=") if isinstance(value, str) else ("", "", "")
    if name.strip() in SITE_LABELS and equals:
        return f"{name.strip()}={_tag(text)}"
    raise ValueError(f"NAME=VALUE with a name of {', '.join(SITE_LABELS)}")


def _module(value: Any) -> str:
    if isinstance(value, str) and all(part.isidentifier() for part in value.strip().split(".")):
        return value.strip()
    raise ValueError("names of Python modules")


_base_port = _integer(1, 65_535 - PORTS_PER_NODE + 1)


# -- the settings


@dataclass(frozen=True, slots=True)
class Setting:
    """What the annotation of a setting carries."""

    metavar: str
    parse: Parse
    help: str
    secret: bool = False
    flag: str = ""  # if it is not the name's


_DATA_DEFAULT: Final = Path("kvorum-data")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """A node's settings, checked. Made by `load`, or directly by embedding code and tests."""

    data: Annotated[
        Path, Setting("DIR", _path, "Directory of the node's data; made if it is missing.")
    ] = _DATA_DEFAULT
    listen: Annotated[
        str, Setting("HOST", _host, "Address to listen on. 0.0.0.0 = every interface.")
    ] = "127.0.0.1"
    advertise: Annotated[
        str,
        Setting("HOST", _host_or_empty, "Address that others reach it by; empty = --listen."),
    ] = ""
    port: Annotated[
        int | None,  # None, which only code can give: no ports at all (embedded)
        Setting("BASE", _base_port, "BASE native RPC, +1 Raft peers, +2 HTTP, +3 SQL."),
    ] = PORT_DEFAULT
    node_id: Annotated[
        int,
        Setting("N", _integer(1, 65_535), "The node's number: its place in the first --join list."),
    ] = 1
    join: Annotated[
        tuple[str, ...],
        Setting(
            "HOST:BASE,…",
            _some_of(_address, "addresses HOST:BASE"),
            "At first all its nodes, the same list at each; later any. Empty = one node.",
        ),
    ] = ()
    witnesses: Annotated[
        tuple[int, ...],
        Setting(
            "N,…",
            _some_of(_integer(1, FIRST_NODES_MAX), "places in join"),
            "Which of the first --join list vote and keep no data; the same list at each.",
        ),
    ] = ()
    witness: Annotated[
        bool,
        Setting("BOOL", _flag, "A later node votes and keeps no data. Decided at its first start."),
    ] = False
    cluster_secret: Annotated[
        str,
        Setting(
            "TEXT",
            _secret,
            "What nodes prove to each other; the same at all. Needed beyond the loopback.",
            secret=True,
        ),
    ] = field(default="", repr=False)
    roles: Annotated[
        tuple[str, ...],
        Setting("R,…", _some_of(_one_of(*ROLES), f"roles ({', '.join(ROLES)})"), "What it may do."),
    ] = ROLES
    stores: Annotated[
        int,
        Setting("N", _integer(1, STORES_MAX), "Node processes on this machine, one per core."),
    ] = 1
    machine: Annotated[
        str,
        Setting("NAME", _label, "What fails together has the same; empty = by the address."),
    ] = ""
    labels: Annotated[
        tuple[str, ...],
        Setting(
            "dc=…,rack=…,server=…",
            _some_of(_site_label, "labels dc=NAME, rack=NAME, server=NAME"),
            "Where it is: replicas are kept apart by it; server is another word for machine.",
        ),
    ] = ()
    tags: Annotated[
        tuple[str, ...],
        Setting(
            "TAG,…",
            _some_of(_tag, "tags: letters, digits and . _ : -"),
            "What it carries: tables that want a tag are on nodes that have it.",
        ),
    ] = ()
    engine: Annotated[
        str,
        Setting("KIND", _one_of(*ENGINES), "rocks = on disk, memory = gone with the process."),
    ] = "rocks"
    http: Annotated[
        bool, Setting("BOOL", _flag, "Serve the HTTP API, the metrics and the console.")
    ] = True
    sql: Annotated[bool, Setting("BOOL", _flag, "Serve PostgreSQL's clients.")] = True
    gc_retention_ms: Annotated[
        int,
        Setting("MS", _integer(1, 365 * _DAY_MS), "How long old versions stay readable."),
    ] = GC_RETENTION_MS_DEFAULT
    gc_interval_ms: Annotated[
        int,
        Setting("MS", _integer(100, _DAY_MS), "Pause between two collections of old versions."),
    ] = 30_000
    dead_after_ms: Annotated[
        int,
        Setting(
            "MS",
            _integer(DEAD_AFTER_MS_MIN, 365 * _DAY_MS),
            "A node silent for so long is dead: what it had is rebuilt on others.",
        ),
    ] = DEAD_AFTER_MS_DEFAULT
    procedure_modules: Annotated[
        tuple[str, ...],
        Setting(
            "MODULE,…",
            _some_of(_module, "names of Python modules"),
            "Python modules whose procedures this node runs.",
        ),
    ] = ()
    procedure_workers: Annotated[
        int,
        Setting(
            "N",
            _integer(1, PROCEDURE_WORKERS_MAX),
            "Procedures whose step may be under way at once.",
        ),
    ] = PROCEDURE_WORKERS_DEFAULT
    log_level: Annotated[
        str, Setting("LEVEL", _one_of(*LOG_LEVELS), "Least severe messages that are logged.")
    ] = "info"
    audit_log: Annotated[
        str,
        Setting("FILE", _file, "Log every request with its timestamps there.", flag="--audit"),
    ] = ""
    audit_keys: Annotated[
        bool, Setting("BOOL", _flag, "The log of requests names keys, not only tables.")
    ] = False
    audit_file_mib: Annotated[
        int, Setting("MIB", _integer(1, 1 << 20), "The log of requests begins a new file then.")
    ] = 64
    audit_files: Annotated[
        int,
        Setting("N", _integer(0, AUDIT_FILES_MAX), "Older files of the log of requests kept."),
    ] = 10
    fault_injection: Annotated[
        bool,
        Setting("BOOL", _flag, "Let clients cut this node's links. Only for trying failures out."),
    ] = False

    def __post_init__(self) -> None:
        """Check what single settings cannot: their relations. Raises InvalidArgument."""
        if self.join and not self.advertise and self.listen in ("0.0.0.0", "::"):
            raise InvalidArgument(
                f"listen = {self.listen} is no address that others can reach: give --advertise",
                details={"setting": "advertise"},
            )
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
        if not self.cluster_secret and not self.on_loopback:
            raise InvalidArgument(
                f"listen = {self.listen} is reached from other machines: set cluster_secret to the "
                f"same {SECRET_CHARS_MIN} or more characters at every node (KVORUM_CLUSTER_SECRET, "
                "or in the file)",
                details={"setting": "cluster_secret"},
            )
        place = self.place
        if place is not None and place != self.node_id:
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
        """The host that others are told."""
        return self.advertise or self.listen

    @property
    def address(self) -> str:
        """HOST:BASE that others are told; empty without ports."""
        if self.port is None:
            return ""
        host = self.reachable_at
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        """Only this machine reaches it."""
        return _is_loopback(self.listen)

    @property
    def place(self) -> int | None:
        """Where in the join list this node's own address stands, from 1 on; None: it does not."""
        return place_in(self.join, self.address)


def place_in(join: Iterable[str], address: str) -> int | None:
    """Where in a list of addresses HOST:BASE this one stands, from 1 on; None: it does not."""
    own = _normal(address)
    return next((i for i, listed in enumerate(join, 1) if _normal(listed) == own), None)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _normal(address: str) -> str:
    """The three names of this machine are one."""
    host, _, port = address.lower().rpartition(":")
    return f"127.0.0.1:{port}" if host in ("localhost", "[::1]") else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a checked HOST:BASE."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


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
    flags: Mapping[str, Any],
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


def _from_file(path: Path) -> dict[str, Any]:
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


def _parsed(option: Option, value: Any, origin: str) -> Any:
    try:
        return option.parse(value)
    except ValueError as error:
        shown = "…" if option.secret else repr(value)
        raise InvalidArgument(
            f"{option.name} = {shown} ({origin}): expected {error}",
            details={
                "setting": option.name,
                "value": "…" if option.secret else str(value),
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
