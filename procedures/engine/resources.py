"""What may be locked: names of resources, and which locks imply others. Pure.

    meta                     the map and membership of the whole cluster
    server/N                 a node
    peer/N                   a cluster that takes part in replication
    namespace/NS             a namespace
    table/NS/T               a table                    implies namespace/NS shared
    partition/ID             a partition
    partition/NS/T/ID        the same partition, said with its table: implies table/NS/T shared,
                             and so namespace/NS shared
                             (T may have slashes; NS and ID have none)
    anything else            a resource of the user's: what it stands for is his business

A procedure's class, for the order in which procedures run (K1), follows from the most
important of its locks. Its rank within class Table (K2) is meta for the meta partition, system for
what makes or removes namespaces, else user.

Source: HBase's LockedResourceType and MasterProcedureScheduler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Final, TypeAlias

from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import LOCK_RESOURCE_CHARS_MAX

SHARED: Final = "shared"
EXCLUSIVE: Final = "exclusive"
Locks: TypeAlias = tuple[tuple[str, str], ...]  # (mode, resource), as in the record

_FORMS: Final = {
    "meta": (re.compile(r"meta\Z"), "meta"),
    "server": (re.compile(r"server/[1-9][0-9]*\Z"), "server/NODE"),
    "peer": (re.compile(r"peer/[^/]+\Z"), "peer/NAME"),
    "namespace": (re.compile(r"namespace/[^/]+\Z"), "namespace/NAME"),
    "table": (re.compile(r"table/[^/]+/.+\Z"), "table/NAMESPACE/TABLE"),
    "partition": (
        re.compile(r"partition/([^/]+/.+/)?[1-9][0-9]*\Z"),
        "partition/ID or partition/NAMESPACE/TABLE/ID",
    ),
}
_META_PARTITION: Final = "partition/1"


class Kind(IntEnum):
    """The classes of procedures; the smaller one goes first."""

    META = 0
    SERVER = 1
    PEER = 2
    TABLE = 3


class Rank(IntEnum):
    """Within class Table; the smaller one goes first."""

    META = 0
    SYSTEM = 1
    USER = 2


_KINDS: Final = {"meta": Kind.META, "server": Kind.SERVER, "peer": Kind.PEER}


def checked(locks: Iterable[tuple[str, str]], where: str) -> Locks:
    """Declared locks in canonical order: one per resource, exclusive beats shared. Raises
    InvalidArgument, TooLarge.
    """
    found: dict[str, str] = {}
    for mode, resource in locks:
        if mode not in (SHARED, EXCLUSIVE):
            raise InvalidArgument(f"{where}: a lock is shared or exclusive, not {mode!r:.40}")
        check_resource(resource, where)
        if found.get(resource) != EXCLUSIVE:
            found[resource] = mode
    return tuple((found[resource], resource) for resource in sorted(found))


def check_resource(resource: object, where: str) -> None:
    """Raises InvalidArgument, TooLarge."""
    if not isinstance(resource, str) or not resource:
        raise InvalidArgument(
            f"{where}: a resource is a text such as table/shop/orders, not {resource!r:.80}"
        )
    if len(resource) > LOCK_RESOURCE_CHARS_MAX:
        raise TooLarge(
            f"{where}: a resource's name has {len(resource)} characters, the limit is "
            f"{LOCK_RESOURCE_CHARS_MAX}; use a digest of it",
            details={
                "what": "characters of a resource",
                "limit": LOCK_RESOURCE_CHARS_MAX,
                "actual": len(resource),
            },
        )
    try:
        resource.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{where}: a resource is not valid Unicode: {resource!r:.80}"
        ) from None
    form = _FORMS.get(resource.partition("/")[0])
    if form is not None and not form[0].match(resource):
        raise InvalidArgument(
            f"{where}: the resource {resource!r:.80} is not of the form {form[1]}; resources of "
            "your own begin with another word"
        )


@lru_cache(4_096)
def closure(locks: Locks) -> Locks:
    """All that these locks take: with what they imply, one per resource, in canonical order. Names
    that an earlier version stored are taken as they are.
    """
    if not locks:
        return ()
    found: dict[str, str] = {}
    for mode, resource in locks:
        for one_mode, one in _implied(mode, resource):
            if found.get(one) != EXCLUSIVE:
                found[one] = one_mode
    return tuple((found[resource], resource) for resource in sorted(found))


def _implied(mode: str, resource: str) -> list[tuple[str, str]]:
    kind, *path = _path(resource)
    if kind == "table" and len(path) == 2:
        return [(mode, resource), (SHARED, f"namespace/{path[0]}")]
    if kind == "partition" and len(path) == 3:
        namespace, table, id = path
        return [
            (mode, f"partition/{id}"),
            (SHARED, f"table/{namespace}/{table}"),
            (SHARED, f"namespace/{namespace}"),
        ]
    return [(mode, resource)]


def _path(resource: str) -> list[str]:
    """A resource's parts. A table's name may have slashes, a namespace's and an id have none."""
    kind, *rest = resource.split("/", 2)
    if kind == "partition" and len(rest) == 2 and "/" in rest[1]:
        return [kind, rest[0], *rest[1].rsplit("/", 1)]
    return [kind, *rest]


def kind_of(locks: Locks) -> Kind:
    """The class of a procedure with these locks."""
    if not locks:
        return Kind.TABLE
    return min(_KINDS.get(resource.partition("/")[0], Kind.TABLE) for _, resource in locks)


def rank_of(locks: Locks) -> Rank:
    """The rank within class Table."""
    rank = Rank.USER
    for mode, resource in locks:
        if resource == _META_PARTITION:
            return Rank.META
        if mode == EXCLUSIVE and resource.startswith("namespace/"):
            rank = Rank.SYSTEM
    return rank


def queue_of(locks: Locks) -> str:
    """The queue that a procedure waits its turn in: its table, namespace or partition; "" for all
    others together.
    """
    best = ""
    for _, resource in locks:
        kind, *path = _path(resource)
        if kind == "table":
            return resource
        if kind == "partition" and len(path) == 3:
            return f"table/{path[0]}/{path[1]}"
        if kind in ("namespace", "partition", "server", "peer") and not best:
            best = resource
    return best
