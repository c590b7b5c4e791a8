"""Users, groups, tokens and grants (kvorum/native/access.py). Every change counts at once at the
node that was asked, and at the others within a second.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from pydantic import Field

from kv.base.limits import GRANTS_PER_ROLE_MAX, TOKEN_TTL_MS_MAX
from kv.base.rights import CLUSTER, EVERYTHING, may
from kvorum.api.credentials import under
from kvorum.http.routes.declaring import (
    As,
    Asked,
    Body,
    BoolOrNone,
    Here,
    Me,
    Node,
    Nothing,
    Plain,
    Routes,
    Text,
    TextOrNone,
)
from kvorum.http.routes.rights import ADMIN_CLUSTER, SELF
from kvorum.http.routes.route import items_of, object_of
from kvorum.http.wire.fields import Schema, integer
from sqlproxy.catalog import grants

ROUTES: Final = Routes("access")

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_BOOL: Final[Schema] = {"type": "boolean"}
_NAMED: Final = object_of(name=_TEXT)
_USER: Final = object_of(
    name=_TEXT, login=_BOOL, superuser=_BOOL, has_password=_BOOL, member_of=_TEXTS
)
_MEMBER: Final = object_of(user=_TEXT, role=_TEXT)
_GRANT: Final[dict[str, Schema]] = {
    "actions": _TEXTS,
    "kind": _TEXT,
    "name": _TEXT,
    "namespace": _TEXT,
}
_LIMITS: Final[Schema] = {"type": ["array", "null"], "items": object_of(**_GRANT)}
_TOKEN: Final[dict[str, Schema]] = {
    "user": _TEXT,
    "name": _TEXT,
    "created_ms": {"type": "integer"},
    "expires_ms": {"type": "integer"},
    "limits": _LIMITS,
}
_GIVEN: Final = object_of(role=_TEXT, **_GRANT)


class NewUser(Body):
    name: Text = Field(description="A letter, then letters, digits and . _ - @.")
    password: TextOrNone = Field(None, description="Left out: it has none.")
    login: BoolOrNone = Field(None, description="false: a group, which nobody logs in as.")
    superuser: BoolOrNone = Field(None, description="Whether everything is allowed to it.")
    groups: Annotated[list[Text], Field(max_length=GRANTS_PER_ROLE_MAX)] = Field(
        [], description="Which it becomes a member of."
    )


class Password(Body):
    password: TextOrNone = Field(None, description="Left out: none from now on.")


class Grant(Body):
    actions: Annotated[list[Text], Field(max_length=32)] = Field(description="Such as read, write.")
    kind: Text = Field(
        description="cluster, namespace, table, procedure type, pool, lock or place."
    )
    name: TextOrNone = Field(None, description="Which one; NAME*: all that begin so.")
    namespace: TextOrNone = Field(None, description="Of a table.")


class Given(Grant):
    role: Text = Field(description="A user or a group; public: everybody.")


class NewToken(Body):
    user: Text = Field(description="Whose it is.")
    name: Text = Field(description="What it is for.")
    ttl_ms: Annotated[int, As(integer(0, TOKEN_TTL_MS_MAX))] = Field(
        0, description="It ends after so long; 0: never."
    )
    limits: Annotated[list[Grant] | None, Field(max_length=GRANTS_PER_ROLE_MAX)] = Field(
        None, description="Only for these; left out: for all that its user may."
    )


class OwnPassword(Body):
    old: TextOrNone = Field(None, description="The one until now; left out: there was none.")
    new: Text = Field(description="The one from now on.")


class OwnToken(Body):
    name: Text = Field(description="What it is for.")
    ttl_ms: Annotated[int, As(integer(0, TOKEN_TTL_MS_MAX))] = Field(
        0, description="It ends after so long; 0: never."
    )
    limits: Annotated[list[Grant] | None, Field(max_length=GRANTS_PER_ROLE_MAX)] = Field(
        None, description="Only for these; left out: for all that you may."
    )


_ME: Final = object_of(
    user=_TEXT,
    credential=_TEXT,
    superuser=_BOOL,
    roles=_TEXTS,
    cluster=_TEXTS,
    limits=_LIMITS,
)


@ROUTES.on("GET", "/v1/whoami", SELF, _ME)
async def whoami(me: Me, here: Here) -> Plain:
    """Who you are

    `credential`: how you proved it (loopback: the cluster has no users); `roles`: whose rights you
    have; `cluster`: what you may do to all of the cluster; `limits`: of a token that is not for all
    that its user may.
    """
    book = here.guard.book
    assert book is not None
    held = sorted(
        action for action in EVERYTHING if may(me, frozenset({action}), CLUSTER, book) is None
    )
    return {
        "user": me.name,
        "credential": me.credential,
        "superuser": book.superuser(me.name) and me.limits is None,
        "roles": sorted(book.roles_of(me.name)),
        "cluster": held,
        "limits": None if me.limits is None else [grants.shown(one) for one in me.limits],
    }


@ROUTES.on("POST", "/v1/whoami/password", SELF, _NAMED, 403)
async def change_own_password(
    node: Node, me: Me, asked: Asked, here: Here, body: OwnPassword
) -> object:
    """Change your own password"""
    change = under(me, "user.password", {"name": me.name, "password": body.new})
    users = await node.access("user.list", {})
    if any(one["name"] == me.name and one["has_password"] for one in users):
        await here.guard.by_password(me.name, body.old or "", asked.address)
    return await node.access("user.password", change)


@ROUTES.on(
    "POST", "/v1/whoami/tokens", SELF, object_of(**_TOKEN, token=_TEXT), 403, 409, 413, ok=201
)
async def create_own_token(node: Node, me: Me, body: OwnToken) -> object:
    """Make a token of your own

    The answer has its text, which is shown once.
    """
    made = under(me, "token.create", {**body.given(), "user": me.name})
    return await node.access("token.create", made)


@ROUTES.on("POST", "/v1/init", ADMIN_CLUSTER, object_of(user=_TEXT, token=_TEXT), 409, ok=201)
async def init(node: Node, body: Nothing) -> object:
    """Make the first administrator

    The answer has its token, which is shown once. From then on nobody is let in without a
    credential. 409 `INITIALIZED`: there are users.
    """
    return await node.access("init", {})


@ROUTES.on("GET", "/v1/users", ADMIN_CLUSTER, items_of(_USER))
async def list_users(node: Node) -> Plain:
    """List users and groups

    By name, the owner of everything first.
    """
    return {"items": await node.access("user.list", {})}


@ROUTES.on("POST", "/v1/users", ADMIN_CLUSTER, _NAMED, 404, 409, ok=201)
async def create_user(node: Node, me: Me, body: NewUser) -> object:
    """Create a user, a service account or a group

    It is a role of SQL, too. Without a password it logs in by tokens or a certificate.
    """
    return await node.access("user.create", under(me, "user.create", body.given()))


@ROUTES.on("DELETE", "/v1/users/{user}", ADMIN_CLUSTER, _NAMED, 404, 409)
async def delete_user(node: Node, user: str) -> object:
    """Delete a user or a group

    With its tokens and grants. 409: it owns something.
    """
    return await node.access("user.delete", {"name": user})


@ROUTES.on("POST", "/v1/users/{user}/password", ADMIN_CLUSTER, _NAMED, 404)
async def set_password(node: Node, me: Me, user: str, body: Password) -> object:
    """Give a user another password"""
    change = under(me, "user.password", {"name": user, "password": body.password})
    return await node.access("user.password", change)


@ROUTES.on("POST", "/v1/users/{user}/roles/{role}", ADMIN_CLUSTER, _MEMBER, 404, 409)
async def grant_role(node: Node, me: Me, user: str, role: str) -> object:
    """Make a user a member of a group"""
    return await node.access("role.grant", under(me, "role.grant", {"user": user, "role": role}))


@ROUTES.on("DELETE", "/v1/users/{user}/roles/{role}", ADMIN_CLUSTER, _MEMBER, 404)
async def revoke_role(node: Node, user: str, role: str) -> object:
    """End a membership"""
    return await node.access("role.revoke", {"user": user, "role": role})


@ROUTES.on("GET", "/v1/tokens", ADMIN_CLUSTER, items_of(object_of(**_TOKEN)))
async def list_tokens(
    node: Node, user: Annotated[TextOrNone, Query(description="Only of this user.")] = None
) -> Plain:
    """List tokens

    Without their texts, which nobody can get again. `expires_ms` 0: never.
    """
    return {"items": await node.access("token.list", {"user": user})}


@ROUTES.on(
    "POST", "/v1/tokens", ADMIN_CLUSTER, object_of(**_TOKEN, token=_TEXT), 404, 409, 413, ok=201
)
async def create_token(node: Node, me: Me, body: NewToken) -> object:
    """Make a token

    The answer has its text, which is shown once: send it as `Authorization: Bearer TOKEN`.
    """
    return await node.access("token.create", under(me, "token.create", body.given()))


@ROUTES.on("DELETE", "/v1/tokens/{user}/{name}", ADMIN_CLUSTER, object_of(**_TOKEN), 404)
async def revoke_token(node: Node, user: str, name: str) -> object:
    """Revoke a token"""
    return await node.access("token.revoke", {"user": user, "name": name})


@ROUTES.on("GET", "/v1/grants", ADMIN_CLUSTER, items_of(_GIVEN))
async def list_grants(
    node: Node, role: Annotated[TextOrNone, Query(description="Only of this role.")] = None
) -> Plain:
    """List grants

    Those of SQL on its tables and databases are not among them.
    """
    return {"items": await node.access("grant.list", {"role": role})}


@ROUTES.on("POST", "/v1/grants", ADMIN_CLUSTER, _GIVEN, 404, 413)
async def give_grant(node: Node, me: Me, body: Given) -> object:
    """Grant actions

    On one thing, or on all whose names begin with what stands before `*`; on a namespace for its
    tables, on the cluster for everything.
    """
    return await node.access("grant.give", under(me, "grant.give", body.given()))


@ROUTES.on("POST", "/v1/grants/take", ADMIN_CLUSTER, _GIVEN, 404)
async def take_grant(node: Node, body: Given) -> object:
    """Take granted actions away

    What was granted on something wider, or by SQL, stays.
    """
    return await node.access("grant.take", body.given())
