"""What a setting is, and what its value may be (config.py). A parser takes text, as flags and the
environment have it, or a value of TOML, and gives it checked, or raises ValueError that says what
is allowed. And addresses: HOST:BASE.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from kv.base.limits import NAME_CHARS_MAX, SECRET_CHARS_MAX, SECRET_CHARS_MIN

Parse = Callable[[Any], Any]
SITE_LABELS: Final = ("dc", "rack", "server")
PORTS_PER_NODE: Final = 10  # base: RPC, +1 Raft peers, +2 HTTP, +3 SQL; store i of a machine: +10·i
ENVIRONMENT_PREFIX: Final = "KVORUM_"
ANY_HOST: Final = "*"


@dataclass(frozen=True, slots=True)
class Setting:
    """What the annotation of a setting carries."""

    metavar: str
    parse: Parse
    help: str
    secret: bool = False
    flag: str = ""  # if it is not the name's


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `help` is a sentence for `--help`; `default` is what holds if nothing is
    said. A `secret` has no flag (every user of a machine sees the flags of its processes) and is
    never repeated in a message.
    """

    name: str
    default: object
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


def integer(low: int, high: int) -> Parse:
    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,20}", value.strip()):
            value = int(value)
        if type(value) is int and low <= value <= high:
            return value
        raise ValueError(f"an integer from {low} to {high}")

    return parse


def flag(value: object) -> bool:
    if type(value) is bool:
        return value
    known = {"true": True, "yes": True, "on": True, "1": True}
    known |= {"false": False, "no": False, "off": False, "0": False}
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    raise ValueError("true or false (also yes, on, 1 and no, off, 0)")


def one_of(*allowed: str) -> Parse:
    def parse(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        raise ValueError(f"one of {', '.join(allowed)}")

    return parse


def some_of(parse_item: Parse, what: str) -> Parse:
    def parse(value: object) -> tuple[object, ...]:
        if isinstance(value, str):
            value = [item.strip() for item in value.split(",") if item.strip()]
        if not isinstance(value, list | tuple):
            raise ValueError(f"a list of {what}")
        found: list[object] = []
        for item in value:
            parsed = parse_item(item)
            if parsed in found:
                raise ValueError(f"a list of {what} in which none is named twice")
            found.append(parsed)
        return tuple(found)

    return parse


def path(value: object) -> Path:
    if isinstance(value, str | Path) and str(value).strip():
        return Path(value).expanduser()
    raise ValueError("a directory's path")


def file(value: object) -> str:
    if isinstance(value, str | Path) and (not value or str(value).strip()):
        return str(Path(value).expanduser()) if value else ""
    raise ValueError("a file's path, or nothing")


def host(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"[A-Za-z0-9._-]+", text):
        return text
    with contextlib.suppress(ValueError):
        return str(ipaddress.IPv6Address(text))
    raise ValueError("a host name or an IP address, without a port")


def host_or_empty(value: object) -> str:
    return "" if value == "" else host(value)


def host_pattern(value: object) -> str:
    """A host's name, `*.NAME` for all below one, or ANY_HOST."""
    text = value.strip() if isinstance(value, str) else ""
    if text == ANY_HOST:
        return text
    try:
        return "*." + host(text[2:]) if text.startswith("*.") else host(text)
    except ValueError:
        raise ValueError("host names without a port, *.NAME, or *") from None


def address(value: object) -> str:
    if isinstance(value, str):
        name, _, port = value.strip().rpartition(":")
        try:
            name, number = host(name.strip("[]")), base_port(port)
            return f"[{name}]:{number}" if ":" in name else f"{name}:{number}"
        except ValueError:
            pass
    raise ValueError("addresses HOST:BASE")


def url_or_empty(value: object) -> str:
    """https://…; http only to this machine."""
    found = str(value)
    scheme, _, rest = found.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2].rpartition(":")[0] or rest.partition("/")[0]
    if found and not (scheme == "https" and rest) and not (scheme == "http" and is_loopback(host)):
        raise ValueError("https://HOST/…")
    return found


def file_or_url(value: object) -> str:
    """A file's name, or what `url_or_empty` takes."""
    return url_or_empty(value) if "://" in str(value) else file(value)


def log_place(value: object) -> str:
    """syslog:///PATH, syslog://HOST:PORT, or what `url_or_empty` takes."""
    found = str(value)
    return found if re.fullmatch(r"syslog://(/.+|[^/]+)", found) else url_or_empty(found)


def claim(value: object) -> str:
    """The name of a claim."""
    if not re.fullmatch(r"\w{1,64}", str(value)):
        raise ValueError("the name of a claim, such as sub or email")
    return str(value)


def scope(value: object) -> str:
    """One of OAuth's (RFC 6749 3.3)."""
    if not isinstance(value, str) or not re.fullmatch(r"[!#-\[\]-~]{1,200}", value):
        raise ValueError("scopes, such as openid and email")
    return value


