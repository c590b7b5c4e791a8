"""Users, groups, tokens and grants: the same by every way to the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvorum
from kv.base.errors import InvalidArgument, NotFound
from kvorum import AlreadyExists
from tests.kit.commands import run
from tests.kit.machine import free_port_base


@pytest.fixture
def base(tmp_path: Path) -> Iterator[int]:
    """Of a node without users."""
    base = free_port_base()
    with kvorum.open(tmp_path / "data", port=base):
        yield base


def url(base: int, surface: str) -> str:
    return f"http://127.0.0.1:{base + 2}" if surface == "http" else f"127.0.0.1:{base}"


@pytest.mark.parametrize("surface", ["native", "http"])
def test_users_groups_and_grants_change_by_every_way(base: int, surface: str) -> None:
    """What one of the ways cannot do, whoever has only that way cannot administer."""
    with kvorum.connect(url(base, surface)) as db:
        db.access("user.create", {"name": "readers", "login": False})
        db.access("user.create", {"name": "ann", "groups": ["readers"]})
        db.access("user.create", {"name": "bob"})
        db.access("role.grant", {"user": "bob", "role": "readers"})
        db.access("role.revoke", {"user": "ann", "role": "readers"})
        said = {"role": "readers", "actions": ["read"], "kind": "namespace", "name": "shop"}
        db.access("grant.give", said)
        assert db.access("grant.list", {"role": "readers"}) == [{**said, "namespace": ""}]
        db.access("grant.take", said)
        assert db.access("grant.list") == []
        shown = {one["name"]: one for one in db.access("user.list")}
        assert shown["bob"] == {
            "name": "bob",
            "login": True,
            "superuser": False,
            "has_password": False,
            "member_of": ["readers"],
        }
        assert shown["readers"]["login"] is False
        db.access("user.delete", {"name": "bob"})
        with pytest.raises(NotFound):
            db.access("user.delete", {"name": "bob"})
        with pytest.raises(AlreadyExists):
            db.access("user.create", {"name": "ann"})
        for name in ("node", "pg_x", "", "a b"):
            with pytest.raises(InvalidArgument):
                db.access("user.create", {"name": name})
        with pytest.raises(InvalidArgument, match="actions"):
            db.access("grant.give", {**said, "actions": ["fly"]})
        with pytest.raises(InvalidArgument):
            db.access("grant.give", {**said, "actions": ["node"]})
        with pytest.raises(InvalidArgument, match="rename"):
            db.access("user.rename", {"name": "ann"})


def test_commands_of_users(base: int) -> None:
    """What people type: a password is never among the words, which everybody here can read."""
    at = f"127.0.0.1:{base}"
    with kvorum.connect(at) as db:
        env = {"KVORUM_TOKEN": db.access("init")["token"]}
    run("role", "create", "readers", connect=at, env=env)
    words = ("user", "create", "ann", "--role", "readers", "--password-stdin")
    run(*words, stdin=b"correct horse battery\n", connect=at, env=env)
    run("user", "create", "ci", connect=at, env=env)
    run("grant", "give", "readers", "read", "namespace:shop", connect=at, env=env)
    run("grant", "give", "ci", "submit,read", "procedure:billing.*", connect=at, env=env)
    only = ("--only", "read@table:shop.orders", "--only", "backup@cluster")
    made = run("token", "create", "ci", "night", "--ttl-hours", "1", *only, connect=at, env=env).out
    assert re.fullmatch(rb"kvt_[\w-]{16}_[\w-]{43}\n", made)
