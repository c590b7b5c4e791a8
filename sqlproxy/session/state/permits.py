"""Whether the session's user may run a statement (`sqlproxy.catalog.privileges`), asked where it is
bound to its values; of a definition, which goes by names, also where it runs
(sqlproxy.session.dispatch). What was allowed is remembered with the plan, for as long as the roles
are the same; the plan itself belongs to one version of the declarations.

A name that is no role does what it likes: it was let in from the loopback while nobody could log
in. Whoever was let in so does nothing any more once somebody can, nor does who may log in no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kv.base.rights import LOOPBACK, OWNER, Identity, Roles
from sqlproxy.catalog.privileges import ALL, Need, Rights, denied, not_owner
from sqlproxy.catalog.roles import RoleBook
from sqlproxy.declared.database import Declared, name_of
from sqlproxy.front.bound import declarations as d
from sqlproxy.front.bound import statements as s
from sqlproxy.front.ddl import ddl_granting as g
from sqlproxy.rows.naming import is_temporary, named, schema_in
from sqlproxy.rows.schema import EnumType, Relation, SqlFunction
from sqlproxy.session.shared.prepared import Prepared
from sqlproxy.session.state.settings import Settings
from sqlproxy.values.errors import (
    INSUFFICIENT_PRIVILEGE,
    INVALID_AUTHORIZATION,
    INVALID_PARAMETER,
    SqlError,
)

_ROLES = "permission denied to {} role"


def check_role(user: str, role: str, members: Roles, *, stranger: bool) -> None:
    """Whether a user may act as a role. Raises SqlError (22023, 42501)."""
    if role == "none":
        return
    if members.get(role) is None and role != user:
        raise SqlError(INVALID_PARAMETER, f'role "{role}" does not exist')
    free = stranger or members.superuser(user)
    if not free and role not in members.roles_of(user):
        raise SqlError(INSUFFICIENT_PRIVILEGE, f'permission denied to set role "{role}"')


class Permits:
    """Of one session. `stranger`: its user was no role when it came."""

    __slots__ = (
        "_book",
        "_changes",
        "_ended",
        "_free",
        "_roles_seen",
        "_settings",
        "_stranger",
        "_trusted",
        "_user",
    )

    def __init__(
        self, identity: Identity, settings: Settings, book: RoleBook, *, stranger: bool
    ) -> None:
        """`book`: the roles as they are now."""
        self._user, self._settings, self._book = identity.name, settings, book
        self._trusted = identity.credential == LOOPBACK.credential
        self._stranger = stranger
        self._roles_seen: Roles | None = None
        self._changes = -1  # of the settings, when `_free` was found
        self._ended = self._free = False

    @property
    def acting(self) -> str:
        """Whose privileges count: SET ROLE's, else the user's."""
        role = self._settings.get("role")
        return self._user if role == "none" else role

    @property
    def members(self) -> Roles:
        return self._book.members

    @property
    def free(self) -> bool:
        """Whether nothing is asked: a superuser."""
        members, settings = self._book.members, self._settings
        if self._roles_seen is not members or self._changes != settings.changes:
            self._roles_seen, self._changes = members, settings.changes
            acting = self.acting
            stranger = self._stranger and acting == self._user
            user = members.get(self._user)
            before = self._trusted and members.closed
            mine = self._stranger or self._user == OWNER if user is None else user.login
            self._ended = before or not mine  # whatever SET ROLE has made of it
            self._free = not self._ended and (stranger or members.superuser(acting))
        return self._free

    def holds(self, prepared: Prepared) -> bool:
        """Whether it is known to be allowed."""
        if self.free:
            return True
        return not self._ended and prepared.permitted.get(self.acting) is self.members

    def check(self, prepared: Prepared) -> None:
        """Raises SqlError (42501, 28000)."""
        if self.free:
            return
        if self._ended:
            raise self._end()
        if self.holds(prepared) or prepared.declared is None:
            return
        user, members = self.acting, self.members
        if members.get(user) is None and user != OWNER:
            raise SqlError(INSUFFICIENT_PRIVILEGE, f'role "{user}" was dropped')
        if (error := self.rights(prepared.declared).lacking(user, prepared.needs)) is not None:
            raise error
        self._check_command(prepared)
        prepared.permitted[user] = members

    def lost(self) -> SqlError | None:
        """Why who was let in so would not be now; None: he would."""
        return None if self.free or not self._ended else self._end()

    def _end(self) -> SqlError:
        why = f'role "{self._user}" is not permitted to log in any more'
        if self._trusted and self.members.closed:
            why = "this session is from before the cluster had users"
        return SqlError(INVALID_AUTHORIZATION, why, hint="Connect again and log in.")

    @property
    def role(self) -> str:
        """Whose what the session makes is; "": the owner's of everything."""
        user = self.acting
        return "" if user == OWNER or self.members.get(user) is None else user

    def rights(self, declared: Declared) -> Rights:
        """What everybody may do in the session's database."""
        return Rights(self.members, declared.contents.relations, declared.place, declared.schemas)

    def usable(self, declared: Declared, path: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these schemas that are looked into for names: with USAGE."""
        if self.free:
            return path
        rights = self.rights(declared)
        return tuple(one for one in path if rights.allows_in_schema(self.acting, "U", one))

    def reach(self, user: str, *, mighty: bool) -> bool:
        """Whether it may see and end what a session of this user does; `mighty`: a superuser's."""
        return self.free or (not mighty and user in self.members.roles_of(self.acting))

    # -- what is not said by letters

    def _check_command(self, prepared: Prepared) -> None:  # noqa: C901 - one line for each statement
        bound, declared = prepared.bound, prepared.declared
        assert declared is not None
        match bound:
            case d.CreateTable():
                self._creates(declared, bound.name)
                self._refers(declared, bound.foreign_keys)
            case d.CreateTableAs() | d.CreateSequence() | d.CreateEnum():
                self._creates(declared, bound.name)
                if isinstance(bound, d.CreateSequence):
                    self._owner_of_sequence(declared, bound.options)
            case d.CreateView():
                self._creates(declared, bound.name)
                if bound.replace and (there := declared.view(bound.name)) is not None:
                    self._owns(declared, there)
            case d.CreateFunction():
                self._creates(declared, name_of(bound.function))
                if bound.replace:
                    self._owns(declared, declared.function(name_of(bound.function)))
            case d.DropFunctions():
                for name in bound.names:
                    self._owns(declared, declared.function(name))
            case d.CreateIndex():
                self._owns(declared, bound.table)
                self._creates(declared, name_of(bound.table))
            case d.AlterTable():
                self._alters(declared, bound)
            case d.AlterSequence():
                self._owns(declared, bound.sequence)
                self._owner_of_sequence(declared, bound.options)
            case d.Drop():
                for name in bound.names:
                    self._owns_named(declared, name)
            case d.AddLabel() | d.RenameLabel():
                self._owns_type(declared, bound.name)
            case d.DropTypes():
                for name in bound.names:
                    self._owns_type(declared, name)
            case d.Rename() if bound.kind == "type":
                self._owns_type(declared, bound.relation)
                self._creates(declared, bound.relation)
            case d.Rename() if bound.kind == "schema":
                self.check_schema(declared, bound.relation)
                self._creates_schemas(declared)
            case d.Rename():
                self._owns_named(declared, bound.relation)
                if bound.kind in ("table", "view", "sequence", "index"):
                    self._creates(declared, bound.relation)
            case d.SetSchema() if bound.name is not None:
                self._owns_named(declared, bound.name)
                self._creates(declared, named(bound.schema, bound.name))
            case s.Truncate():
                self._truncates(declared, bound)
            case d.CreateSchema():
                self._creates_schemas(declared)
            case d.DropSchemas():
                for name in bound.names:
                    self.check_schema(declared, name)
            case d.CreateDatabase():
                self._has("create_database", "permission denied to create database")
            case s.CreateRole() | s.AlterRole() | s.DropRole() | g.GrantRole():
                self._roles(bound)
            case _:
                pass

    def _creates(self, declared: Declared, name: str) -> None:
        """Something in the schema of that name."""
        schema = schema_in(name)
        if is_temporary(schema):
            if not self.rights(declared).allows_in_database(self.acting, "T"):
                database = declared.database
                words = f'permission denied to create temporary tables in database "{database}"'
                raise SqlError(INSUFFICIENT_PRIVILEGE, words)
            return
        if not self.rights(declared).allows_in_schema(self.acting, "C", schema):
            raise SqlError(INSUFFICIENT_PRIVILEGE, f"permission denied for schema {schema}")

    def _creates_schemas(self, declared: Declared) -> None:
        if not self.rights(declared).allows_in_database(self.acting, "C"):
            words = f"permission denied for database {declared.database}"
            raise SqlError(INSUFFICIENT_PRIVILEGE, words)

    def check_schema(self, declared: Declared, name: str) -> None:
        """It is dropped, given away and granted by its owner. Raises SqlError (42501)."""
        if not self.free and not self.rights(declared).owns_schema(self.acting, name):
            raise not_owner("schema", name)

    def _owns(
        self, declared: Declared, one: Relation | EnumType | SqlFunction | None, index: str = ""
    ) -> None:
        if one is not None and not self.rights(declared).owns(self.acting, one):
            name = one.title if isinstance(one, SqlFunction) else one.name
            raise not_owner("index" if index else one.kind, index or name)

    def _owns_type(self, declared: Declared, name: str) -> None:
        self._owns(declared, declared.enum_type(name))

    def _owns_named(self, declared: Declared, name: str) -> None:
        """Whatever has the name: ALTER INDEX renames tables, too, as in PostgreSQL."""
        one = declared.table(name) or declared.view(name) or declared.sequence(name)
        if one is None:
            self._owns(declared, declared.index(name), name)
        else:
            self._owns(declared, one)

    def _owner_of_sequence(self, declared: Declared, options: Mapping[str, Any]) -> None:
        owner = options.get("owned_by")
        if owner is not None:
            self._owns(declared, declared.table(owner[0]))

    def _alters(self, declared: Declared, bound: d.AlterTable) -> None:
        self._owns(declared, bound.table)
        for action in bound.actions:
            constraint = action.constraint if isinstance(action, d.AddConstraint) else None
            if isinstance(constraint, d.ForeignKeyDef):
                self._refers(declared, (constraint,))

    def _truncates(self, declared: Declared, bound: s.Truncate) -> None:
        """What CASCADE takes along needs the same privilege, RESTART IDENTITY the ownership."""
        wanted, done = [table.id for table in bound.tables], set[int]()
        while wanted:
            number = wanted.pop()
            table = declared.table_by_id(number)
            if table is None or number in done:
                continue
            done.add(number)
            if not self.rights(declared).allows(self.acting, table, "D"):
                raise denied(table)
            if bound.restart_identity:
                for sequence in declared.sequences_owned_by(number):
                    self._owns(declared, sequence)
            if bound.cascade:
                wanted += [one.id for one, _ in declared.referring_to(number)]

    def _refers(self, declared: Declared, keys: Iterable[d.ForeignKeyDef]) -> None:
        for key in keys:
            parent = declared.table(key.table)
            if parent is None:
                continue
            names = key.referenced or parent.primary_key
            there = {column.name: column.id for column in parent.columns}
            need = Need(int(parent.id), "x", columns=tuple(there.get(name, 0) for name in names))
            if not self.rights(declared).allows_need(self.acting, parent, need):
                raise denied(parent)

    def _has(self, what: str, refusal: str) -> None:
        member = self.members.get(self.acting)
        if member is None or not getattr(member, what):
            raise SqlError(INSUFFICIENT_PRIVILEGE, refusal)

    def _roles(self, bound: s.CreateRole | s.AlterRole | s.DropRole | g.GrantRole) -> None:
        """CREATEROLE makes, changes and drops roles that are no superusers; everybody sets the own
        password.
        """
        match bound:
            case s.CreateRole():
                self._has("create_role", _ROLES.format("create"))
                wanted = bound.options.given.get("superuser")
                self._no_superuser("create superusers", bool(wanted), bound.options.groups)
            case s.AlterRole(name, options):
                own = name in (self.acting, "current_user", "session_user")
                plain = not (options.given or options.members)
                if own and plain:
                    return
                what = "alter superuser roles or change superuser attribute"
                self._no_superuser(what, "superuser" in options.given, () if own else (name,))
                self._has("create_role", "permission denied")
            case s.DropRole(names):
                self._has("create_role", _ROLES.format("drop"))
                self._no_superuser("drop superusers", False, names)
            case g.GrantRole(_, groups, names):
                self._has("create_role", f'must have admin option on role "{groups[0]}"')
                self._no_superuser("alter superusers", False, (*groups, *names))
            case _:
                raise AssertionError(bound)

    def _no_superuser(self, what: str, wanted: bool, touched: Sequence[str]) -> None:
        members = self.members
        reached = (one for name in touched for one in members.roles_of(name))
        if wanted or any(members.superuser(one) for one in reached):
            raise SqlError(INSUFFICIENT_PRIVILEGE, f"must be superuser to {what}")

    def check_alters(self, role: str) -> None:
        """Another role is changed by who has CREATEROLE, a superuser by one. Raises SqlError
        (42501).
        """
        self._no_superuser("alter superuser roles or change superuser attribute", False, (role,))
        self._has("create_role", "permission denied")

    # -- asked by commands that name more than one thing

    def grants(self, declared: Declared, one: Relation) -> bool:
        """Whether GRANT does anything: only owners grant. Raises SqlError (42501): it is not even
        allowed to do anything with it.
        """
        rights = self.rights(declared)
        if self.free or rights.owns(self.acting, one):
            return True
        if not rights.allows(self.acting, one, ALL[one.kind]):
            raise denied(one)
        return False

    def check_owner(self, declared: Declared, one: Relation | EnumType | SqlFunction) -> None:
        """Raises SqlError (42501)."""
        if not self.free:
            self._owns(declared, one)

    def check_role(self, role: str) -> None:
        """SET ROLE. Raises SqlError (22023, 42501)."""
        check_role(self._user, role, self.members, stranger=self._stranger)

    def check_new_owner(self, owner: str) -> None:
        """Raises SqlError (42501): who gives something away is a member of the new owner."""
        if not self.free and owner not in self.members.roles_of(self.acting):
            raise SqlError(INSUFFICIENT_PRIVILEGE, f'must be member of role "{owner}"')

    def check_database(self, declared: Declared) -> None:
        """Raises SqlError (42501): a database is dropped, given away and granted by its owner."""
        if not self.free and not self.rights(declared).owns_database(self.acting):
            raise not_owner("database", declared.database)
