"""One check of rights: owners, members, containers, limits of tokens, and what is nobody's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base.rights import (
    CLUSTER,
    EVERYTHING,
    NOBODY,
    OWNER,
    PUBLIC,
    PUT,
    Action,
    Book,
    Grant,
    Identity,
    Kind,
    Owned,
    Resource,
    Role,
    is_named,
    may,
    table,
    types_seen,
)

READ = frozenset({Action.READ})
ORDERS = table("shop", "orders")
SHOP = Resource(Kind.NAMESPACE, "shop")
EMPTY = Book({}, {}, {})

names = st.sampled_from(["ann", "bob", "group", "all", "guest"])
actions = st.frozensets(st.sampled_from(sorted(EVERYTHING)), min_size=1)
resources = st.sampled_from(
    [
        CLUSTER,
        SHOP,
        ORDERS,
        table("shop", "items"),
        table("bank", "accounts"),
        Resource(Kind.PROCEDURE_TYPE, "pay.order"),
        Resource(Kind.PROCEDURE_TYPE, "pay*"),
        Resource(Kind.POOL, "default"),
        Resource(Kind.LOCK, "bank/1"),
        Resource(Kind.PLACE, "s3://bucket/a"),
    ]
)
grants = st.builds(Grant, actions, resources)
roles = st.dictionaries(
    names, st.builds(Role, st.booleans(), st.lists(names, max_size=2).map(tuple)), max_size=5
)
books = st.builds(
    Book,
    roles,
    st.dictionaries(resources, st.builds(Owned, names, st.dictionaries(names, actions))),
    st.dictionaries(names, st.lists(grants, max_size=3).map(tuple)),
)


def user(name: str, *limits: Grant) -> Identity:
    """Somebody who logged in; with limits: by a token that has them."""
    return Identity(name, "token t" if limits else "password", limits or None)


def test_nobody_may_do_anything() -> None:
    """Who has not logged in has no right, whatever everybody was granted."""
    book = Book({}, {}, {PUBLIC: (Grant(EVERYTHING, CLUSTER),)})
    assert may(NOBODY, READ, ORDERS, book) is not None


def test_a_user_who_was_dropped_may_nothing() -> None:
    """A session, token or certificate does not outlive its user."""
    book = Book({}, {}, {"ann": (Grant(EVERYTHING, CLUSTER),)})
    denied = may(user("ann"), READ, ORDERS, book)
    assert denied is not None
    assert "no user" in denied.reason


@given(books, actions, resources)
def test_node_orders_are_for_nodes_alone(
    book: Book, wanted: frozenset[Action], resource: Resource
) -> None:
    """No grant and no superuser opens what one node orders another."""
    wanted |= {Action.NODE}
    assert may(Identity(OWNER, "password"), wanted, resource, book) is not None
    assert may(Identity("", "node", node=2), wanted, resource, book) is None


@given(books, names, actions, resources, grants)
def test_a_token_never_widens_its_users_rights(
    book: Book, name: str, wanted: frozenset[Action], resource: Resource, limit: Grant
) -> None:
    """What a limited token may do, its user may do without it."""
    if may(user(name, limit), wanted, resource, book) is None:
        assert may(user(name), wanted, resource, book) is None
        assert wanted <= limit.actions


@given(roles, names, st.lists(grants, max_size=3), grants, actions, resources)
def test_a_grant_takes_nothing_away(
    known: dict[str, Role],
    name: str,
    before: list[Grant],
    more: Grant,
    wanted: frozenset[Action],
    resource: Resource,
) -> None:
    """With one grant more nobody has less."""
    old = Book(known, {}, {name: tuple(before)})
    new = Book(known, {}, {name: (*before, more)})
    if may(user(name), wanted, resource, old) is None:
        assert may(user(name), wanted, resource, new) is None


@pytest.mark.parametrize(
    ("granted", "asked", "allowed"),
    [
        (Grant(READ, CLUSTER), ORDERS, True),
        (Grant(READ, SHOP), ORDERS, True),
        (Grant(READ, ORDERS), ORDERS, True),
        (Grant(READ, ORDERS), SHOP, False),
        (Grant(READ, ORDERS), table("shop", "orders2"), False),
        (Grant(READ, SHOP), table("shop2", "orders"), False),
        (Grant(READ, table("shop", "ord*")), ORDERS, True),
        (Grant(READ, table("shop", "ord*")), table("bank", "orders"), False),
        (Grant(frozenset({Action.WRITE}), SHOP), ORDERS, False),
        (Grant(READ, Resource(Kind.PROCEDURE_TYPE, "orders")), ORDERS, False),
    ],
)
def test_what_a_grant_reaches(granted: Grant, asked: Resource, *, allowed: bool) -> None:
    """A grant holds for its thing and what lies in it, and for nothing else."""
    book = Book({"ann": Role()}, {}, {"ann": (granted,)})
    assert (may(user("ann"), READ, asked, book) is None) is allowed


def test_a_put_needs_insert_and_update() -> None:
    """A put may overwrite: who may only insert is refused, with the word that is missing."""
    owned = {ORDERS: Owned("bob", {"ann": frozenset({Action.INSERT})})}
    book = Book({"ann": Role(), "bob": Role()}, owned, {})
    denied = may(user("ann"), PUT, ORDERS, book)
    assert denied is not None
    assert denied.missing == {Action.UPDATE}
    assert "update table shop.orders" in denied.reason
    assert may(user("bob"), PUT | {Action.DEFINE}, ORDERS, book) is None


def test_members_of_members_have_what_a_group_has() -> None:
    """Membership is followed over several steps, and in circles it ends."""
    known = {
        "ann": Role(member_of=("a",)),
        "a": Role(member_of=("b",)),
        "b": Role(member_of=("a",)),
    }
    book = Book(known, {}, {"b": (Grant(READ, SHOP),)})
    assert may(user("ann"), READ, ORDERS, book) is None


def test_the_owner_role_is_there_without_a_row() -> None:
    """A cluster without roles has one superuser."""
    assert may(user(OWNER), EVERYTHING, CLUSTER, EMPTY) is None


types = st.sampled_from(["*", "pay*", "pay.*", "pay.order", "pay.orders", "ship.order", ""])
of_types = st.one_of(
    grants, st.builds(Grant, actions, st.builds(Resource, st.just(Kind.PROCEDURE_TYPE), types))
)


@given(
    roles,
    st.dictionaries(names, st.lists(of_types, max_size=3).map(tuple)),
    names,
    st.none() | st.lists(of_types, max_size=3).map(tuple),
    types.filter(lambda name: "*" not in name),
)
def test_types_that_go_with_a_question_are_those_that_may_be_read(
    roles: dict[str, Role],
    granted: dict[str, tuple[Grant, ...]],
    name: str,
    limits: tuple[Grant, ...] | None,
    asked: str,
) -> None:
    """A list would have what its reader may not see, or lack what he may."""
    book = Book({**roles, name: roles.get(name, Role())}, {}, granted)
    who = Identity(name, "token t", limits)
    read = may(who, READ, Resource(Kind.PROCEDURE_TYPE, asked), book) is None
    assert is_named(asked, types_seen(who, book)) == read
