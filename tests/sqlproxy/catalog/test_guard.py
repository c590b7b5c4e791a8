"""Who somebody is and what he may, over the rows of the catalog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import kvorum
from kv.base import throttle
from kv.base.adapters import SystemRng
from kv.base.config import own_addresses
from kv.base.errors import (
    AlreadyExists,
    Busy,
    Forbidden,
    InvalidArgument,
    KvorumError,
    NotFound,
    Refused,
    Unauthenticated,
    Unavailable,
)
from kv.base.rights import CLUSTER, LOOPBACK, OWNER, PUT, Action, Grant, Kind, Resource, table
from sqlproxy.catalog import guard as guards
from sqlproxy.catalog import roles, users
from sqlproxy.catalog.catalog import Reader
from sqlproxy.catalog.guard import KNOWN_MS_MAX, Guard
from txn.client import TxnClient

READ = frozenset({Action.READ})
ORDERS = table("shop", "orders")
HERE = "10.0.0.1"


@dataclass
class Clock:
    """Set by hand."""

    ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1_000


async def at_once(work: Callable[[], None]) -> None:
    """For a thread."""
    work()


@dataclass
class Scene:
    txn: TxnClient
    clock: Clock
    guard: Guard
    rng: SystemRng

    async def administrated(self) -> None:
        """There is an administrator who can log in: before that nobody else may."""
        if not await roles.closed(self.txn, await roles.all_roles(self.txn)):
            role = roles.Role(
                "root", superuser=True, verifier=users.verifier(self.rng, "root root")
            )
            await self.txn.run(lambda t: roles.put(t, role))

    async def user(self, name: str, password: str | None = None, **options: bool) -> None:
        if password is not None:
            await self.administrated()
        await self.txn.run(lambda t: users.create(t, self.rng, name, password=password, **options))

    async def token(self, user: str, *limits: Grant, ttl_ms: int = 0, name: str = "t") -> str:
        await self.administrated()
        _, text = await self.txn.run(
            lambda t: users.create_token(
                t, self.rng, name, user, self.clock.ms, ttl_ms=ttl_ms, limits=limits or None
            )
        )
        return str(text)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A node of its own."""
    async with await kvorum.aopen(tmp_path) as db:
        txn: TxnClient = db._backend.txn  # type: ignore[attr-defined]
        clock = Clock()
        await db.create_namespace("shop")
        await db.create_table("shop", "orders")
        yield Scene(txn, clock, Guard(txn, clock, at_once), SystemRng())


async def test_the_loopback_is_trusted_until_somebody_can_log_in(scene: Scene) -> None:
    """The quick start needs no password; the first token ends that, for open sessions, too."""
    assert await scene.guard.by_loopback("127.0.0.1") == LOOPBACK
    scene.guard.allow(LOOPBACK, PUT, ORDERS)
    await scene.user("ann")  # she has nothing to log in with
    await scene.guard.look()
    scene.guard.allow(LOOPBACK, PUT, ORDERS)
    await scene.token("ann")
    await scene.guard.look()
    with pytest.raises(Unauthenticated, match="log in"):
        scene.guard.allow(LOOPBACK, PUT, ORDERS)
    with pytest.raises(Unauthenticated, match="KVORUM_TOKEN"):
        await scene.guard.by_loopback("127.0.0.1")


async def test_nobody_makes_a_login_cost_more_than_a_password(scene: Scene) -> None:
    """A megabyte of letters with accents took 5 s of the interpreter, before anybody was logged in;
    a verifier of a user's own making hours of a thread for each login.
    """
    await scene.user("ann", "correct horse")
    made = users.verifier(scene.rng, "correct horse")
    for name, verifier in (("dear", made.replace("$4096:", "$2000000000:")), ("odd", "SCRAM-$x")):
        role = roles.Role(name, login=True, verifier=verifier)
        await scene.txn.run(lambda t, role=role: roles.put(t, role))
    await scene.guard.look()
    began = time.process_time()
    said = "\u00e9" * 8_000_000
    for user, password in (("ann", said), (said, said), ("dear", "correct horse"), ("odd", said)):
        with pytest.raises(Unauthenticated):
            await scene.guard.by_password(user, password, HERE)
        scene.clock.ms += throttle.FORGET_MS
        await scene.guard.look()
    assert time.process_time() - began < 5.0
    assert await scene.guard.by_password("ann", "correct horse", HERE)


