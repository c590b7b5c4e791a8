"""Tokens of an issuer: which are believed, and whose keys are asked."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from kv.base.errors import Unauthenticated, Unavailable
from kvorum.security.oidc import AGAIN_S, LEEWAY_S, TOKEN_BYTES_MAX, Issuer

ISSUER, AUDIENCE = "https://login.example", "kvorum"
RSA = RSAKey.generate_key(2048, {"kid": "r1", "use": "sig"})
EC = ECKey.generate_key("P-256", {"kid": "e1", "use": "sig"})
OTHER = ECKey.generate_key("P-256", {"kid": "e1"})
NEXT = ECKey.generate_key("P-256", {"kid": "e2"})


async def at_once(work: Callable[[], None]) -> None:
    work()


@dataclass
class Place:
    """Where the keys are, and a clock that is set by hand."""

    now: float = 1_000_000.0
    keys: list[Any] = field(default_factory=lambda: [RSA, EC])
    asked: int = 0
    down: bool = False

    def fetch(self) -> bytes:
        self.asked += 1
        if self.down:
            raise OSError("no route")
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()

    def issuer(self, claim: str = "sub") -> Issuer:
        return Issuer(
            ISSUER, AUDIENCE, claim, self.fetch, now_s=lambda: self.now, in_thread=at_once
        )


def signed(
    key: Any = EC, alg: str = "ES256", head: dict[str, Any] | None = None, **more: Any
) -> str:
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": 1_000_600, **more}
    claims = {name: value for name, value in said.items() if value is not None}
    return jwt.encode({"alg": alg, "kid": key.kid, **(head or {})}, claims, key, algorithms=[alg])


async def test_both_algorithms_and_lists_of_audiences_are_taken() -> None:
    """An issuer's users could not log in."""
    issuer = Place().issuer()
    assert await issuer.subject(signed()) == "ann"
    assert await issuer.subject(signed(RSA, "RS256", aud=["others", AUDIENCE])) == "ann"