def secret(value: object) -> str:
    if value == "":
        return ""
    if isinstance(value, str) and SECRET_CHARS_MIN <= len(value) <= SECRET_CHARS_MAX:
        return value
    raise ValueError(f"{SECRET_CHARS_MIN} to {SECRET_CHARS_MAX} characters")


def label(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(rf"[A-Za-z0-9._:-]{{0,{NAME_CHARS_MAX}}}", value):
        return value
    raise ValueError(f"up to {NAME_CHARS_MAX} letters, digits and . _ : -")


def tag(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if text and label(text) == text:
        return text
    raise ValueError(f"tags of up to {NAME_CHARS_MAX} letters, digits and . _ : -")


def site_label(value: object) -> str:
    name, equals, text = value.partition("=") if isinstance(value, str) else ("", "", "")
    if name.strip() in SITE_LABELS and equals:
        return f"{name.strip()}={tag(text)}"
    raise ValueError(f"NAME=VALUE with a name of {', '.join(SITE_LABELS)}")


def domains(text: str) -> tuple[str, str, str]:
    """Datacenter, rack and server in labels like dc=NAME,rack=NAME; "": not said. Raises
    ValueError.
    """
    labels = some_of(site_label, "labels dc=NAME, rack=NAME, server=NAME")(text)
    said = dict(str(label).split("=", 1) for label in labels)
    if len(said) < len(labels):
        raise ValueError(f"labels in which none of {', '.join(SITE_LABELS)} is named twice")
    dc, rack, server = (said.get(name, "") for name in SITE_LABELS)
    return dc, rack, server


def module(value: object) -> str:
    if isinstance(value, str) and all(part.isidentifier() for part in value.strip().split(".")):
        return value.strip()
    raise ValueError("names of Python modules")


_DATABASE = re.compile(
    r"postgres(ql)?://([^\s@:/,?#\[\]%\\]+@)?"
    r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[^\s/?#\\]*)?"
)


_OTHER_PLACE = re.compile(
    r"([a-z][a-z0-9.-]*(?:\+[a-z][a-z0-9.-]*)?)://(?:[^:@/?#]+@)?[^@/?#]+(/[^?#]*)?(?:\?([^#]*))?"
)
_NO_PLACES = frozenset(
    {"file", "local", "fsspec+file", "fsspec+local", "memory", "postgres", "postgresql"}
)
STORES: Final = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
"""Schemes of stores that every node sees, with credentials of its own. Their URLs may have options
(endpoint_override=…), which only the one in the configuration has.
"""
SECRET_NAMES: Final = re.compile(
    r"pass|secret|token|credentials?$|access_?key|account_?key|signature|^sig$|^sas$"
)
"""In a name, of what must not be kept or shown."""


def secret_options(query: str) -> bool:
    """Whether what follows the ? of a URL has keys in it, however it is quoted."""
    names = (unquote(option.partition("=")[0]) for option in re.split("[?&#]", query))
    return any(SECRET_NAMES.search(name.lower()) for name in names)


def without_secrets(text: str) -> str:
    """A text that may have URLs in it, without their passwords and keys."""
    text = re.sub(r"(://[^:@/?#\s]*:)[^@\s]*@", r"\1…@", text)
    url, mark, query = text.partition("?")
    return f"{url}?…" if mark and secret_options(query) else text


def transfer_place(value: object) -> str:
    """A file:/// URI or another URL, both without `..`; only those of STORES with options, none of
    which is a key. Or a postgresql:// URL without password and options.
    """
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"file:///[^?#]*", text) and ".." not in unquote(text).split("/"):
        return text
    if _DATABASE.fullmatch(text):
        return text
    if found := _OTHER_PLACE.fullmatch(text):
        scheme, path, query = found.groups()
        climbs = ".." in unquote(path or "").split("/")
        key = re.search(r"://[^/]*:.*@", text)  # a slash in a secret is not always quoted
        options = query is None or (scheme in STORES and not secret_options(query))
        if options and not key and not climbs and scheme not in _NO_PLACES:
            return text
    raise ValueError(
        "places file:///DIRECTORY, postgresql://HOST[:PORT][/DATABASE] or another SCHEME://HOST/PATH"
    )


base_port = integer(1, 65_535 - PORTS_PER_NODE + 1)


def place_in(join: Iterable[str], address: str) -> int | None:
    """Where in a list of addresses HOST:BASE this one stands, from 1 on; None: it does not."""
    own = _normal(address)
    return next((i for i, listed in enumerate(join, 1) if _normal(listed) == own), None)


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.removeprefix("::ffff:").startswith("127.")


def _normal(address: str) -> str:
    """The three names of this machine are one."""
    host, _, port = address.lower().rpartition(":")
    return f"127.0.0.1:{port}" if host in ("localhost", "[::1]") else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a checked HOST:BASE."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