async def test_strangers_are_nobody_before_the_first_user(scene: Scene) -> None:
    """A new cluster that others reach is its machine's alone: whoever comes first from elsewhere
    does not own it, whatever he claims.
    """
    guard = Guard(scene.txn, scene.clock, at_once, own_addresses("10.0.0.1", insecure=False))
    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1"):
        assert await guard.by_loopback(address) == LOOPBACK
        assert guard.trusting(address)
    assert not guard.trusting()
    for address in ("10.0.0.2", "", "::ffff:10.0.0.9"):
        assert not guard.trusting(address)
        for asked in (
            guard.by_loopback(address),
            guard.by_token("kvt_x_y", address),
            guard.by_password("ann", "secret", address),
            guard.by_certificate("ann", address),
        ):
            with pytest.raises(Unauthenticated, match="kvorum init") as caught:
                await asked
            assert caught.value.code == "NOT_INITIALIZED"
    await scene.user("ann")
    await scene.token("ann")
    await guard.look()
    assert not guard.trusting("127.0.0.1")
    assert (await guard.by_certificate("ann", "10.0.0.2")).name == "ann"


async def test_the_first_admin_is_made_once(scene: Scene) -> None:
    """`kvorum init` prints a token that may do everything; a second call is refused."""
    _, text = await scene.txn.run(lambda t: users.first_admin(t, scene.rng, scene.clock.ms))
    admin = await scene.guard.by_token(text, HERE)
    assert admin.name == users.ADMIN
    scene.guard.allow(admin, frozenset({Action.ADMIN}), CLUSTER)
    with pytest.raises(Refused, match="has users already"):
        await scene.txn.run(lambda t: users.first_admin(t, scene.rng, scene.clock.ms))


async def test_a_token_expires_and_is_revoked(scene: Scene) -> None:
    """Both end it at the next look."""
    await scene.user("ann")
    text = await scene.token("ann", ttl_ms=5_000)
    assert (await scene.guard.by_token(text, HERE)).credential == "token t"
    scene.clock.ms += 5_000
    with pytest.raises(Unauthenticated):
        await scene.guard.by_token(text, HERE)
    await scene.txn.run(lambda t: users.revoke_token(t, "ann", "t"))
    other = await scene.token("ann")
    await scene.guard.look()
    assert (await scene.guard.by_token(other, HERE)).name == "ann"
    await scene.txn.run(lambda t: users.revoke_token(t, "ann", "t"))
    await scene.guard.look()
    with pytest.raises(Unauthenticated):
        await scene.guard.by_token(other, HERE)


async def test_a_dropped_user_is_nobody(scene: Scene) -> None:
    """Its tokens and grants go along; one who comes later under its name has none of them."""
    await scene.user("ann", "correct horse")
    await scene.txn.run(lambda t: users.give(t, "ann", Grant(READ, CLUSTER)))
    text = await scene.token("ann")
    ann = await scene.guard.by_token(text, HERE)
    scene.guard.allow(ann, READ, ORDERS)
    await scene.txn.run(lambda t: users.delete(t, "ann"))
    await scene.guard.look()
    with pytest.raises(Unauthenticated, match="no user"):
        scene.guard.allow(ann, READ, ORDERS)
    await scene.user("ann", "another horse")
    await scene.guard.look()
    with pytest.raises(Forbidden):
        scene.guard.allow(ann, READ, ORDERS)
    with pytest.raises(Unauthenticated):
        await scene.guard.by_token(text, HERE)
    with pytest.raises(Unauthenticated):
        await scene.guard.by_password("ann", "correct horse", HERE)


async def test_failures_look_alike(scene: Scene) -> None:
    """Nobody learns by a login whether a user exists, has a password, or may log in."""
    await scene.user("ann", "correct horse")
    await scene.user("bob")
    await scene.user("group", "correct horse", login=False)
    said = set()
    for number, name in enumerate(["ann", "bob", "group", "nobody", OWNER, "\0", ""]):
        with pytest.raises(Unauthenticated) as caught:
            await scene.guard.by_password(name, "wrong horse", f"10.0.1.{number}")
        said.add((caught.value.code, caught.value.message, str(caught.value.details)))
    for number, text in enumerate(["", "kvt_x", "kvt_" + "a" * 16 + "_" + "b" * 43]):
        with pytest.raises(Unauthenticated) as caught:
            await scene.guard.by_token(text, f"10.0.2.{number}")
        said.add((caught.value.code, caught.value.message, str(caught.value.details)))
    for number, name in enumerate(["nobody", "group", ""]):
        with pytest.raises(Unauthenticated) as caught:
            await scene.guard.by_certificate(name, f"10.0.3.{number}")
        said.add((caught.value.code, caught.value.message, str(caught.value.details)))
    assert len(said) == 1


async def test_guessing_is_slowed_down(scene: Scene) -> None:
    """Also with the right password in between: whoever guesses waits."""
    await scene.user("ann", "correct horse")
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await scene.guard.by_password("ann", "wrong horse", HERE)
    with pytest.raises(Busy) as caught:
        await scene.guard.by_password("ann", "correct horse", HERE)
    scene.clock.ms += caught.value.details["retry_after_ms"]
    assert (await scene.guard.by_password("ann", "correct horse", HERE)).name == "ann"