def part(said: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()


CLAIMS = part({"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": 1_000_600})


def unsigned() -> str:
    return f"{part({'alg': 'none', 'kid': 'e1'})}.{CLAIMS}."


def hmac_by_public_key() -> str:
    text = f"{part({'alg': 'HS256', 'kid': 'e1'})}.{CLAIMS}"
    made = hmac.digest(EC.as_pem(private=False), text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


WRONG = {
    "another issuer": lambda: signed(iss="https://evil.example"),
    "an issuer with a slash more": lambda: signed(iss=ISSUER + "/"),
    "another audience": lambda: signed(aud="others"),
    "no audience": lambda: signed(aud=None),
    "expired": lambda: signed(exp=1_000_000 - LEEWAY_S),
    "no end": lambda: signed(exp=None),
    "an end that never comes": lambda: signed(exp=float("inf")),
    "an end that is no number": lambda: signed(exp=float("nan")),
    "an end that is too large": lambda: signed(exp=10**400),
    "an end that is text": lambda: signed(exp="9999999999"),
    "not yet": lambda: signed(nbf=1_000_001 + LEEWAY_S),
    "nobody": lambda: signed(sub=None),
    "an empty name": lambda: signed(sub=""),
    "a name that is a list": lambda: signed(sub=["ann"]),
    "another key of the same id": lambda: signed(OTHER),
    "an unknown key": lambda: signed(NEXT),
    "another algorithm": lambda: signed(RSA, "RS512"),
    "a key with the token": lambda: signed(OTHER, head={"jwk": OTHER.as_dict(private=False)}),
    "an address of keys": lambda: signed(NEXT, head={"jku": "https://evil.example/keys"}),
    "unsigned": unsigned,
    "signed with the public key": hmac_by_public_key,
    "cut": lambda: signed()[:-4],
    "no JSON": lambda: "e30.e30.e30",
    "no base64": lambda: "\N{SNOWMAN}.a.b",
    "dots": lambda: "..",
    "long": lambda: signed(more="x" * TOKEN_BYTES_MAX),
}


@pytest.mark.parametrize("made", WRONG.values(), ids=WRONG.keys())
async def test_whatever_is_wrong_is_refused_alike(made: Callable[[], str]) -> None:
    """Whoever can make one of these is whoever he likes."""
    with pytest.raises(Unauthenticated, match="wrong or has expired"):
        await Place().issuer().subject(made())


async def test_clocks_may_differ_a_little() -> None:
    """A laptop's clock would lock its user out."""
    issuer = Place().issuer()
    assert await issuer.subject(signed(exp=1_000_001 - LEEWAY_S)) == "ann"
    assert await issuer.subject(signed(nbf=1_000_000 + LEEWAY_S)) == "ann"


async def test_an_address_counts_when_the_issuer_has_verified_it() -> None:
    """Anybody could sign up with somebody's address."""
    issuer = Place().issuer("email")
    assert await issuer.subject(signed(email="a@b.c", email_verified=True)) == "a@b.c"
    for verified in (None, False, "true"):
        with pytest.raises(Unauthenticated):
            await issuer.subject(signed(email="a@b.c", email_verified=verified))


async def test_a_new_key_is_found_and_an_old_one_is_forgotten() -> None:
    """After a rotation nobody could log in, or whoever has the old key still could."""
    place = Place()
    issuer = place.issuer()
    old = signed()
    assert await issuer.subject(old) == "ann"
    place.keys = [NEXT]
    place.now += AGAIN_S
    assert await issuer.subject(signed(NEXT)) == "ann"
    with pytest.raises(Unauthenticated):
        await issuer.subject(old)


@pytest.mark.parametrize("other", [{"kty": "EC", "crv": "P-999"}, {"kty": "RSA"}, {"kty": 1}, 7])
async def test_a_key_that_is_not_known_here_hides_no_other(other: Any) -> None:
    """An issuer's new kind of key locked all of its users out."""
    keys = json.dumps({"keys": [other, EC.as_dict(private=False)]}).encode()
    place = Place()
    issuer = Issuer(
        ISSUER, AUDIENCE, "sub", lambda: keys, now_s=lambda: place.now, in_thread=at_once
    )
    assert await issuer.subject(signed()) == "ann"


async def test_tokens_do_not_make_the_node_fetch() -> None:
    """Anybody could have the node ask the issuer as often as he likes."""
    place = Place()
    issuer = place.issuer()
    for n in range(50):
        with pytest.raises(Unauthenticated):
            await issuer.subject(signed(NEXT, sub=f"u{n}"))
    await asyncio.gather(*(issuer.subject(signed(sub=f"v{n}")) for n in range(50)))
    assert place.asked == 1


async def test_who_makes_the_node_fetch_holds_nobody_up() -> None:
    """Whoever sends a token with the id of another key has everybody wait for a slow issuer."""
    place = Place()
    issuer = place.issuer()
    assert await issuer.subject(signed()) == "ann"
    reached, go = asyncio.Event(), asyncio.Event()

    async def slowly(work: Callable[[], None]) -> None:
        reached.set()
        await go.wait()
        work()

    issuer._in_thread = slowly
    place.now += AGAIN_S
    stranger = asyncio.ensure_future(issuer.subject(signed(NEXT)))
    await reached.wait()
    async with asyncio.timeout(10):
        assert await issuer.subject(signed(sub="bob")) == "bob"
    go.set()
    with pytest.raises(Unauthenticated):
        await stranger


async def test_without_keys_nobody_is_believed_and_the_last_ones_are_kept() -> None:
    """An issuer that is down for a minute would end everybody's work, or open the door."""
    place = Place(down=True)
    issuer = place.issuer()
    with pytest.raises(Unavailable):
        await issuer.subject(signed())
    place.down, place.now = False, place.now + AGAIN_S
    assert await issuer.subject(signed()) == "ann"
    place.down, place.now = True, place.now + AGAIN_S
    with pytest.raises(Unauthenticated):
        await issuer.subject(signed(NEXT))
    assert await issuer.subject(signed(sub="bob")) == "bob"


async def test_what_was_verified_ends_with_its_time() -> None:
    """It is remembered, so that a request costs no signature: not longer than it is good."""
    place = Place()
    issuer = place.issuer()
    token = signed()
    assert await issuer.subject(token) == await issuer.subject(token) == "ann"
    place.now = 1_000_600 + LEEWAY_S
    with pytest.raises(Unauthenticated):
        await issuer.subject(token)


@pytest.mark.parametrize("read_again", [False, True])
async def test_what_goes_on_ends_with_the_tokens_time(read_again: bool) -> None:
    """When keys had been read again meanwhile, as they are each hour, a stream went on for ever."""
    place = Place()
    issuer = place.issuer()
    token = signed()
    assert await issuer.subject(token) == "ann"
    if read_again:
        place.keys.append(NEXT)
        place.now += AGAIN_S
        assert await issuer.subject(signed(NEXT)) == "ann"
    assert issuer.lasts(token)
    place.now = 1_000_600 + LEEWAY_S
    assert not issuer.lasts(token)
