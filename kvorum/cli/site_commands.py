"""`kvorum site add|list|remove|promote|demote|conflicts`: links to other clusters
(docs/guides/sites.md).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

import typer

from kv.base.errors import DeadlineExceeded
from kvorum.api.site_links import SITE_LINK, SITE_ROLE
from kvorum.cli import output
from kvorum.cli.connection import Connect, Json, errors_shown, opened, table_of
from kvorum.sdk.sync import Database
from procedures.engine.plain_data import Plain

app = typer.Typer(
    no_args_is_help=True, help="Links to other clusters, in sync.", rich_markup_mode=None
)
_LOOK_MS: Final = 200
_LOOKS: Final = 50
Site = Annotated[str, typer.Argument(metavar="SITE", show_default=False)]


@app.command("add")
def add(
    site: Annotated[
        str,
        typer.Argument(
            metavar="SITE", help="Its name in the nodes' file of sites.", show_default=False
        ),
    ],
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="NAMESPACE.TABLE[=RULE]…",
            help="RULE of keys that both wrote: last (usual), counter, set, procedure:NAME.",
            show_default=False,
        ),
    ],
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Take over what another cluster commits to tables. Do the same there, for both ways."""
    from kvorum.sites.links import link_of

    with errors_shown(json):
        args = {"site": site, "tables": [_table(one) for one in tables]}
        link_of(args)
    with opened(connect, json) as db:
        id = db.submit(SITE_LINK, args)
        _begun(db, id)
    if json:
        output.emit({"id": str(id), "site": site})
    else:
        output.lines([f"link to {site}: procedure {id}; kvorum site list shows how far it is"])


def _begun(db: Database, id: int) -> None:
    """Wait a moment for it. Raises what it fails with."""
    for _ in range(_LOOKS):
        with suppress(DeadlineExceeded):
            db.wait(id, timeout_ms=_LOOK_MS)
        if db.procedure(id).step != "begin":
            return


def _table(text: str) -> dict[str, object]:
    name, _, rule = text.partition("=")
    rule, _, procedure = (rule or "last").partition(":")
    told: dict[str, object] = {"table": list(table_of(name)), "rule": rule}
    return {**told, "procedure": procedure} if procedure else told


@app.command("list")
def list_links(connect: Connect = None, json: Json = False) -> None:
    """Print the links of this cluster, and what each of them does."""
    with opened(connect, json) as db:
        links = db.sites()
    if json:
        output.emit({"items": links})
        return
    rows = [(o["site"], o["procedure"], o["role"], _tables(o["tables"]), o["does"]) for o in links]
    output.table(("SITE", "PROCEDURE", "ROLE", "TABLES", "DOES"), rows)


def _tables(linked: list[Plain]) -> str:
    return " ".join(f"{'.'.join(one['table'])}={one['rule']}" for one in linked)


@app.command("remove")
def remove(
    site: Site,
    reason: Annotated[str, typer.Option(help="For the log of requests.")] = "the link is removed",
    connect: Connect = None,
    json: Json = False,
) -> None:
    """End a link: nothing more is taken over. Rows stay as they are."""
    with opened(connect, json) as db:
        ended = db.remove_site(site, reason)
    if json:
        output.emit(ended)
    else:
        output.lines([f"the link to {site} ends"])


@app.command("promote")
def promote(site: Site, connect: Connect = None, json: Json = False) -> None:
    """Fail-over: this cluster's clients write to the link's tables from now on."""
    _role(site, "active", connect, json)


@app.command("demote")
def demote(site: Site, connect: Connect = None, json: Json = False) -> None:
    """Stand by: only the link writes to its tables here, once this has ended."""
    _role(site, "standby", connect, json)


def _role(site: str, role: str, connect: str | None, json: bool) -> None:
    with opened(connect, json) as db:
        told = db.wait(db.submit(SITE_ROLE, {"site": site, "role": role}))
    if json:
        output.emit(told)
    else:
        output.lines([f"{role}: {' '.join(told['switched']) or 'all tables were so already'}"])


@app.command("conflicts")
def conflicts(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="So many at most.")] = 100,
    connect: Connect = None,
    json: Json = False,
) -> None:
    """Print the latest keys that both clusters wrote, neither knowing of it, and what was kept."""
    with opened(connect, json) as db:
        found = db.site_conflicts(limit=limit)
    if json:
        output.emit({"items": found})
        return
    rows = [
        (one["table"], one["key"], one["kept"], one["here"]["value"], one["there"]["value"])
        for one in found
    ]
    output.table(("TABLE", "KEY", "KEPT", "HERE", "THERE"), rows)
