"""What a database and a cluster have in them, as far as the system catalog shows it. Plain
values: the catalog never asks the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from sqlproxy.catalog.privileges import Place
from sqlproxy.rows.schema import EnumType, Sequence, SqlFunction, Table, View

Named = Table | View | Sequence


class Sized(Protocol):
    """How large a table was when it was looked at."""

    @property
    def rows(self) -> int: ...

    @property
    def pages(self) -> int: ...


NO_SIZES: Final[Mapping[int, Sized]] = {}
Sees = Callable[[str, Mapping[str, object]], Mapping[str, object] | None]
"""Of a feed's name and a row of it: the row as the session may see it; None: not at all."""


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    superuser: bool = True
    login: bool = True
    create_database: bool = True
    create_role: bool = True
    inherit: bool = True
    member_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """`roles`: the first one owns everything (OID 10). `databases`: namespaces by name."""

    databases: tuple[str, ...] = ("postgres",)
    roles: tuple[Role, ...] = (Role("kvorum"),)
    places: tuple[Place, ...] = ()  # of databases that are not as made
    defaults: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """What ALTER ROLE and ALTER DATABASE … SET say: role, database ("": all), `name=value`s."""


@dataclass(frozen=True, slots=True)
class Contents:
    """One database's relations by id; only what users may see. `comments`: (id, column id or 0) →
    COMMENT ON. A relation that did not change must be the same object as before: that is how a
    change is found.
    """

    database: str
    relations: Mapping[int, Named] = field(default_factory=dict)
    comments: Mapping[tuple[int, int], str] = field(default_factory=dict)
    schema_comment: str | None = None  # None: as made
    types: Mapping[int, EnumType] = field(default_factory=dict)
    functions: Mapping[int, SqlFunction] = field(default_factory=dict)
    schemas: Mapping[str, Place] = field(default_factory=dict)  # those beside public
    private: str = ""  # the schema among them that only one session has

    @property
    def everything(self) -> Mapping[int, Named | EnumType | SqlFunction]:
        """Relations, types and functions, which share one counter of ids."""
        return {**self.relations, **self.types, **self.functions}

    def tables(self) -> list[Table]:
        return [one for one in self.relations.values() if isinstance(one, Table)]


@dataclass(frozen=True, slots=True)
class Session:
    """Who asks. `settings`: as SHOW shows them. `own`: rows that the session knows itself, by the
    name of the relation. `sees`: a row that the cluster reports of itself, as the session may see
    it, or None.
    """

    now: datetime
    settings: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, Items[Mapping[str, object]]] = field(default_factory=dict)
    sees: Sees | None = None
