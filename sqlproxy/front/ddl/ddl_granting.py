"""GRANT, REVOKE, OWNER TO, REASSIGN OWNED, options of roles → bound commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kv.base.rights import PUBLIC as EVERYBODY
from sqlproxy.catalog.privileges import ALL, LETTERS
from sqlproxy.front.binding.fromitems import check_schema, no_relation, no_schema
from sqlproxy.front.binding.scope import Names
from sqlproxy.front.bound.statements import RoleOptions
from sqlproxy.front.ddl.ddl_functions import named_function
from sqlproxy.front.ddl.ddl_options import option_value
from sqlproxy.front.syntax.syntax import Node, at, strings
from sqlproxy.rows.naming import PUBLIC, named, schema_of
from sqlproxy.values.errors import (
    SYNTAX_ERROR,
    UNSUPPORTED,
    SqlError,
    unsupported,
)

_KINDS: Final = {
    "OBJECT_TABLE": "table",
    "OBJECT_VIEW": "view",
    "OBJECT_SEQUENCE": "sequence",
    "OBJECT_DATABASE": "database",
    "OBJECT_SCHEMA": "schema",
}
_OPTIONS: Final = {
    "superuser": "superuser",
    "createdb": "create_database",
    "createrole": "create_role",
    "canlogin": "login",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """`kind`: table (views are named so, too), sequence, database or schema; `names` of them, None:
    ALL … IN SCHEMA, `schemas`. `letters` None: ALL. `grantees`: "" is PUBLIC.
    """

    give: bool
    kind: str
    names: tuple[str, ...] | None
    letters: str | None
    grantees: tuple[str, ...]
    schemas: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    """Of tables: a column and its letters. Without `letters` (then "") nothing else is meant."""


@dataclass(frozen=True, slots=True)
class GrantDefaults:
    """ALTER DEFAULT PRIVILEGES; `creators` None: of who says so."""

    creators: tuple[str, ...] | None
    grant: Grant


@dataclass(frozen=True, slots=True)
class GrantRole:
    give: bool
    groups: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeOwner:
    """`kind`: table, view, sequence, type, function, database or schema. `name` None: it is not
    there, and need not be.
    """

    kind: str
    name: str | None
    owner: str


@dataclass(frozen=True, slots=True)
class ReassignOwned:
    names: tuple[str, ...]
    owner: str


def grant(body: Node, names: Names) -> Grant:
    """Raises SqlError."""
    kind = _KINDS.get(body["objtype"])
    word = body["objtype"].removeprefix("OBJECT_").lower()
    if kind is None:
        raise unsupported(f"GRANT and REVOKE on {word.upper()}")
    if body.get("grant_option"):
        raise unsupported("GRANT OPTION", hint="Only owners grant; make the role a member of it.")
    if body.get("grantor", {}).get("rolename"):
        raise SqlError(UNSUPPORTED, "grantor must be current user")
    give = bool(body.get("is_grant"))
    schemas: tuple[str, ...] = ()
    if body.get("targtype") == "ACL_TARGET_ALL_IN_SCHEMA":
        schemas = tuple(strings(body["objects"]))
        for schema in schemas:
            _check_there(schema, names)
        found: tuple[str, ...] | None = None
    elif kind in ("database", "schema"):
        found = tuple(strings(body["objects"]))
        if kind == "schema":
            for schema in found:
                _check_there(schema, names)
    else:
        found = tuple(_named(node["RangeVar"], kind, names) for node in body["objects"])
    nodes = body.get("privileges") or ()
    whole = [node for node in nodes if "cols" not in node["AccessPriv"]]
    columns = _of_columns([node["AccessPriv"] for node in nodes if node not in whole], kind)
    letters = "" if columns and not whole else _letters(whole, kind)
    grantees = role_names(body["grantees"], public=True)
    return Grant(give, kind, found, letters, grantees, schemas, columns)


def _of_columns(parts: Sequence[Node], kind: str) -> tuple[tuple[str, str], ...]:
    """Columns with the letters that are said of them. Raises SqlError (0LP01, 42601)."""
    found: dict[str, str] = {}
    for part in parts:
        if kind != "table":
            raise SqlError("0LP01", "column privileges are only valid for relations")
        word = part.get("priv_name", "").lower()
        letters = LETTERS.get(word) if word else ALL["column"]
        if letters is None:
            raise SqlError(SYNTAX_ERROR, f'unrecognized privilege type "{word}"')
        if any(one not in ALL["column"] for one in letters):
            raise SqlError("0LP01", f"invalid privilege type {word.upper()} for column")
        for name in strings(part["cols"]):
            found[name] = found.get(name, "") + letters
    return tuple(found.items())


def defaults(body: Node) -> GrantDefaults:
    """Raises SqlError."""
    creators: tuple[str, ...] | None = None
    for node in body.get("options", ()):
        part = node["DefElem"]
        listed = part["arg"]["List"]["items"]
        if part["defname"] == "schemas":
            for schema in strings(listed):
                _check_public(schema)
        else:
            creators = role_names(listed)
    action = body["action"]
    kind = _KINDS.get(action["objtype"])
    if kind not in ("table", "sequence"):
        word = action["objtype"].removeprefix("OBJECT_").lower()
        raise unsupported(f"ALTER DEFAULT PRIVILEGES … ON {word.upper()}S")
    if action.get("grant_option"):
        raise unsupported("GRANT OPTION", hint="Only owners grant; make the role a member of it.")
    letters = _letters(action.get("privileges"), kind)
    if letters is not None and any(one not in ALL[kind] for one in letters):
        raise SqlError("0LP01", f"invalid privilege type for {kind}")
    grantees = role_names(action["grantees"], public=True)
    give = bool(action.get("is_grant"))
    return GrantDefaults(creators, Grant(give, kind, None, letters, grantees))


def _named(reference: Node, kind: str, names: Names) -> str:
    name = check_schema(reference, names)
    there = names.table(name) or names.view(name) or names.sequence(name)
    if there is None:
        raise no_relation(reference)
    if kind == "sequence" and names.sequence(name) is None:
        raise SqlError("42809", f'"{name}" is not a sequence')
    return name


def _letters(nodes: Sequence[Node] | None, kind: str) -> str | None:
    if not nodes:
        return None
    found = ""
    for node in nodes:
        part = node["AccessPriv"]
        word = part["priv_name"].lower()
        letter = LETTERS.get(word)
        if letter is None:
            raise SqlError(SYNTAX_ERROR, f'unrecognized privilege type "{word}"')
        # GRANT … ON s without SEQUENCE may name a sequence, with its privileges
        if letter not in ALL[kind] and not (kind == "table" and letter in ALL["sequence"]):
            of = {"table": "table"}.get(kind, kind)
            raise SqlError("0LP01", f"invalid privilege type {word.upper()} for {of}")
        found += letter
    return found


def _check_there(schema: str, names: Names) -> None:
    if schema != PUBLIC and schema not in names.schemas:
        raise no_schema(schema)


def _check_public(schema: str) -> None:
    if schema != "public":
        raise no_schema(schema)


def role_name(node: Node) -> str:
    """Of a RoleSpec; current_user and session_user by these words."""
    kind = node.get("roletype", "ROLESPEC_CSTRING")
    if kind == "ROLESPEC_CSTRING":
        return str(node["rolename"])
    if kind == "ROLESPEC_PUBLIC":
        raise SqlError("42704", 'role "public" does not exist')
    return str(kind.removeprefix("ROLESPEC_").lower())


def role_names(nodes: Sequence[Node], *, public: bool = False) -> tuple[str, ...]:
    """`public`: PUBLIC may be among them."""
    return tuple(
        EVERYBODY
        if public and node["RoleSpec"].get("roletype") == "ROLESPEC_PUBLIC"
        else role_name(node["RoleSpec"])
        for node in nodes
    )


def grant_role(body: Node) -> GrantRole:
    for node in body.get("opt", ()):
        part = node["DefElem"]
        if option_value(part) is not False or part["defname"] != "admin":
            raise unsupported(f"{part['defname'].upper()} OPTION of membership in roles")
    groups = tuple(node["AccessPriv"]["priv_name"] for node in body["granted_roles"])
    return GrantRole(bool(body.get("is_grant")), groups, role_names(body["grantee_roles"]))


def owner_of_relation(body: Node, names: Names) -> ChangeOwner | None:
    """ALTER TABLE, VIEW, SEQUENCE, INDEX … OWNER TO; None: it is something else."""
    commands = [node["AlterTableCmd"] for node in body["cmds"]]
    if all(command["subtype"] != "AT_ChangeOwner" for command in commands):
        return None
    if len(commands) > 1:
        raise unsupported("OWNER TO together with other changes", hint="Use two statements.")
    name: str | None = check_schema(body["relation"], names)
    there = names.table(name or "") or names.view(name or "") or names.sequence(name or "")
    kind = _KINDS.get(body.get("objtype", "OBJECT_TABLE"), "index")
    if there is None and kind == "index" and names.index(name or ""):
        raise unsupported("ALTER INDEX … OWNER TO", hint="An index is its table's owner's.")
    if there is None and not body.get("missing_ok"):
        raise no_relation(body["relation"])
    if there is None:
        name = None
    elif kind in ("view", "sequence") and there.kind != kind:
        raise SqlError("42809", f'"{name}" is not a {kind}')
    return ChangeOwner(kind, name, role_name(commands[0]["newowner"]))


def owner(body: Node, names: Names) -> ChangeOwner:
    """ALTER DATABASE, SCHEMA, TYPE and FUNCTION … OWNER TO."""
    if body["objectType"] in ("OBJECT_FUNCTION", "OBJECT_ROUTINE"):
        one = named_function(body["object"]["ObjectWithArgs"], names)
        name = named(schema_of(one.namespace), one.name)
        return ChangeOwner("function", name, role_name(body["newowner"]))
    if body["objectType"] == "OBJECT_TYPE":
        words = strings(body["object"]["List"]["items"])
        for schema in words[-2:-1]:
            _check_there(schema, names)
        path = words[-2:-1] or names.path
        found = [n for one in path if names.enum(n := named(one, words[-1])) is not None]
        return ChangeOwner("type", (*found, words[-1])[0], role_name(body["newowner"]))
    kind = _KINDS.get(body["objectType"])
    if kind not in ("database", "schema"):
        raise unsupported("ALTER … OWNER TO")
    name = body["object"]["String"]["sval"]
    if kind == "schema" and name not in names.schemas:
        _check_public(name)
        raise unsupported("ALTER SCHEMA public OWNER TO", hint="It is the database's owner's.")
    return ChangeOwner(kind, name, role_name(body["newowner"]))


def reassign(body: Node) -> ReassignOwned:
    return ReassignOwned(role_names(body["roles"]), role_name(body["newrole"]))


def role_options(nodes: Sequence[Node]) -> RoleOptions:
    """Raises SqlError (0A000): nothing is accepted that would not be kept."""
    given: dict[str, object] = {}
    more: dict[str, Any] = {}
    parts = [node["DefElem"] for node in nodes]
    superuser = any(p["defname"] == "superuser" and option_value(p) for p in parts)
    for part in parts:
        name, value = part["defname"], None
        if name not in ("addroleto", "rolemembers", "adminmembers"):
            value = option_value(part)
        match name:
            case "password":
                more |= {"password": value, "no_password": value is None}
            case "addroleto" | "rolemembers":
                listed = role_names(part["arg"]["List"]["items"])
                more["groups" if name == "addroleto" else "members"] = listed
            case "connectionlimit":
                given["connection_limit"] = int(value or 0)
            case "inherit" if value:
                pass
            case "validUntil" if value == "infinity":
                pass
            case "isreplication" | "bypassrls" if not value or superuser:
                pass  # what superusers are shown with, so that pg_dumpall's roles come back
            case _ if name in _OPTIONS:
                given[_OPTIONS[name]] = bool(value)
            case _:
                raise unsupported(f"{_SPELT.get(name, name.upper())} of roles", position=at(part))
    return RoleOptions(given, **more)


_SPELT: Final = {
    "inherit": "NOINHERIT",
    "validUntil": "VALID UNTIL",
    "isreplication": "REPLICATION",
    "adminmembers": "ADMIN",
}
