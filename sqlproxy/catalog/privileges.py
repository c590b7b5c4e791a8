"""Who may do what: privileges of relations, databases and the schema `public`, as PostgreSQL 15
counts them. Pure.

    Acl     ((grantee, letters), …)       kept in the descriptor; grantee "" is PUBLIC
            None                          as it is made: `default` says what that means
    Need    what a bound statement needs  found while it is bound (sqlproxy.front)
    Rights  roles and one database's declarations as of one moment: `allows`, `owns`, `lacking`

    r SELECT  a INSERT  w UPDATE  d DELETE  D TRUNCATE  x REFERENCES  t TRIGGER  U USAGE
    C CREATE  c CONNECT  T TEMPORARY

An owner and the members of an owner may do everything that is not theirs by letter (ALTER, DROP,
GRANT, CREATE INDEX); what letters say, an owner can take from itself. Superusers are asked nothing.
What a view reads is asked of the view's owner. A sequence that a column owns has the table's owner.

Grants of `kvorum role grant` on a table, a namespace or the cluster (`kv.base.rights`) count beside
these lists.

A column has a list beside its table's: SELECT, INSERT, UPDATE and REFERENCES of what a statement
names of it, if the table does not allow it as a whole. Who reads rows without SQL reads whole ones:
there it counts for nothing.

Deliberately missing: privileges of columns of views, grant options, roles that do not inherit,
rules of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kv.base.rights import OWNER, PUBLIC, Action, Kind, Resource, Roles
from sqlproxy.rows.naming import PUBLIC as PUBLIC_SCHEMA
from sqlproxy.rows.naming import schema_of
from sqlproxy.rows.schema import Acl, EnumType, Relation, Sequence, SqlFunction, Table
from sqlproxy.values.errors import INSUFFICIENT_PRIVILEGE, SqlError

LETTERS: Final = {
    "select": "r",
    "insert": "a",
    "update": "w",
    "delete": "d",
    "truncate": "D",
    "references": "x",
    "trigger": "t",
    "usage": "U",
    "create": "C",
    "connect": "c",
    "temporary": "T",
    "temp": "T",
}
WORDS: Final = {letter: word.upper() for word, letter in LETTERS.items() if word != "temp"}
ALL: Final = {
    "table": "arwdDxt",
    "view": "arwdDxt",
    "sequence": "rwU",
    "schema": "UC",
    "column": "arwx",
    "own schema": "UC",  # one that users made
    "database": "CTc",
}
ACTIONS: Final[Mapping[str, Action]] = {
    "r": Action.READ,
    "a": Action.INSERT,
    "w": Action.UPDATE,
    "d": Action.DELETE,
    "D": Action.TRUNCATE,
    "x": Action.REFERENCES,
    "U": Action.USAGE,
    "C": Action.DEFINE,
    "c": Action.CONNECT,
}
"""By PostgreSQL's letter; triggers are nothing that is done here, and temporary tables are each
session's own.
"""
_MADE: Final = {"schema": ((PUBLIC, "U"),), "database": ((PUBLIC, "Tc"),)}


# -- lists of privileges


def default(kind: str, owner: str) -> Acl:
    """What None means."""
    return (*_MADE.get(kind, ()), (owner, ALL[kind]))


def with_granted(acl: Acl, kind: str, grantees: Iterable[str], letters: str) -> Acl:
    """The list with these privileges, in PostgreSQL's order of letters."""
    held = dict(acl)
    for grantee in grantees:
        all_of = set(held.get(grantee, "")) | set(letters)
        held[grantee] = "".join(one for one in ALL[kind] if one in all_of)
    return tuple(held.items())


def without(acl: Acl, grantees: Iterable[str], letters: str) -> Acl:
    """The list without them."""
    held = dict(acl)
    for grantee in grantees:
        left = "".join(one for one in held.get(grantee, "") if one not in letters)
        held[grantee] = left
    return tuple((grantee, left) for grantee, left in held.items() if left)


def with_owner(acl: Acl | None, old: str, new: str) -> Acl | None:
    """What another owner has: the old one's, as PostgreSQL's aclnewowner does it."""
    if acl is None:
        return None
    held: dict[str, str] = {}
    for grantee, letters in acl:
        name = new if grantee == old else grantee
        more = set(held.get(name, "")) | set(letters)
        held[name] = "".join(one for one in WORDS if one in more)
    return tuple(held.items())


def made(defaults: Iterable[tuple[str, str, Acl]], owner: str, kind: str) -> Acl | None:
    """What something has that the owner makes now; `defaults`: of its database."""
    of = "sequence" if kind == "sequence" else "table"
    name = owner or OWNER
    found: Acl | None = None
    for creator, what, added in defaults:
        if (creator, what) == (name, of):
            for grantee, letters in added:
                before = default(kind, name) if found is None else found
                found = with_granted(before, kind, [grantee], letters)
    return found


def shown(acl: Acl, owner: str) -> list[str]:
    """As PostgreSQL writes aclitems."""
    return [f"{_quoted(grantee)}={letters}/{_quoted(owner)}" for grantee, letters in acl]


def _quoted(name: str) -> str:
    plain = all(c.isascii() and (c.isalnum() or c == "_") for c in name)
    return name if plain else '"' + name.replace('"', '""') + '"'


# -- what a statement needs


