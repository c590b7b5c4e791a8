"""What a link is: the arguments of `kvorum.site`, checked.

    {site: NAME, tables: [{table: [namespace, name], rule?, procedure?}, …]}

`site` is a name of the nodes' file of sites. Both clusters have a link, and the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kv.base.errors import InvalidArgument
from kv.base.limits import SITE_TABLES_MAX
from kvorum.api.site_links import NAMESPACE, SITE_LINK
from kvorum.sites.rules import RULES, Rule

_FIELDS: Final = frozenset({"site", "tables"})
_OF_TABLE: Final = frozenset({"table", "rule", "procedure"})


class LinkedTable(NamedTuple):
    """`procedure`: the one that makes one value of two, of the rule "procedure"."""

    namespace: str
    name: str
    rule: Rule = "last"
    procedure: str = ""

    @property
    def path(self) -> str:
        return f"{self.namespace}.{self.name}"

    def to_plain(self) -> dict[str, object]:
        """As the arguments have it."""
        told: dict[str, object] = {"table": [self.namespace, self.name], "rule": self.rule}
        return {**told, "procedure": self.procedure} if self.procedure else told


class Link(NamedTuple):
    """One end: what this cluster takes over from the site."""

    site: str
    tables: tuple[LinkedTable, ...]


def link_of(args: object) -> Link:
    """Raises InvalidArgument."""
    if not isinstance(args, Mapping):
        raise InvalidArgument(f"the arguments of {SITE_LINK} must be a map, got {args!r:.80}")
    _known(args, _FIELDS)
    site, tables = args.get("site"), args.get("tables")
    if not isinstance(site, str) or not site:
        raise InvalidArgument(f"site must be a name of the file of sites, got {site!r:.80}")
    if not isinstance(tables, list | tuple) or not 0 < len(tables) <= SITE_TABLES_MAX:
        raise InvalidArgument(f"tables must be a list of 1 to {SITE_TABLES_MAX} tables")
    found = tuple(_table(one) for one in tables)
    paths = [table.path for table in found]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise InvalidArgument(f"table {twice} is named twice")
    return Link(site, found)


def _table(given: object) -> LinkedTable:
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"a table must be {{table: [namespace, name], …}}, got {given!r:.80}")
    _known(given, _OF_TABLE)
    match given.get("table"):
        case [str(namespace), str(name)]:
            pass
        case other:
            raise InvalidArgument(f"table must be [namespace, name], got {other!r:.80}")
    if namespace == NAMESPACE:
        raise InvalidArgument(f"tables of {NAMESPACE} belong to the link itself")
    rule = next((one for one in RULES if one == given.get("rule", "last")), None)
    if rule is None:
        raise InvalidArgument(
            f"rule of {namespace}.{name} must be one of {', '.join(RULES)}, "
            f"got {given.get('rule')!r:.80}"
        )
    procedure = given.get("procedure", "")
    if not isinstance(procedure, str) or bool(procedure) != (rule == "procedure"):
        raise InvalidArgument(
            f"{namespace}.{name}: the rule procedure needs the name of one, and no other rule does"
        )
    return LinkedTable(namespace, name, rule, procedure)


def _known(given: Mapping[Any, object], names: frozenset[str]) -> None:
    if unknown := sorted(str(name) for name in given if name not in names):
        raise InvalidArgument(f"unknown argument {unknown[0]!r:.60}")