async def test_a_changed_password_ends_the_old_one(scene: Scene) -> None:
    """Also where the old one was remembered as right."""
    await scene.user("ann", "correct horse")
    for _ in range(2):
        await scene.guard.by_password("ann", "correct horse", HERE)
    await scene.txn.run(lambda t: users.change_password(t, scene.rng, "ann", "battery staple"))
    await scene.guard.look()
    with pytest.raises(Unauthenticated):
        await scene.guard.by_password("ann", "correct horse", HERE)
    assert (await scene.guard.by_password("ann", "battery staple", HERE)).name == "ann"


async def test_grants_come_and_go(scene: Scene) -> None:
    """On a namespace, a table, a procedure type; for a group and for everybody."""
    await scene.administrated()
    await scene.user("ann")
    await scene.user("sellers", login=False)
    ann = (await scene.guard.by_certificate("ann", HERE), READ, ORDERS)
    with pytest.raises(Forbidden) as caught:
        scene.guard.allow(*ann)
    assert caught.value.details == {
        "user": "ann",
        "missing": ["read"],
        "resource": "table shop.orders",
    }
    granted = Grant(READ, Resource(Kind.NAMESPACE, "shop"))
    for role in ("ann", "sellers", ""):
        await scene.txn.run(lambda t, role=role: users.give(t, role, granted))
        if role == "sellers":
            await scene.guard.look()
            with pytest.raises(Forbidden):
                scene.guard.allow(*ann)
            await scene.txn.run(lambda t: users.join(t, "ann", "sellers"))
        await scene.guard.look()
        scene.guard.allow(*ann)
        await scene.txn.run(lambda t, role=role: users.take(t, role, granted))
        await scene.guard.look()
        with pytest.raises(Forbidden):
            scene.guard.allow(*ann)


async def test_what_is_known_is_used_for_a_minute(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the meta partition cannot be asked a node serves on, and then refuses."""
    await scene.user("ann", superuser=True)
    ann = await scene.guard.by_certificate("ann", HERE)

    async def unreachable(reader: object) -> int:
        raise Unavailable("no leader")

    monkeypatch.setattr(guards.roles, "rights_version", unreachable)
    scene.clock.ms += KNOWN_MS_MAX
    with pytest.raises(KvorumError):
        await scene.guard.look()
    scene.guard.allow(ann, READ, ORDERS)
    scene.clock.ms += 1
    with pytest.raises(Unavailable):
        scene.guard.allow(ann, READ, ORDERS)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["", "node", "public", "none", "pg_x", "a b", "1a", "a" * 64])
async def test_names_that_no_user_may_have(scene: Scene, name: str) -> None:
    """Names that SQL or certificates give another meaning."""
    with pytest.raises(InvalidArgument):
        await scene.user(name)


async def test_what_is_wrong_changes_nothing(scene: Scene) -> None:
    """A user twice, an unknown group, a short password, a grant of nothing: clear refusals."""
    await scene.user("ann")
    with pytest.raises(AlreadyExists):
        await scene.user("ann")
    with pytest.raises(InvalidArgument, match="8 to"):
        await scene.user("bob", "short")
    with pytest.raises(NotFound, match="there is no user 'bob'"):
        await scene.token("bob")
    with pytest.raises(NotFound):
        await scene.txn.run(lambda t: users.join(t, "ann", "group"))
    for wrong in (
        Grant(frozenset(), CLUSTER),
        Grant(frozenset({Action.NODE}), CLUSTER),
        Grant(READ, Resource(Kind.TABLE, "orders")),
        Grant(READ, Resource(Kind.POOL)),
    ):
        with pytest.raises(InvalidArgument):
            await scene.txn.run(lambda t, wrong=wrong: users.give(t, "ann", wrong))
    assert [one.name for one in await users.everybody(scene.txn)] == [OWNER, "ann", "root"]


async def test_the_first_who_can_log_in_is_an_administrator(scene: Scene) -> None:
    """A first user with a password and no rights locked everybody out, its maker too."""
    with pytest.raises(Refused, match="administrator"):
        await scene.txn.run(lambda t: users.create(t, scene.rng, "ann", password="long enough"))
    await scene.user("ann")
    for change in (
        lambda t: users.change_password(t, scene.rng, "ann", "long enough"),
        lambda t: users.create_token(t, scene.rng, "t", "ann", scene.clock.ms),
    ):
        with pytest.raises(Refused, match="administrator"):
            await scene.txn.run(change)
    await scene.txn.run(lambda t: users.first_admin(t, scene.rng, scene.clock.ms))
    await scene.txn.run(lambda t: users.change_password(t, scene.rng, "ann", "long enough"))
    await scene.guard.look()
    assert (await scene.guard.by_password("ann", "long enough", HERE)).name == "ann"


async def test_many_guesses_at_once_tell_no_more_than_one_by_one(scene: Scene) -> None:
    """All that begin before the first has failed would be answered: as fast as a machine counts."""
    go = asyncio.Event()

    async def together(work: Callable[[], None]) -> None:
        await go.wait()
        work()

    guard = Guard(scene.txn, scene.clock, together)
    await scene.user("ann", "correct horse")
    await guard.look()
    words = ["wrong horse"] * 20 + ["correct horse"]
    asked = [asyncio.ensure_future(guard.by_password("ann", word, HERE)) for word in words]
    await asyncio.sleep(0)
    go.set()
    said = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in said] == [Unauthenticated] * 3 + [Busy] * 18


async def test_who_was_just_made_is_known(scene: Scene) -> None:
    """A user, or a new password, was unknown to other nodes for a second: the first login failed,
    and counted as a guess.
    """
    guard = scene.guard
    await scene.user("eve", "long enough")
    await guard.look()
    await scene.user("ann", "correct horse")
    assert (await guard.by_password("ann", "correct horse", HERE)).name == "ann"
    await scene.txn.run(lambda t: users.change_password(t, scene.rng, "ann", "battery staple"))
    assert (await guard.by_password("ann", "battery staple", HERE)).name == "ann"
    with pytest.raises(Unauthenticated):
        await guard.by_password("ann", "correct horse", HERE)
    await scene.user("bob")
    assert (await guard.by_certificate("bob", HERE)).name == "bob"
    token = await scene.token("bob")
    assert (await guard.by_token(token, HERE)).name == "bob"


async def test_the_first_user_is_known_to_strangers(scene: Scene) -> None:
    """They were told that the cluster has no users yet, for a second."""
    guard = Guard(scene.txn, scene.clock, at_once, own_addresses("10.0.0.1", insecure=False))
    await guard.look()
    await scene.user("ann", "correct horse")
    assert (await guard.by_password("ann", "correct horse", "10.0.0.9")).name == "ann"


async def test_looks_give_no_guesses(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one waits to hear whether a name is new, others would be free to guess on."""
    await scene.user("ann", "correct horse")
    guard, go = scene.guard, asyncio.Event()
    await guard.look()
    version = roles.rights_version

    async def slowly(t: Reader) -> int:
        await go.wait()
        return await version(t)

    monkeypatch.setattr(roles, "rights_version", slowly)
    words = [("ann", "wrong horse"), ("ghost", "wrong horse")] * 10
    asked = [asyncio.ensure_future(guard.by_password(*word, HERE)) for word in words]
    await asyncio.sleep(0)
    assert sum(one.done() for one in asked) == 17  # they were told to wait
    go.set()
    said = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in said] == [Unauthenticated] * 3 + [Busy] * 17


