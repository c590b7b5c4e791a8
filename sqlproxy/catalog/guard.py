"""Who somebody is and what he may, in one process: credentials become identities, and identities
are asked about. Everything is answered from memory; `run` keeps that up to date.

    issuer's     a JWT of the configured issuer                      (kvorum/security/oidc.py)
    token        its id is looked up, its secret compared               (kvt_…)
    password     the role's SCRAM verifier, computed in a thread        (RFC 5802)
    certificate  the common name that TLS has verified
    loopback     nobody in particular, while no user can log in

All failures look alike to whoever fails, and slow down the next ones (`kv.base.throttle`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kv.base import system
from kv.base.accounts import Use
from kv.base.credentials import Credential
from kv.base.errors import Busy, KvorumError, Unauthenticated, Unavailable
from kv.base.fair_turns import FairTurns
from kv.base.keys import table_prefix
from kv.base.ports import Clock
from kv.base.rights import LOOPBACK, OWNER, Action, Book, Identity, Resource, allow
from kv.base.tenants import Tenants
from kv.base.throttle import FAILED_LOGINS, Throttle
from kv.base.tls import NODE_NAME
from sqlproxy.catalog import read_rights, roles, tokens
from sqlproxy.catalog.catalog import Reader, scan_all
from sqlproxy.catalog.roles import Role
from sqlproxy.catalog.scram import PASSWORD_CHARS_MAX, make_verifier, read_verifier
from sqlproxy.catalog.tokens import Token

log = logging.getLogger(__name__)

InThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a call that holds no lock of Python's for long beside the loop."""
NOT_INITIALIZED: Final = "NOT_INITIALIZED"  # nobody can log in yet, and this one is elsewhere
LOOK_MS: Final = 1_000  # so old may be what is known …
KNOWN_MS_MAX: Final = 60_000  # … and so old, while nobody can be asked
_PASSWORDS_KEPT: Final = 1_000
_DUMMY: Final = make_verifier("", b"\0" * 16)


class Issuer(Protocol):
    """kvorum.security.oidc: whose tokens log users in."""

    async def subject(self, token: str, /) -> str:
        """The user's name. Raises Unauthenticated, Unavailable."""
        ...

    def lasts(self, token: str, /) -> bool:
        """Whether one that was right has not expired since."""
        ...


