"""Roles and lists of privileges, as functions find them among the system's relations
(`sqlproxy.pgcatalog.rights`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlproxy.front.bound.env import Env
from sqlproxy.rows.naming import PUBLIC, TEMPORARY
from sqlproxy.values.errors import (
    INSUFFICIENT_PRIVILEGE,
    UNDEFINED_OBJECT,
    UNDEFINED_SCHEMA,
    SqlError,
)


def roles_of(env: Env, role: int | str | None) -> Sequence[int]:
    """What a role is a member of, itself included, -1 for a superuser; None: who asks. A user who
    is no role may do everything. Raises SqlError (42704).
    """
    if role is None:
        found = env.catalog.get("pg_authid", "_roles", rolname=env.session.get("user", ""))
        return (-1,) if found is None else list(found)
    key = "oid" if isinstance(role, int) else "rolname"
    found = env.catalog.get("pg_authid", "_roles", **{key: role})
    if found is None:
        if isinstance(role, int):
            return ()
        raise SqlError(UNDEFINED_OBJECT, f'role "{role}" does not exist')
    return list(found)


def may(acl: Sequence[str] | None, roles: Sequence[int], letters: set[str]) -> bool:
    """`acl`: OID=letters; None: of the system's own, which everybody reads."""
    if acl is None or -1 in roles:
        return True
    for one in acl:
        grantee, _, held = one.partition("=")
        if (grantee == "0" or int(grantee) in roles) and letters & set(held):
            return True
    return False


def of_schema(env: Env, one: int | str) -> tuple[bool, Sequence[str] | None]:
    """Whether it is there, and its list. Raises SqlError (3F000)."""
    key = "oid" if isinstance(one, int) else "nspname"
    name = env.catalog.get("pg_namespace", "nspname", **{key: one})
    if name is None and isinstance(one, str):
        raise SqlError(UNDEFINED_SCHEMA, f'schema "{one}" does not exist')
    acl = env.catalog.get("pg_namespace", "_acl", **{key: one})
    if acl is None:
        acl = ["0=U"]
    if name == PUBLIC:
        acl = env.catalog.get("pg_database", "_schema_acl", datname=env.session["database"])
    return name is not None, acl


def check_usage(env: Env, schema: str) -> None:
    """What looks for a name in a schema. Raises SqlError (3F000, 42501)."""
    if schema == TEMPORARY:
        return
    _, acl = of_schema(env, schema)
    if not may(acl, roles_of(env, None), {"U"}):
        raise SqlError(INSUFFICIENT_PRIVILEGE, f"permission denied for schema {schema}")
