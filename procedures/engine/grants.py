"""Grants of resource locks as rows: who holds what, for fencing and for whoever comes next.

    LOCKS  01                          → nothing    the reign: written anew by every executor
    LOCKS  02 esc(resource) [id u64]   → mode       the procedure `id` holds the resource

A row lives exactly as long as the grant. Its version, the commit timestamp of the transaction that
granted, is the grant's *fencing token*: it is larger than that of every earlier grant of the
resource, whoever was master then. A write that names a resource and a token carries a check that
this row has this version still: so it commits only while the grant stands (`check`).

Only an executor that wrote the reign last grants: every grant checks the reign's version. So what
an executor has read after it began its reign is all that was granted before, and what a deposed one
has on its way comes to nothing (docs/decisions/0403).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

from kv.base import ops, system
from kv.base.errors import Refused, Unavailable
from kv.base.keys import escape, from_u64, successor, table_prefix, u64, unescape
from kv.base.ops import Op
from procedures.engine.records import Record
from procedures.engine.resources import Locks, check_resource
from txn.results import ScanPage

REIGN: Final = table_prefix(system.LOCKS) + b"\x01"
_GRANTS: Final = table_prefix(system.LOCKS) + b"\x02"
_HOLDERS_SHOWN_MAX: Final = 100
_PAGE: Final = 1_000


class Grant(NamedTuple):
    resource: str
    holder: int  # the procedure
    mode: str
    token: int


class Scans(Protocol):
    """Something that reads rows: a client of transactions, or one of them."""

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> ScanPage: ...


def key_of(resource: str, holder: int) -> bytes:
    return _GRANTS + escape(resource.encode()) + u64(holder)


def grant_ops(record: Record, reign: int) -> list[Op]:
    """The rows of a grant, and the fence of whoever grants."""
    rows = [ops.put(key_of(name, record.id), mode.encode()) for mode, name in record.locks]
    return [*rows, ops.check(REIGN, reign)]


def drop_ops(record: Record) -> list[Op]:
    """The grant ends."""
    return [ops.delete(key_of(name, record.id)) for _, name in record.locks]


async def grants_of(reads: Scans, resource: str) -> list[Grant]:
    """Who holds a resource now: at most _HOLDERS_TOLD_MAX shared ones."""
    prefix = _GRANTS + escape(resource.encode())
    page = await reads.scan(prefix, successor(prefix), limit=_HOLDERS_SHOWN_MAX)
    return [
        Grant(resource, from_u64(key, len(prefix)), value.decode(), version)
        for key, value, version in page.items
    ]


async def held_by(reads: Scans, holders: Collection[int]) -> dict[int, Locks]:
    """What these procedures hold, by the rows alone: their records cannot be read."""
    found: dict[int, Locks] = {}
    start, end = _GRANTS, successor(_GRANTS)
    while True:
        page = await reads.scan(start, end, limit=_PAGE)
        for key, value, _ in page.items:
            raw, at = unescape(key, len(_GRANTS))
            holder = from_u64(key, at)
            if holder in holders:
                found[holder] = (*found.get(holder, ()), (value.decode(), raw.decode()))
        if page.resume is None:
            return found
        start = page.resume


def check(grant: Grant) -> Op:
    """A write with this op commits only while the grant stands."""
    return ops.check(key_of(grant.resource, grant.holder), grant.token)


async def fence_ops(reads: Scans, fences: Sequence[tuple[str, int]]) -> list[Op]:
    """The checks of these (resource, token). Raises Refused (FENCED_OFF) if one has ended already,
    InvalidArgument.
    """
    found = []
    for resource, token in dict.fromkeys(fences):
        check_resource(resource, "fence")
        grants = await grants_of(reads, resource)
        mine = next((grant for grant in grants if grant.token == token), None)
        if mine is None:
            raise fenced_off(resource, token, grants)
        found.append(check(mine))
    return found


def fenced_off(resource: str, token: int, grants: Sequence[Grant]) -> Refused:
    """Why a write with this token is refused; `grants`: of those who hold the resource now."""
    newer = [grant for grant in grants if grant.token > token]
    who = f"procedure {newer[0].holder} ({newer[0].mode}) has it now" if newer else "nobody has it"
    return Refused(
        f"the lock of {resource} that token {token} stands for has ended: {who}. Nothing was "
        "written; take the lock again",
        code="FENCED_OFF",
        details={
            "resource": resource,
            "token": str(token),
            "holder": str(newer[0].holder) if newer else None,
            "holder_token": str(newer[0].token) if newer else None,
        },
    )


def is_fence(key: object) -> bool:
    """Whether a condition that failed was that of a fence."""
    return isinstance(key, bytes) and key.startswith(_GRANTS)


def deposed() -> Unavailable:
    """Why an executor cannot grant locks any more. Nothing was done: clients ask the next one."""
    return Unavailable("another executor has taken over the procedures; ask again", code="DEPOSED")
