"""What a caller of a route must be allowed to do, said where the route is declared. It is not asked
for yet: the HTTP API knows no identities.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Action = Literal["read", "write", "define", "submit", "run", "operate", "backup", "admin", "open"]
"""`define`: namespaces and tables; `submit`: start procedures; `run`: work for a pool; `operate`:
abort, move, settings; `open`: anybody may."""
Resource = Literal["cluster", "namespace", "table", "procedure", "pool", "lock", "place"]


class Right(NamedTuple):
    """An action on a resource. `name`: which one, as the parts of the path say; "" where only the
    body says it, or what the id in the path stands for.
    """

    action: Action
    resource: Resource
    name: str = ""


TABLE: Final = "{ns}.{table}"
OPEN: Final = Right("open", "cluster")
READ_CLUSTER: Final = Right("read", "cluster")
OPERATE_CLUSTER: Final = Right("operate", "cluster")
