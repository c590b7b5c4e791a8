"""Who may talk to whom: every reason to refuse, and every attack on the proofs that we know of."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft import handshake, wire
from raft.handshake import Handshake, Hello, Identity, Refusal, read_refusal
from raft.wire import HELLO, PROOF, REFUSED, FrameReader, frame
from tests.raft.wires import Net, Wire, feed, incarnation_of

SECRET = b"secret"


def who(node: int, **other: Any) -> Identity:
    fields: dict[str, Any] = {"cluster": "c", "node": node, "incarnation": incarnation_of(node)}
    return Identity(**{**fields, **other})


def dialer(me: Identity, target: int, secret: bytes = SECRET, nonce: int = 1) -> Handshake:
    return Handshake(me, secret, nonce=bytes([nonce]) * 32, dialer=True, target=target)


def listener(me: Identity, secret: bytes = SECRET, nonce: int = 2) -> Handshake:
    return Handshake(me, secret, nonce=bytes([nonce]) * 32, dialer=False)


def cut(data: bytes) -> tuple[int, bytes]:
    """The one frame in these bytes."""
    reader = FrameReader(2000)
    reader.room()[: len(data)] = data
    ((kind, body),) = ((kind, bytes(body)) for kind, body in reader.received(len(data)))
    return kind, body


def shake(one: Handshake, other: Handshake) -> None:
    """Carry a dialer's and a listener's frames to each other. Raises what either raises."""
    answer = other.receive(*cut(one.hello()))
    proof = one.receive(*cut(answer))
    assert one.peer is None, "the listener has not proved anything yet"
    assert other.receive(*cut(proof)) == b""
    assert one.receive(*cut(other.confirm())) == b""


def test_two_nodes_of_a_cluster_agree() -> None:
    """Without this nobody talks to anybody."""
    one, other = dialer(who(1), 2), listener(who(2))
    shake(one, other)
    assert (one.peer, other.peer) == (who(2), who(1))


@pytest.mark.parametrize(
    ("one", "other", "code", "text"),
    [
        (dialer(who(1, cluster="d"), 2), listener(who(2)), "CLUSTER", "'c'.*'d'"),
        (dialer(who(1), 2, b"Secret"), listener(who(2)), "SECRET", "does not know"),
        (dialer(who(1), 3), listener(who(2)), "NODE", "node 3 was called, but node 2"),
        (dialer(who(2), 2), listener(who(2)), "SELF", "called itself"),
        (dialer(who(2, incarnation=b"x" * 16), 2), listener(who(2)), "SELF", "two nodes"),
    ],
)
def test_strangers_are_refused_with_the_reason(
    one: Handshake, other: Handshake, code: str, text: str
) -> None:
    """An operator must see from either log what is wrong with the address, the id or the secret."""
    with pytest.raises(Refusal, match=text) as caught:
        shake(one, other)
    assert caught.value.code == code
    told = read_refusal(cut(caught.value.frame())[1])
    assert (told.code, told.text, told.by_peer) == (code, caught.value.text, True)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "PROTOCOL"),
        (b"GET / HTTP/1.1\r\n\r\n", "PROTOCOL"),
        (msgpack.packb(["kvorum", 1, {}]), "PROTOCOL"),
        (msgpack.packb(["kvorum-raft"]), "PROTOCOL"),
        (msgpack.packb(["kvorum-raft", 2]), "VERSION"),
        (msgpack.packb(["kvorum-raft", True, "c", 1, b"i" * 16, b"n" * 32, 2]), "VERSION"),
        (msgpack.packb(["kvorum-raft", "1"]), "VERSION"),
        (msgpack.packb(["kvorum-raft", 1]), "PROTOCOL"),
        (msgpack.packb(["kvorum-raft", 1, "c", 1, b"i" * 16, b"n" * 31, 2]), "PROTOCOL"),
        (msgpack.packb(["kvorum-raft", 1, "c", 1, b"i" * 7, b"n" * 32, 2]), "PROTOCOL"),
        (msgpack.packb(["kvorum-raft", 1, "c", 0, b"i" * 16, b"n" * 32, 2]), "PROTOCOL"),
        (msgpack.packb(["kvorum-raft", 1, "c", True, b"i" * 16, b"n" * 32, 2]), "PROTOCOL"),
        (msgpack.packb(["kvorum-raft", 1, "c" * 129, 1, b"i" * 16, b"n" * 32, 2]), "PROTOCOL"),
        (msgpack.packb(["kvorum-raft", 1, "c", 1, b"i" * 16, b"n" * 32, 2, 3]), "PROTOCOL"),
    ],
)
def test_other_hellos_are_refused(body: bytes, code: str) -> None:
    """A port that is called by a browser, an older or a later node must say so and go on."""
    with pytest.raises(Refusal) as caught:
        listener(who(2)).receive(HELLO, body)
    assert caught.value.code == code


@given(st.integers(0, 255), st.binary(max_size=300))
def test_garbage_is_refused(kind: int, body: bytes) -> None:
    """No bytes may raise anything but a refusal, on either side, before or after the hello."""
    fresh, greeted = listener(who(2)), listener(who(2))
    greeted.receive(*cut(dialer(who(1), 2).hello()))
    called = dialer(who(1), 2)
    called.hello()
    for side in (fresh, greeted, called):
        with pytest.raises(Refusal):
            side.receive(kind, body)
        assert side.peer is None


def test_frames_out_of_turn_are_refused() -> None:
    """A second hello could swap the text under a proof; a proof without one covers nothing."""
    hello = cut(dialer(who(1), 2).hello())
    twice = listener(who(2))
    twice.receive(*hello)
    with pytest.raises(Refusal):
        twice.receive(*hello)
    with pytest.raises(Refusal):
        listener(who(2)).receive(PROOF, bytes(32))


def test_unreadable_refusal_is_still_one() -> None:
    """A refusal that raised something else would be retried at once, for ever."""
    for body in (b"", b"\xc1", msgpack.packb([1, 2]), msgpack.packb(["CODE"]), bytes(900)):
        assert read_refusal(body).by_peer


def test_reasons_fit_a_frame_and_a_line_of_the_log() -> None:
    """A reason too long for the peer's reader would come through as a broken stream; one with line
    breaks would forge lines of our log.
    """
    told = Refusal("CODE", "\U0001f600" * 1000).frame()
    assert len(cut(told)[1]) <= handshake.BODY_BYTES_MAX
    assert read_refusal(cut(told)[1]).text.startswith("\\U0001f600")
    forged = read_refusal(msgpack.packb(["A\n", "x\r\nnode 1: all is well\x1b[2J"]))
    assert (forged.code, forged.text) == ("A?", "x??node 1: all is well?[2J")


# ------------------------------------------------------------------ attacks on the proofs


def test_reflected_proof_is_refused() -> None:
    """Who knows no secret sends our own frames back to us: the oldest attack on such proofs."""
    victim = dialer(who(1), 2)
    hello = victim.hello()
    with pytest.raises(Refusal) as caught:  # our own hello back
        victim.receive(*cut(hello))
    assert caught.value.code == "SELF"

    victim = dialer(who(1), 2)
    victim.hello()
    forged = Hello(who(2), bytes(32), 1).body()
    proof = victim.receive(HELLO, forged)  # ours, over a hello that the attacker made up
    with pytest.raises(Refusal) as caught:
        victim.receive(*cut(proof))
    assert caught.value.code == "SECRET"


def test_proof_of_another_role_is_refused() -> None:
    """Node 2, made to call the attacker, must not sign what the attacker needs to call node 1."""
    target = listener(who(1), nonce=7)
    answer = cut(target.receive(*cut(dialer(who(2), 1, nonce=8).hello())))[1]
    # The attacker, called by node 2, gives it node 1's hello, nonce and all.
    oracle = dialer(who(2), 1, nonce=9)
    oracle.hello()
    proof = oracle.receive(HELLO, answer)
    with pytest.raises(Refusal) as caught:  # it covers node 2's fresh nonce, not the attacker's
        target.receive(*cut(proof))
    assert caught.value.code == "SECRET"


def test_roles_sign_different_texts() -> None:
    """If both sides signed the same, a listener's proof would serve as a dialer's."""
    one, other = dialer(who(1), 2), listener(who(2))
    proof = one.receive(*cut(other.receive(*cut(one.hello()))))
    other.receive(*cut(proof))
    assert cut(proof)[1] != cut(other.confirm())[1]
    assert len(cut(proof)[1]) == handshake.PROOF_BYTES


def test_replayed_handshake_is_refused() -> None:
    """A recorded connection, played again, meets a fresh nonce."""
    one, other = dialer(who(1), 2), listener(who(2))
    hello = cut(one.hello())
    proof = cut(one.receive(*cut(other.receive(*hello))))
    other.receive(*proof)
    assert other.peer == who(1)
    again = listener(who(2), nonce=3)
    again.receive(*hello)
    with pytest.raises(Refusal) as caught:
        again.receive(*proof)
    assert caught.value.code == "SECRET"
    assert again.peer is None


@pytest.mark.parametrize("at", range(7))
def test_proof_covers_every_field_of_the_hello(at: int) -> None:
    """What is not signed can be changed on the way: another node, cluster, incarnation."""
    hello = Hello(who(1), b"n" * 32, 2).body()
    fields = msgpack.unpackb(hello)
    other: list[Any] = ["x", 9, "x", 9, b"x" * 16, b"x" * 32, 9]
    fields[at] = other[at]
    side = listener(who(2))
    side.receive(HELLO, hello)
    changed = listener(who(2))
    changed.receive(HELLO, hello)
    changed._other = msgpack.packb(fields)
    assert side._proof(dialer=True) != changed._proof(dialer=True)


def test_proof_is_hmac_of_both_hellos() -> None:
    """The text is a contract with nodes of this version that run already."""
    one, other = dialer(who(1), 2), listener(who(2))
    first = cut(one.hello())
    second = cut(other.receive(*first))
    text = b"kvorum-raft peer: dialer"
    for _, body in (first, second):
        text += len(body).to_bytes(4, "little") + body
    expected = hmac.new(SECRET, text, hashlib.sha256).digest()
    assert cut(one.receive(*second)) == (PROOF, expected)


# ------------------------------------------------------------------ the same, at a node


def test_caller_learns_nothing_signed_before_it_has_proved_itself() -> None:
    """A proof given to anybody who connects would let secrets be guessed offline."""
    net = Net()
    mux = net.start(2)
    link, wire_ = mux.new_link(None), Wire()
    link.connection_made(wire_)
    feed(link, dialer(who(1), 2).hello())
    assert cut(wire_.take())[0] == HELLO
    feed(link, frame(PROOF, bytes(32)))
    kind, body = cut(wire_.take())
    assert (kind, read_refusal(body).code) == (REFUSED, "SECRET")
    assert wire_.closed
    assert mux.counters.refused == {"SECRET": 1}
    assert mux.figures() == {}, "nothing is known of a stranger"


@pytest.mark.parametrize("kind", [wire.MESSAGES, wire.PING, wire.PART, wire.LAST, wire.PONG])
def test_nothing_is_delivered_before_the_proof(kind: int) -> None:
    """A message of somebody unproved could win an election."""
    net = Net()
    mux = net.start(2)
    link, wire_ = mux.new_link(None), Wire()
    link.connection_made(wire_)
    feed(link, dialer(who(1), 2).hello())
    body = wire.messages_body([wire.pack_message(7, {"type": "request_vote"})])
    feed(link, frame(kind, body))
    assert net.inbox[2] == []
    assert wire_.closed


def test_changed_incarnation_is_refused_and_told() -> None:
    """A node that lost its data lost its votes: under its old id it could vote twice in a term."""
    net = Net()
    net.cluster(1, 2)
    assert net.timers.run(until=net.whole)
    net.crash(2)
    wiped = net.start(2, incarnation=b"another incarnation")
    net.introduce(wiped, 1)
    net.timers.run(10)
    assert not net.whole()
    for mux, peer in ((net.nodes[1], 2), (wiped, 1)):
        trouble = mux.figures()[peer].trouble
        assert trouble is not None
        assert "node 2 is known with other data" in trouble
    assert net.nodes[1].counters.refused["INCARNATION"] >= 2
    assert net.stores[1].known[2] == incarnation_of(2)


def test_wrong_secret_teaches_nothing() -> None:
    """An incarnation that is learned before its proof would lock the real node out."""
    net = Net()
    net.start(1)
    stranger = net.start(2, secret=b"guess", incarnation=b"of the stranger")
    net.introduce(stranger, 1)
    net.timers.run(5)
    assert net.stores[1].known == {}
    assert "secret" in str(stranger.figures()[1].trouble)
    net.crash(2)
    net.introduce(net.start(2), 1)
    assert net.timers.run(until=net.whole)
