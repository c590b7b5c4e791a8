"""What a caller of a route must be allowed to do, said where the route is declared, in the words of
the table of verbs (kv/base/verbs.py). It is not asked for yet: the HTTP API knows no identities.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kv.base.rights import Action, Kind


class Right(NamedTuple):
    """An action (None: anybody may) on a resource. `name`: which one, by the parts of the path; ""
    where only the body says it, or what the id in the path stands for, or it is all of that kind.
    """

    action: Action | None
    kind: Kind
    name: str = ""


TABLE: Final = "{ns}.{table}"
OPEN: Final = Right(None, Kind.CLUSTER)
READ_CLUSTER: Final = Right(Action.READ, Kind.CLUSTER)
OPERATE_CLUSTER: Final = Right(Action.OPERATE, Kind.CLUSTER)
ADMIN_CLUSTER: Final = Right(Action.ADMIN, Kind.CLUSTER)
