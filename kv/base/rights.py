"""Who may do what, on every surface: identities, actions, resources, and one check. Pure.

    may(identity, actions, resource, book)      None, or why not

    Identity    who asks, proved by which credential, and what that credential is limited to
    Resource    what it is done to: the cluster, a namespace, a table, a procedure type, a pool, a
                lock, a place of transfers
    Book        roles, owners and grants as of one moment; a process keeps one and replaces it
    Roles       the part of it that goes without tables: what SQL asks

A grant on a thing holds for what lies in it: on a namespace for its tables, on the cluster for
everything. An owner has all rights on what it owns, and on that alone: whoever owns a namespace
makes tables in it and does not read those of others, as in PostgreSQL. A role has what it was
granted, what the roles that it is a member of were granted, and what everybody was granted
(PUBLIC); members of an owner are owners. A superuser may do everything that a client can; what one
node orders another is for nodes alone, whoever asks. A token can be limited to a part of its user's
rights, never widen them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kv.base.errors import Forbidden, Unauthenticated

OWNER: Final = "kvorum"  # the role that is always there, and owns what has no other owner
PUBLIC: Final = ""


class Action(StrEnum):
    """Which right is asked for, or granted."""

    READ = "read"
    WRITE = "write"  # insert, update, delete and truncate in one word
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    REFERENCES = "references"
    USAGE = "usage"  # of a sequence, or of what a schema holds
    CONNECT = "connect"
    DEFINE = "define"  # make, alter and drop
    SUBMIT = "submit"  # begin, signal and wait for procedures
    RUN = "run"  # a worker's: take work of a pool, and its types
    OPERATE = "operate"  # abort, bypass, move, settings
    BACKUP = "backup"  # read or write a place of transfers
    ADMIN = "admin"  # users, roles, tokens, grants
    NODE = "node"  # what one node orders another


PUT: Final = frozenset({Action.INSERT, Action.UPDATE})  # a put without a condition is both
EVERYTHING: Final = frozenset(Action) - {Action.NODE, Action.WRITE}
_SEEING: Final = frozenset({Action.SUBMIT, Action.OPERATE})
_WRITES: Final = PUT | {Action.DELETE, Action.TRUNCATE}


def in_full(actions: Iterable[Action]) -> frozenset[Action]:
    """With what the word `write` means in its place."""
    found = frozenset(actions)
    return found - {Action.WRITE} | _WRITES if Action.WRITE in found else found


class Kind(StrEnum):
    """What a right is about."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"
    TABLE = "table"
    PROCEDURE_TYPE = "procedure type"
    POOL = "pool"
    LOCK = "lock"
    PLACE = "place"


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing, or in a grant also all whose names begin with what stands before a final `*`."""

    kind: Kind
    name: str = ""
    namespace: str = ""  # of a table

    def __str__(self) -> str:
        if self.kind is Kind.CLUSTER:
            return "the cluster"
        dotted = f"{self.namespace}.{self.name}" if self.kind is Kind.TABLE else self.name
        return f"{self.kind} {dotted}"

    def around(self) -> Resource | None:
        """What it lies in."""
        if self.kind is Kind.TABLE:
            return Resource(Kind.NAMESPACE, self.namespace)
        return None if self.kind is Kind.CLUSTER else CLUSTER

    def covers(self, other: Resource) -> bool:
        """Whether a grant on this is one on the other."""
        if (self.kind, self.namespace) != (other.kind, other.namespace):
            return False
        if self.name.endswith("*"):
            return other.name.startswith(self.name[:-1])
        return self.name == other.name


CLUSTER: Final = Resource(Kind.CLUSTER)


def table(namespace: str, name: str) -> Resource:
    return Resource(Kind.TABLE, name, namespace)


@dataclass(frozen=True, slots=True)
class Grant:
    """These actions on that, and on what lies in it."""

    actions: frozenset[Action]
    resource: Resource

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", in_full(self.actions))

    def reaches(self, resource: Resource) -> bool:
        """Whether it is about that, or about what it lies in."""
        at: Resource | None = resource
        while at is not None:
            if self.resource.covers(at):
                return True
            at = at.around()
        return False


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. `credential` says how it was proved, for the audit: "token ci", "certificate",
    "password", "oidc", "loopback" (of times before the first user), "node".
    """

    name: str
    credential: str
    limits: tuple[Grant, ...] | None = None  # of a token; None: whatever its user may
    node: int = 0  # its number, if it is a node of this cluster
    token: str = ""  # the id of its token, if it came with one
    expires_ms: int = 0  # when that ends; 0: never