@dataclass(frozen=True, slots=True)
class Need:
    """One of the privileges `any_of` on a relation (its id); `owner`: whose they must be, of what a
    view reads; None: who runs the statement. Relation 0: a sequence that only the run names.
    """

    relation: int
    any_of: str
    owner: str | None = None
    columns: tuple[int, ...] = ()
    """Those that it is about, of a table that has privileges of columns; (): of none in
    particular."""
    schema: str = ""
    """USAGE of it, and nothing else: of a function."""


@dataclass(frozen=True, slots=True)
class Place:
    """A database as its owner, its privileges and COMMENT ON go; `schema`: of its schema public. Or
    the namespace of another schema of it, with that one's.
    """

    name: str
    owner: str = ""
    acl: Acl | None = None
    schema: Acl | None = None
    comment: str = ""
    schema_comment: str | None = None  # None: as made


class Rights:
    """See the module. `relations`: by id; `schemas`: those beside public."""

    def __init__(
        self,
        members: Roles,
        relations: Mapping[int, Relation],
        place: Place,
        schemas: Mapping[str, Place] = MappingProxyType({}),
    ) -> None:
        self.members = members
        self._relations = relations
        self.place = place
        self._schemas = schemas

    def owner(self, one: Relation | EnumType | SqlFunction) -> str:
        """Whose it is."""
        if isinstance(one, Sequence) and one.owned_by is not None:
            table = self._relations.get(one.owned_by[0])
            if isinstance(table, Table):
                return table.owner or OWNER
        return one.owner or OWNER

    def owns(self, user: str, one: Relation | EnumType | SqlFunction) -> bool:
        return self.members.superuser(user) or self.owner(one) in self.members.roles_of(user)

    def allows(self, user: str, one: Relation, any_of: str) -> bool:
        """Whether the user has one of these privileges on it."""
        resource = Resource(Kind.TABLE, one.name, one.namespace)
        return self._held(user, one.kind, one.acl, self.owner(one), any_of, resource)

    def allows_need(self, user: str, one: Relation, need: Need) -> bool:
        """The same, or on each of the columns that matter; on any if none does."""
        if self.allows(user, one, need.any_of):
            return True
        return isinstance(one, Table) and self.allows_columns(user, one, need.any_of, need.columns)

    def allows_columns(self, user: str, table: Table, any_of: str, columns: Iterable[int]) -> bool:
        """Whether the user has one of these privileges on each of these columns; of none: on
        any.
        """
        roles = self.members.roles_of(user)
        allowed = {
            column.id
            for column in table.visible
            for grantee, letters in column.acl or ()
            if (grantee == PUBLIC or grantee in roles) and any(one in letters for one in any_of)
        }
        wanted = set(columns)
        return wanted <= allowed if wanted else bool(allowed)

    def allows_in_schema(self, user: str, any_of: str, schema: str = PUBLIC_SCHEMA) -> bool:
        """The owner of the schema public is the database's."""
        place = self._schemas.get(schema)
        if place is None:
            return self._held_in(self.place, user, "schema", self.place.schema, any_of)
        return self._held_in(place, user, "own schema", place.schema, any_of)

    def allows_in_database(self, user: str, any_of: str) -> bool:
        return self._held_in(self.place, user, "database", self.place.acl, any_of)

    def owns_database(self, user: str) -> bool:
        return self._owns_place(user, self.place)

    def owns_schema(self, user: str, schema: str) -> bool:
        return self._owns_place(user, self._schemas.get(schema, self.place))

    def _owns_place(self, user: str, place: Place) -> bool:
        owner = place.owner or OWNER
        return self.members.superuser(user) or owner in self.members.roles_of(user)

    def _held_in(self, place: Place, user: str, kind: str, acl: Acl | None, any_of: str) -> bool:
        resource = Resource(Kind.NAMESPACE, place.name)
        return self._held(user, kind, acl, place.owner or OWNER, any_of, resource)

    def _held(
        self, user: str, kind: str, acl: Acl | None, owner: str, any_of: str, resource: Resource
    ) -> bool:
        if self.members.superuser(user):
            return True
        roles = self.members.roles_of(user)
        for grantee, letters in default(kind, owner) if acl is None else acl:
            if (grantee == PUBLIC or grantee in roles) and any(one in letters for one in any_of):
                return True
        granted = self.members.granted(user, resource)
        return bool(granted) and any(ACTIONS.get(one) in granted for one in any_of)

    def lacking(self, user: str, needs: Iterable[Need]) -> SqlError | None:
        """Why the user may not run what needs this; None: it may."""
        needs = tuple(needs)
        schemas = set[str]()
        for need in needs:
            if need.owner is None:  # else its owner found it, when the view was made
                one = self._relations.get(need.relation)
                schemas.add(need.schema or (schema_of(one.namespace) if one else PUBLIC_SCHEMA))
        for schema in sorted(schemas):
            if not self.allows_in_schema(user, "U", schema):
                return SqlError(INSUFFICIENT_PRIVILEGE, f"permission denied for schema {schema}")
        for need in needs:
            if need.schema:
                continue
            if need.relation == 0:
                if not self.members.superuser(need.owner or user):
                    return SqlError(
                        INSUFFICIENT_PRIVILEGE,
                        "permission denied: the sequence must be named by a constant",
                    )
                continue
            one = self._relations.get(need.relation)
            if one is not None and not self.allows_need(need.owner or user, one, need):
                return denied(one)
        return None


def denied(one: Relation) -> SqlError:
    return SqlError(INSUFFICIENT_PRIVILEGE, f"permission denied for {one.kind} {one.name}")


def not_owner(kind: str, name: str) -> SqlError:
    return SqlError(INSUFFICIENT_PRIVILEGE, f"must be owner of {kind} {name}")