class Guard:
    """Of one process."""

    def __init__(
        self,
        reader: Reader,
        clock: Clock,
        in_thread: InThread,
        trusts: Callable[[str], bool] | None = None,
    ) -> None:
        """`trusts`: which addresses are this machine's, where ports are reached from others: nobody
        else is the owner before the first user. None: everybody is.
        """
        self._trusts = trusts
        self.issuer: Issuer | None = None
        self.book: Book | None = None  # replaced, never changed
        self.followers: list[Callable[[], None]] = []
        """Each looks, after every look of `run`, whether what goes on may go on."""
        self._reader, self._clock, self._in_thread = reader, clock, in_thread
        self._stamp: tuple[int, tuple[tuple[bytes, bytes], ...]] | None = None
        self._looked_ms = 0
        self._asked = self._applied = 0  # looks: begun, and the last one that counts
        self._roles: dict[str, Role] = {}
        self._tokens: dict[str, Token] = {}
        self._expires_ms = 0  # when the next token does; 0: none does
        self._passwords: dict[tuple[str, str], bytes] = {}  # (name, verifier) → digest of the last
        self._throttle = Throttle()
        self.tenants = Tenants(self._now_ms, FairTurns(clock.monotonic))
        """What each may use of this process. Who follows the cluster's settings sets it."""

    # -- what is known

    async def run(self, pause: Callable[[float], Awaitable[object]]) -> None:
        """Keep what is known new enough, until cancelled."""
        while True:
            with contextlib.suppress(KvorumError):  # the next look says it again
                await self.look()
            known = self.book
            if known is not None and known.closed and self._age_ms() > KNOWN_MS_MAX:
                self.book = self._stamp = None
            for follow in self.followers:
                try:
                    follow()
                except Exception:  # a boundary: one that breaks ends neither the others nor this
                    log.exception("what goes on could not be reviewed")
            await pause(LOOK_MS / 1_000)

    async def look(self) -> None:
        """From now on what holds now is known; after a change of one's own, say. Raises
        KvorumError.
        """
        asked_ms = self._now_ms()
        self._asked = mine = self._asked + 1
        stamp = (
            await roles.rights_version(self._reader),
            tuple(await scan_all(self._reader, table_prefix(system.SCHEMAS))),
        )
        if stamp != self._stamp or 0 < self._expires_ms <= self._clock.now_ms():
            known = {role.name: role for role in await roles.all_roles(self._reader)}
            held = {token.id: token for token in await tokens.all_tokens(self._reader)}
            found = await read_rights.read(self._reader)
            if mine < self._applied:
                return  # a later look has ended before: this may be from before it
            self._roles, self._tokens, self.book, self._stamp = known, held, found, stamp
            self._passwords.clear()
            now_ms = self._clock.now_ms()
            expiring = [one.expires_ms for one in held.values() if one.expires_ms > now_ms]
            self._expires_ms = min(expiring, default=0)
        self._applied = max(self._applied, mine)
        self._looked_ms = max(self._looked_ms, asked_ms)

    async def _known(self) -> Book:
        if self.book is None:
            await self.look()
        return self._new_enough()

    def _new_enough(self) -> Book:
        if self.book is None or self._age_ms() > KNOWN_MS_MAX:
            raise Unavailable("users and rights cannot be read now: ask again in a moment")
        return self.book

    def trusting(self, address: str | None = None) -> bool:
        """Whether everybody here, or whoever has this address, is the owner, because nobody can log
        in: for a hot path.
        """
        book = self.book
        if book is None or book.closed:
            return False
        if self._clock.monotonic() * 1_000 - self._looked_ms > KNOWN_MS_MAX:
            return False
        return self._trusts is None or (address is not None and self._trusts(address))

    def _age_ms(self) -> int:
        return self._now_ms() - self._looked_ms

    async def _look_again(self) -> None:
        """What was just made, at whatever node, is known from now on; if nothing was, that costs
        one read. Raises KvorumError.
        """
        if self._stamp is None or await roles.rights_version(self._reader) != self._stamp[0]:
            await self.look()

    def use(self, who: Identity) -> Use:
        """Of a request, or a connection, of this identity, which is no node's. Users have limits,
        operators and who comes before the first user have none.
        """
        role = self._roles.get(who.name)
        asked = role is not None and not role.superuser
        return Use(self.tenants.user(who.name), asked=asked)

    # -- who it is

    async def identify(self, credential: Credential, certificate: str, address: str) -> Identity:
        """Of a connection: what it said first, then the name that TLS has verified, then that it
        comes before the first user. Raises Unauthenticated, Busy, Unavailable.
        """
        if credential.token:
            return await self.by_token(credential.token, address)
        if credential.user:
            return await self.by_password(credential.user, credential.password, address)
        if certificate:
            return await self.by_certificate(certificate, address)
        return await self.by_loopback(address)

    def stands(self, identity: Identity) -> bool:
        """Whether whoever was let in so would be now: a session goes on until its token is revoked
        or expires, its user is dropped or may not log in any more, or the first user comes.
        """
        if identity.credential == LOOPBACK.credential:
            return self.book is not None and not self.book.closed
        if identity.token:
            token = self._tokens.get(identity.token)
            if token is None or 0 < token.expires_ms <= self._clock.now_ms():
                return False
        return self.may_log_in(identity.name)

    def lasts(self, token: str) -> bool:
        """Of one that was right: whether it is, if it is an issuer's, within its time."""
        return self.issuer is None or token.count(".") != 2 or self.issuer.lasts(token)

    async def by_token(self, text: str, address: str) -> Identity:
        """Raises Unauthenticated, Busy."""
        await self._initialized(address)
        if self.issuer is not None and text.count(".") == 2:
            return await self._of_issuer(self.issuer, text, address)
        id_, secret = tokens.parse(text) or ("", "")
        identity = self._of_token(id_, secret)
        if identity is None:  # it cannot be guessed: failures do not keep those out who have one
            name = f"token {id_}"
            self._not_too_often(address, name)
            if id_ and id_ not in self._tokens:
                await self._look_again()
                identity = self._of_token(id_, secret)
            if identity is None:
                raise self._failed(address, name)
        return identity

    async def by_issuer(self, prove: Callable[[], Awaitable[str]], address: str) -> Identity:
        """Whom the issuer names, which `prove` asks. Whoever has proved to be somebody there is
        told, if that is nobody here. Raises Unauthenticated, Busy, and what `prove` raises.
        """
        await self._initialized(address)
        name = f"issuer, from {address}"
        self._not_too_often(address, name)  # the issuer, too, is asked no more often
        try:
            user = await prove()
        except Unauthenticated:
            self._throttle.failed(address, name, self._now_ms())
            raise
        if not self.may_log_in(user):
            await self._look_again()
        if not self.may_log_in(user) or user == OWNER:
            self._throttle.failed(address, name, self._now_ms())
            raise Unauthenticated(
                f"the issuer knows you as {user[:200]!r}, and here is no user of that name who may "
                "log in: an administrator can make one (kvorum user create)"
            )
        return Identity(user, "oidc")

    async def _of_issuer(self, issuer: Issuer, text: str, address: str) -> Identity:
        """An issuer's users are those of the same name here: made before, with their rights."""
        try:
            user = await issuer.subject(text)
        except Unauthenticated:
            user = ""
        if not user or user == OWNER or not await self._is_made(user):
            self._not_too_often(address, "issuer's token")
            raise self._failed(address, "issuer's token")
        return Identity(user, "oidc")

    def _of_token(self, id_: str, secret: str) -> Identity | None:
        token = self._tokens.get(id_)
        found = token.identity(secret, self._clock.now_ms()) if token is not None else None
        return found if found is not None and self.may_log_in(found.name) else None

    async def by_password(self, user: str, password: str, address: str) -> Identity:
        """Raises Unauthenticated, Busy."""
        await self._initialized(address)
        self._not_too_often(address, user)
        text = self.mark(user)
        right = await self._is_password(user, text, password)
        self._not_too_often(address, user)  # many at once are no way to learn more than one by one
        if not right:
            failed = self._failed(address, user)  # it counts before anything is waited for
            await self._look_again()
            now = self.mark(user)
            if now == text or not await self._is_password(user, now, password):
                raise failed
        self._throttle.succeeded(address, user)
        return Identity(user, "password")

    def mark(self, user: str) -> str | None:
        """Another one after each change of the user's password; None: it logs in with none."""
        role = self._roles.get(user)
        return role.verifier if role is not None and role.login else None

    async def by_certificate(self, name: str, address: str) -> Identity:
        """`name`: what TLS has verified; nobody is asked for one before the first user. Raises
        Unauthenticated, Busy.
        """
        known = await self._initialized(address)
        if not known.closed:
            await self._look_again()  # the first user may just have been made
        if not self._new_enough().closed:
            return LOOPBACK
        if name == NODE_NAME or not name or not await self._is_made(name):
            self._not_too_often(address, name)
            raise self._failed(address, name)
        return Identity(name, "certificate")

    async def _initialized(self, address: str) -> Book:
        """What is known. Raises Unauthenticated (NOT_INITIALIZED) for who is elsewhere, as long as
        nobody can log in.
        """
        known = await self._known()
        if known.closed or self._trusts is None or self._trusts(address):
            return known
        await self._look_again()
        if (known := self._new_enough()).closed:
            return known
        raise Unauthenticated(
            "this cluster has no users yet: run `kvorum init` on the machine of a node, which "
            "prints the first one's token",
            code=NOT_INITIALIZED,
        )

    async def by_loopback(self, address: str) -> Identity:
        """Whoever is on this machine. Raises Unauthenticated once somebody can log in."""
        if (await self._initialized(address)).closed:
            raise Unauthenticated(
                "log in: with a token (KVORUM_TOKEN, Authorization: Bearer), a user's name and "
                "password, or a client certificate"
            )
        return LOOPBACK

    async def _is_made(self, name: str) -> bool:
        """Whether there is this user, who has proved elsewhere who he is."""
        if not self.may_log_in(name):
            await self._look_again()
        return self.may_log_in(name)

    def may_log_in(self, name: str) -> bool:
        """As far as is known."""
        role = self._roles.get(name)
        return role.login if role is not None else name == OWNER

    async def _is_password(self, user: str, text: str | None, password: str) -> bool:
        """A user without one costs as much time as a wrong password; so does what is none."""
        if max(len(user), len(password)) > PASSWORD_CHARS_MAX:
            user, text, password = "", None, ""
        key = (user, text or "")
        digest = hashlib.sha256(f"{user}\0{password}".encode()).digest()
        if text is not None and hmac.compare_digest(self._passwords.get(key, b""), digest):
            return True
        wanted = _DUMMY
        if text is not None:
            try:
                wanted = read_verifier(text)
            except ValueError:  # the role's password is one that nobody has
                text = None
        found: list[bytes] = []
        await self._in_thread(
            lambda: found.append(make_verifier(password, wanted.salt, wanted.iterations).stored_key)
        )
        right = hmac.compare_digest(found[0], wanted.stored_key) and text is not None
        if right:
            if len(self._passwords) >= _PASSWORDS_KEPT:
                self._passwords.clear()
            self._passwords[key] = digest
        return right

    def _not_too_often(self, address: str, name: str) -> None:
        wait_ms = self._throttle.wait_ms(address, name, self._now_ms())
        if wait_ms:
            raise Busy(
                f"too many failed logins: try again in {wait_ms} ms",
                details={"what": FAILED_LOGINS, "retry_after_ms": wait_ms},
            )

    def _failed(self, address: str, name: str) -> Unauthenticated:
        self._throttle.failed(address, name, self._now_ms())
        return Unauthenticated("who you are could not be verified: check name, password or token")

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1_000)

    # -- what he may

    def allow(self, identity: Identity, actions: frozenset[Action], resource: Resource) -> None:
        """Raises Forbidden, Unauthenticated, Unavailable."""
        allow(identity, actions, resource, self._new_enough())
