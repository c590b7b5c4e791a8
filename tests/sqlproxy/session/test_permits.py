"""Whether a session may go on, as far as its user is concerned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from kv.base.rights import OWNER, Identity, Role, Roles
from sqlproxy.catalog.roles import RoleBook
from sqlproxy.session.shared.prepared import Prepared
from sqlproxy.session.state.permits import Permits
from sqlproxy.session.state.settings import Settings
from sqlproxy.values.errors import INVALID_AUTHORIZATION, SqlError


class Known:
    """Roles as they are now."""

    def __init__(self) -> None:
        self.members = Roles({}, {})

    def are(self, **roles: Role) -> None:
        self.members = Roles(roles, {})


@pytest.mark.parametrize("role", ["none", "root", "team"])
@pytest.mark.parametrize("gone", [True, False])
def test_a_session_ends_with_its_user_whatever_role_it_has_set(role: str, gone: bool) -> None:
    """Whoever had set another role went on as that one, as a superuser perhaps, though dropped."""
    book, settings = Known(), Settings({})
    others = {"root": Role(superuser=True), "team": Role()}
    permits = Permits(Identity("ann", "password"), settings, cast(RoleBook, book), stranger=False)
    book.are(ann=Role(member_of=("root", "team")), **others)
    settings.set("role", role)
    assert permits.lost() is None
    assert permits.free == (role == "root")
    book.are(**({} if gone else {"ann": Role(login=False)}), **others)
    assert not permits.free
    lost = permits.lost()
    assert lost is not None
    assert lost.sqlstate == INVALID_AUTHORIZATION
    with pytest.raises(SqlError, match="not permitted to log in"):
        permits.check(cast(Prepared, SimpleNamespace(declared=None, permitted={})))


def test_who_was_no_role_when_he_came_need_not_be_one() -> None:
    """Before the first user everybody is let in; the owner of everything is no row."""
    for name, stranger in (("me", True), (OWNER, False)):
        permits = Permits(
            Identity(name, "none"), Settings({}), cast(RoleBook, Known()), stranger=stranger
        )
        assert permits.lost() is None