NOBODY: Final = Identity("", "none")
LOOPBACK: Final = Identity(OWNER, "loopback")  # whoever is on this machine, before the first user


@dataclass(frozen=True, slots=True)
class Role:
    """What of a user, a service account or a group counts here."""

    superuser: bool = False
    member_of: tuple[str, ...] = ()
    create_database: bool = False  # SQL's words for two things that are no grants
    create_role: bool = False
    login: bool = True


@dataclass(frozen=True, slots=True)
class Owned:
    """Of a namespace or a table: whose it is, and what others may; role → actions."""

    owner: str = OWNER
    held: Mapping[str, frozenset[Action]] = field(default_factory=dict)


class Roles:
    """Who there is and what was granted to whom, as of one moment; it never changes."""

    def __init__(
        self,
        roles: Mapping[str, Role],
        grants: Mapping[str, tuple[Grant, ...]],
        *,
        closed: bool = True,
    ) -> None:
        """`grants`: by role. `closed`: somebody can log in, so the loopback is trusted no more."""
        self.closed = closed
        self._roles = dict(roles)
        self._grants = dict(grants)
        self._reached: dict[str, frozenset[str]] = {}

    def get(self, name: str) -> Role | None:
        """Which role has that name."""
        return self._roles.get(name)

    def roles_of(self, name: str) -> frozenset[str]:
        """Itself, and all that it is a member of, whether directly or not."""
        found = self._reached.get(name)
        if found is None:
            reached, wanted = {name}, [name]
            while wanted:
                role = self._roles.get(wanted.pop())
                new = [one for one in (role.member_of if role else ()) if one not in reached]
                reached.update(new)
                wanted += new
            found = self._reached[name] = frozenset(reached)
        return found

    def superuser(self, name: str) -> bool:
        role = self._roles.get(name)
        return role.superuser if role is not None else name == OWNER

    def knows(self, name: str) -> bool:
        """Whether there is such a role."""
        return name == OWNER or name in self._roles

    def somewhere(self, name: str, actions: frozenset[Action], kind: Kind) -> bool:
        """Whether it may do one of these with something of that kind, by a grant."""
        return self.superuser(name) or any(
            actions & grant.actions and grant.resource.kind in (kind, Kind.CLUSTER)
            for role in (*self.roles_of(name), PUBLIC)
            for grant in self._grants.get(role, ())
        )

    def reached(self, name: str, actions: frozenset[Action], kind: Kind) -> frozenset[str]:
        """The names of that kind, as grants write them, with which it may do one of these."""
        if self.superuser(name):
            return frozenset({"*"})
        roles = (*self.roles_of(name), PUBLIC)
        return _names((one for role in roles for one in self._grants.get(role, ())), actions, kind)

    def granted(self, name: str, resource: Resource) -> frozenset[Action]:
        """What was granted to it, to a role that it is a member of, or to everybody; lists of
        tables and namespaces aside.
        """
        found: frozenset[Action] = frozenset()
        if not self._grants:
            return found
        for role in (*self.roles_of(name), PUBLIC):
            for grant in self._grants.get(role, ()):
                if grant.reaches(resource):
                    found |= grant.actions
        return found


class Book(Roles):
    """With owners and lists of tables and namespaces."""

    def __init__(
        self,
        roles: Mapping[str, Role],
        owned: Mapping[Resource, Owned],
        grants: Mapping[str, tuple[Grant, ...]],
        *,
        closed: bool = True,
        tables: Mapping[int, Resource] | None = None,
    ) -> None:
        """`tables`: by the ids that their keys, and those of their indexes, begin with."""
        super().__init__(roles, grants, closed=closed)
        self._owned = dict(owned)
        self.tables = dict(tables or {})

    def held(self, name: str, resource: Resource) -> frozenset[Action]:
        """All that the role may do with it. Whoever there is may come in, and ask for the time."""
        if self.superuser(name):
            return EVERYTHING
        if resource == CLUSTER:
            return self.granted(name, resource) | {Action.CONNECT}
        roles = self.roles_of(name)
        found: frozenset[Action] = frozenset()
        owned = self._owned.get(resource)
        if owned is not None:
            if owned.owner in roles:
                return EVERYTHING
            for role, actions in owned.held.items():
                if role == PUBLIC or role in roles:
                    found |= actions
        return with_sight(found | self.granted(name, resource), resource)


