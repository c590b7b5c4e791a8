"""/console: a cluster in a browser: how it is, its data and SQL, its procedures, its nodes.

Files beside this module: a page, its style and its scripts (`console.js` is the shell, each of the
others some pages or parts of them), which ask the /v1 API of the node that served them, as any
other client does; so a proxy serves it, too. Nothing comes from other hosts, and the headers forbid
it: whatever text a procedure's name or error holds, no browser runs it.

Addresses are relative, so it works behind a path of a reverse proxy. Once the cluster has users it
asks for a login (kvorum/http/routes/console_routes.py), and offers what the user may do somewhere.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from kvorum.http.routes.declaring import Endpoint, Routes
from kvorum.http.routes.rights import OPEN
from kvorum.http.wire.codec import Reply

ROUTES: Final = Routes("cluster")

SCRIPTS: Final = (
    *("theme.js", "console.js", "api.js", "dom.js", "charts.js"),
    *("overview.js", "procedures.js", "data.js", "lists.js"),
)
_FILES: Final = {
    "/console": ("console.html", b"text/html; charset=utf-8"),
    "/console/console.css": ("console.css", b"text/css; charset=utf-8"),
    **{f"/console/{name}": (name, b"text/javascript; charset=utf-8") for name in SCRIPTS},
}
# What the page may load and where it may send: its own node only; and nobody may frame it, so that
# no other page can put its buttons under a mouse.
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),  # a node that was upgraded shows its new page
)


def _serving(name: str, kind: bytes) -> Endpoint:
    async def serve() -> Reply:
        return Reply(200, _content(name), kind, _HEADERS)

    return serve


@cache
def _content(name: str) -> bytes:
    return (Path(__file__).parent / name).read_bytes()


for _path, (_name, _kind) in _FILES.items():
    ROUTES.on("GET", _path, OPEN, shown=False)(_serving(_name, _kind))
