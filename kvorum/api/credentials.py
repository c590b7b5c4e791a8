"""What a credential may make of itself: nothing that reaches further than it does, or lives longer.

    a limited token     makes no credentials and gives no rights; it may take them away
    one that expires    makes tokens that end when it does, at the latest, and gives its own user
                        no password

Pure; asked where ACCESS comes from somebody: at the native port and at HTTP's routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kv.base.errors import Forbidden
from kv.base.rights import Identity

_GIVES: Final = frozenset(
    {"user.create", "user.password", "role.grant", "token.create", "grant.give"}
)
UNTIL: Final = "until_ms"  # of token.create: the end of the token that asks


def under(me: Identity, what: str, args: Mapping[str, object]) -> dict[str, object]:
    """The arguments of ACCESS as this identity may ask for it. Raises Forbidden."""
    given = {name: value for name, value in args.items() if name != UNTIL}
    if what not in _GIVES:
        return given
    if me.limits is not None:
        raise _refused(me, f"this {me.credential} is limited: it makes no other credential")
    if not me.expires_ms:
        return given
    if what == "user.password" and given.get("name") == me.name:
        raise _refused(me, f"this {me.credential} expires: it gives its own user no password")
    return given | {UNTIL: me.expires_ms} if what == "token.create" else given


def _refused(me: Identity, why: str) -> Forbidden:
    return Forbidden(why, details={"user": me.name, "missing": [], "resource": "the user itself"})