@dataclass(frozen=True, slots=True)
class Denied:
    """Why not. `missing` is empty if it is not a matter of grants."""

    reason: str
    missing: frozenset[Action] = frozenset()


def may(
    identity: Identity, actions: frozenset[Action], resource: Resource, book: Book
) -> Denied | None:
    """Whether it may do all of these; None: it may."""
    actions = in_full(actions)
    if Action.NODE in actions:
        return None if identity.node else Denied("only nodes of this cluster may do that")
    if not identity.name:
        return Denied("nobody has logged in")
    if identity.credential == LOOPBACK.credential and book.closed:
        return Denied("this cluster has users by now: log in")
    if not book.knows(identity.name):
        return Denied(f"there is no user {identity.name!r} any more")
    missing = actions - book.held(identity.name, resource)
    if missing:
        return Denied(f"{identity.name!r} may not {_words(missing)} {resource}", missing)
    limits = identity.limits
    if limits is not None and (missing := actions - _within(limits, resource)):
        return Denied(
            f"this {identity.credential} is not for {_words(missing)} of {resource}", missing
        )
    return None


def somewhere(identity: Identity, actions: frozenset[Action], kind: Kind, book: Book) -> bool:
    """Whether it may do one of these with something of that kind, by a grant. Of procedures, to do
    anything with a type is to read it.
    """
    if kind is Kind.PROCEDURE_TYPE and Action.READ in actions:
        actions |= _SEEING
    if not book.somewhere(identity.name, actions, kind):
        return False
    kinds = (kind, Kind.CLUSTER)
    return identity.limits is None or any(
        actions & one.actions and one.resource.kind in kinds for one in identity.limits
    )


def types_seen(identity: Identity, book: Book) -> frozenset[str]:
    """Types of procedures that it may read, as grants write them: of those that may not be seen
    nothing may be looked at to begin with.
    """
    actions = _SEEING | {Action.READ}
    found = book.reached(identity.name, actions, Kind.PROCEDURE_TYPE)
    if identity.limits is None:
        return found
    narrow = _names(identity.limits, actions, Kind.PROCEDURE_TYPE)
    both = {_both(one, other) for one in found for other in narrow}
    return frozenset(one for one in both if one is not None)


def is_named(name: str, names: Iterable[str]) -> bool:
    """Whether one of these, as grants write them, is that name, or how it begins."""
    return any(name.startswith(one[:-1]) if one[-1:] == "*" else name == one for one in names)


def _names(grants: Iterable[Grant], actions: frozenset[Action], kind: Kind) -> frozenset[str]:
    return frozenset(
        "*" if grant.resource == CLUSTER else grant.resource.name
        for grant in grants
        if actions & grant.actions and grant.resource.kind in (kind, Kind.CLUSTER)
    )


def _both(one: str, other: str) -> str | None:
    """What both are about; None: nothing."""
    for wide, narrow in ((one, other), (other, one)):
        if is_named(narrow.removesuffix("*"), (wide,)) and (wide[-1:] == "*" or wide == narrow):
            return narrow
    return None


def allow(identity: Identity, actions: frozenset[Action], resource: Resource, book: Book) -> None:
    """`may` for who wants an error. Raises Forbidden, Unauthenticated."""
    denied = may(identity, actions, resource, book)
    if denied is None:
        return
    if not denied.missing and Action.NODE not in actions:
        raise Unauthenticated(denied.reason)
    raise Forbidden(
        f"{denied.reason}: an admin can grant it",
        details={
            "user": identity.name,
            "missing": sorted(denied.missing),
            "resource": str(resource),
        },
    )


def _within(limits: Iterable[Grant], resource: Resource) -> frozenset[Action]:
    found = frozenset({Action.CONNECT}) if resource == CLUSTER else frozenset()
    for grant in limits:
        if grant.reaches(resource):
            found |= grant.actions
    return with_sight(found, resource)


def with_sight(found: frozenset[Action], resource: Resource) -> frozenset[Action]:
    """Whoever begins procedures of a type, or operates on them, sees them."""
    if resource.kind is Kind.PROCEDURE_TYPE and found & _SEEING:
        return found | {Action.READ}
    return found


def _words(actions: Iterable[Action]) -> str:
    return ", ".join(sorted(actions))
