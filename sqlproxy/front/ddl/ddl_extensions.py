"""CREATE and DROP EXTENSION. There are none to make: what is built in is there in every database.

Dumps and migrations say CREATE EXTENSION IF NOT EXISTS plpgsql, which PostgreSQL has anyway. Others
are refused as PostgreSQL refuses what is not installed (0A000), and so is what comes built in there
and here under another name.
"""

from __future__ import annotations

from typing import Final

from sqlproxy.front.bound.statements import Ignored
from sqlproxy.front.syntax.syntax import Node
from sqlproxy.values.errors import UNDEFINED_OBJECT, UNSUPPORTED, SqlError, unsupported

_BUILT_IN: Final = "plpgsql"
_INSTEAD: Final = {
    "uuid-ossp": "gen_random_uuid() is built in, for uuid_generate_v4().",
    "pgcrypto": "gen_random_uuid(), md5(), sha224(), sha256(), sha384() and sha512() are built in.",
    "citext": "Compare lower(column), or use ILIKE.",
    "hstore": "Use jsonb.",
}
_DUPLICATE: Final = "42710"


def create(body: Node) -> Ignored:
    """Raises 0A000, 42710."""
    name = body["extname"]
    if name != _BUILT_IN:
        raise SqlError(
            UNSUPPORTED,
            f'extension "{name}" is not available',
            hint=_INSTEAD.get(name, "There are no extensions; what there is is built in."),
        )
    there = f'extension "{name}" already exists'
    if not body.get("if_not_exists"):
        raise SqlError(_DUPLICATE, there)
    return Ignored("CREATE EXTENSION", f"{there}, skipping", sqlstate=_DUPLICATE)


def drop(names: list[str], *, missing_ok: bool) -> Ignored:
    """Raises 42704, 0A000."""
    missing = [f'extension "{name}" does not exist' for name in names if name != _BUILT_IN]
    if missing and not missing_ok:
        raise SqlError(UNDEFINED_OBJECT, missing[0])
    if len(missing) < len(names):
        raise unsupported(f'dropping the extension "{_BUILT_IN}"')
    first, *more = [f"{one}, skipping" for one in missing]
    return Ignored("DROP EXTENSION", first, tuple(more))
