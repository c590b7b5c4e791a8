"""What a caller of a route must be allowed to do, said where the route is declared, in the words of
the table of verbs (kv/base/verbs.py); kvorum/http/server/authentication.py asks for it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kv.base.rights import Action, Kind


class Right(NamedTuple):
    """An action (None: anybody may) on a resource. `name`: which one, by parts of the path in
    braces or a field of the body in angle brackets. {id}: the procedure's type, or what it locks;
    <token>, {schedule}: the type of the procedure behind it. "" of a hot route: each table that the
    body names; of others: all of that kind.
    """

    action: Action | None
    kind: Kind
    name: str = ""


TABLE: Final = "{ns}.{table}"
OPEN: Final = Right(None, Kind.CLUSTER)
SELF: Final = Right(Action.CONNECT, Kind.CLUSTER)  # whoever has logged in
READ_CLUSTER: Final = Right(Action.READ, Kind.CLUSTER)
OPERATE_CLUSTER: Final = Right(Action.OPERATE, Kind.CLUSTER)
ADMIN_CLUSTER: Final = Right(Action.ADMIN, Kind.CLUSTER)
