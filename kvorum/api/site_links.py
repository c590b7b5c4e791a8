"""What there is to see of links to other clusters (kvorum/sites), over any backend: for the CLI,
HTTP and SQL.

    kvorum_sites.links        site → JSON {procedure, cluster, role, tables}, once it has begun
    kvorum_sites.conflicts    id / version / digest → JSON, kept for SITE_CONFLICT_TTL_MS
"""

from __future__ import annotations

import json
from typing import Final

from kv.base.errors import NotFound
from kv.base.limits import SCAN_ROWS_MAX
from kvorum.api.backend import Backend
from kvorum.api.model import ScanSpec
from procedures.engine.plain_data import Plain

SITE_LINK: Final = "kvorum.site"
SITE_ROLE: Final = "kvorum.site_role"
ROLES: Final = ("active", "standby")
NAMESPACE: Final = "kvorum_sites"
CONFLICTS: Final = "conflicts"
LINKS: Final = "links"


async def links(backend: Backend) -> list[dict[str, object]]:
    """`site`, `cluster`, `role`, `tables` ({table, rule, procedure?}), `procedure`, and what it
    `does`.
    """
    found = await _rows(backend, LINKS, ScanSpec(limit=SCAN_ROWS_MAX))
    return [{"site": site, **link, "does": await _does(backend, link)} for site, link in found]


async def procedure_of(backend: Backend, site: str) -> int:
    """The procedure of a link. Raises NotFound."""
    for name, link in await _rows(backend, LINKS, ScanSpec(limit=SCAN_ROWS_MAX)):
        if name == site:
            return int(link["procedure"])
    raise NotFound(
        f"there is no link to {site!r:.80}; one that has not begun yet is in `kvorum proc list`, "
        "and ended by `kvorum proc abort`",
        code="SITE_NOT_FOUND",
    )


async def conflicts(backend: Backend, limit: int) -> list[dict[str, object]]:
    """The latest of each site: `cluster`, `table`, `key`, what was `kept` (here, there, both), and
    both sides, `here` and `there`, as {version, value}.
    """
    found = await _rows(backend, CONFLICTS, ScanSpec(reverse=True, limit=limit))
    return [{"cluster": key.partition("/")[0], **told} for key, told in found]


async def _rows(backend: Backend, table: str, spec: ScanSpec) -> list[tuple[str, Plain]]:
    try:
        page = await backend.scan(NAMESPACE, table, spec)
    except NotFound:  # this cluster never had a link
        return []
    return [(item.key.decode(), json.loads(item.value)) for item in page.items]


async def _does(backend: Backend, link: Plain) -> str:
    try:
        info = await backend.procedure(int(link["procedure"]), 0)
    except NotFound:
        return "it has ended"
    retrying = info.extra.get("retrying") or {}
    progress = info.extra.get("progress") or {}
    return str(retrying.get("message") or progress.get("text") or info.step or info.state)