async def test_who_has_a_certificate_is_kept_out_by_no_failures_of_others(scene: Scene) -> None:
    """It cannot be guessed; others behind the same address would lock its owner out."""
    await scene.user("ann", "correct horse")
    await scene.guard.look()
    for _ in range(throttle.FREE[throttle.ADDRESS]):
        with pytest.raises(Unauthenticated):
            await scene.guard.by_password("ann", "wrong horse", HERE)
    assert (await scene.guard.by_certificate("ann", HERE)).name == "ann"
    with pytest.raises(Busy):
        await scene.guard.by_certificate("ghost", HERE)


async def test_the_last_to_log_in_with_stays(scene: Scene) -> None:
    """With the first administrator's token gone, the loopback was trusted as the owner again."""
    await scene.txn.run(lambda t: users.first_admin(t, scene.rng, scene.clock.ms))
    for change in (
        lambda t: users.revoke_token(t, users.ADMIN, "init"),
        lambda t: users.delete(t, users.ADMIN),
    ):
        with pytest.raises(Refused, match="nobody could log in"):
            await scene.txn.run(change)
    await scene.user("ann", "long enough")
    await scene.txn.run(lambda t: users.revoke_token(t, users.ADMIN, "init"))
    for change in (
        lambda t: users.change_password(t, scene.rng, "ann", None),
        lambda t: users.delete(t, "ann"),
    ):
        with pytest.raises(Refused, match="nobody could log in"):
            await scene.txn.run(change)


async def test_a_follower_that_breaks_ends_no_look(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """What goes on under a revoked credential would go on for good, for a fault elsewhere."""
    looked: list[str] = []

    def breaks() -> None:
        looked.append("breaks")
        raise ZeroDivisionError

    async def twice(_seconds: float) -> None:
        if len(looked) == 6:
            raise TimeoutError

    scene.guard.followers += [breaks, lambda: looked.append("follows"), breaks]
    with pytest.raises(TimeoutError):
        await scene.guard.run(twice)
    assert looked == ["breaks", "follows", "breaks"] * 2
    assert caplog.text.count("could not be reviewed") == 4
