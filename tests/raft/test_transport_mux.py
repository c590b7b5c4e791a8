"""Connections of whole nodes in virtual time: who dials, which one stays, who is told what."""

from __future__ import annotations

import itertools
import logging
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft import wire
from raft.errors import BadConfig
from raft.handshake import Hello, Identity, Refusal
from raft.limits import TransportLimits
from raft.link import Link
from raft.log_bound import ADDRESSES_MAX, EVERY_S, LINES, LogBound
from raft.memory import MemoryPeers
from raft.peers import PeerBook, Pulse
from raft.wire import HELLO, PROOF, frame
from tests.raft.wires import Net, SeededRng, SimMux, Wire, feed, joined

VOTE = {"type": "request_vote", "term": 1}


def settle(net: Net, seconds: float = 10.0) -> float:
    """Run until every pair is connected; how long it took."""
    began = net.timers.now_s
    assert net.timers.run(seconds, until=net.whole), f"not whole after {seconds} s"
    return net.timers.now_s - began


def told(net: Net, node: int, peer: int) -> list[str]:
    return [what for who, what, whom in net.log if (who, whom) == (node, peer)]


def check_alternation(net: Net) -> None:
    """up, down, up … per node and peer. (A restarted node begins anew; its log is cut there.)"""
    for node in net.nodes:
        for peer in net.nodes:
            heard = told(net, node, peer)
            assert heard == (["up", "down"] * len(heard))[: len(heard)], (node, peer, heard)


# ------------------------------------------------------------------ finding each other


def test_three_nodes_find_each_other_at_once() -> None:
    """A cluster that takes seconds to connect takes them after every restart."""
    net = Net()
    net.cluster(1, 2, 3)
    assert settle(net) < 0.1
    net.timers.run(5)
    assert net.whole()
    assert all(peer.connections == 1 for mux in net.nodes.values() for peer in mux.book.all())
    check_alternation(net)


def test_messages_arrive_after_the_loop_has_turned() -> None:
    """`send` that delivers from within would let consensus enter itself."""
    net = Net()
    one, _ = net.cluster(1, 2)
    settle(net)
    one.send(2, 7, VOTE, early=False)
    one.send(2, 8, {"type": "append_entries", "entries": [(b"c", 1, 1)], "x": None}, early=True)
    one.send(3, 7, VOTE, early=True)
    assert net.inbox[2] == []
    frames = net.nodes[2].counters.frames_in
    net.timers.run(0.01)
    assert net.inbox[2] == [
        (1, 7, VOTE),
        (1, 8, {"type": "append_entries", "entries": [(b"c", 1, 1)], "x": None}),
    ]
    assert net.nodes[2].counters.frames_in == frames + 1, "one frame per pass"
    assert one.counters.unreachable == 1


@pytest.mark.parametrize("reachable", [1, 2])
def test_one_direction_of_dialing_is_enough(reachable: int) -> None:
    """Behind a firewall that answers nothing only one side can be called, be it the lower or the
    higher id: its own dial, which waits for nobody, must not keep the other's out.
    """
    net = Net()
    net.walls = {(reachable, 3 - reachable)}
    net.cluster(1, 2)
    assert settle(net) < 0.5
    net.timers.run(10)
    assert net.whole()
    assert net.strays() == []


def test_of_two_dials_of_one_moment_the_lower_ids_stays() -> None:
    """Each rule alone, with the moments set by hand."""

    def admits(me: int, *, dialed: bool, at_s: float) -> bool:
        book = PeerBook(me, MemoryPeers(), TransportLimits(handshake_ms=2000), SeededRng(1))
        other = Identity(cluster="c", node=5, incarnation=bytes(16))
        book.connected(book.get(5), 100.0, dialed=dialed)
        try:
            book.admit(other, at_s)
        except Refusal as refusal:
            return refusal.code != "DUPLICATE"
        return True

    assert not admits(1, dialed=True, at_s=100.1), "ours is new; theirs was on its way"
    assert admits(1, dialed=True, at_s=102.1), "ours is old: they have lost it"
    assert admits(1, dialed=False, at_s=100.1), "theirs, and they have lost it"
    assert admits(9, dialed=True, at_s=100.1), "the lower id knows better"


@given(st.integers(0, 10_000))
def test_simultaneous_dials_leave_one_connection(seed: int) -> None:
    """Both call at the same moment: with a wrong rule each closes the other's, again and again."""
    net = Net(seed)
    one, two = net.start(1), net.start(2)
    net.introduce(one, 2)
    net.introduce(two, 1)
    for mux in (one, two):  # whatever jitter says: dial now
        for peer in mux.book.all():
            peer.dial_at_s = 0.0
        mux._arm_dials()
    assert settle(net) < 0.1
    net.timers.run(4)
    assert net.whole()
    assert one.book.get(2).connections == two.book.get(1).connections == 1


def test_dials_back_off_with_jitter_and_come_soon_after_the_restart() -> None:
    """A dead peer must cost little, and its return must not wait."""
    net = Net()
    one, _ = net.cluster(1, 2)
    settle(net)
    net.crash(2)
    dials: list[float] = []
    connect = net.connect
    net.connect = lambda *args: (dials.append(net.timers.now_s), connect(*args))  # type: ignore[method-assign,assignment]
    net.timers.run(20)
    gaps = [later - sooner for sooner, later in itertools.pairwise(dials)]
    assert 20 <= len(dials) <= 60
    assert max(gaps) <= 1.05
    assert min(gaps[8:]) >= 0.45
    assert len({round(gap, 4) for gap in gaps[8:]}) > 5, "no jitter"
    assert one.figures()[2].trouble == "connection refused"
    net.introduce(net.start(2), 1)
    assert settle(net) < 1.1


# ------------------------------------------------------------------ silence and loss


def test_a_silent_peer_is_told_as_down_and_up_again() -> None:
    """A cut without a word must be found within half an election timeout, and its end at once."""
    net = Net()
    net.cluster(1, 2)
    settle(net)
    net.timers.run(3)
    net.cuts = {(1, 2), (2, 1)}
    cut_at = net.timers.now_s
    assert net.timers.run(until=lambda: told(net, 1, 2)[-1:] == ["down"])
    assert 0.45 < net.timers.now_s - cut_at < 0.8
    assert not net.nodes[1].room(2)
    net.cuts = set()
    healed_at = net.timers.now_s
    assert net.timers.run(until=net.whole)
    assert net.timers.now_s - healed_at < 0.5
    assert net.nodes[1].book.get(2).connections == 1, "a short cut needs no new connection"
    check_alternation(net)


def test_a_dead_connection_is_given_up_and_replaced() -> None:
    """After a long cut TCP waits for minutes; we must not."""
    net = Net()
    net.cluster(1, 2, 3)
    settle(net)
    net.cuts = {(1, 2), (2, 1)}
    net.timers.run(30)
    assert told(net, 1, 2) == ["up", "down"]
    assert told(net, 1, 3) == ["up"]
    assert net.nodes[1].counters.timeouts > 0
    net.cuts = set()
    assert settle(net) < 3.2
    check_alternation(net)


def test_a_one_way_cut_is_seen_by_who_hears_nothing() -> None:
    """Who still hears must not be told that the other is down, until the other gives up."""
    net = Net()
    net.cluster(1, 2)
    settle(net)
    net.cuts = {(1, 2)}
    net.timers.run(1.0)
    assert (told(net, 2, 1), told(net, 1, 2)) == (["up", "down"], ["up"])
    net.timers.run(2.0)
    assert told(net, 1, 2) == ["up", "down"]


def test_a_peer_that_dies_is_down_at_once() -> None:
    """Who follows a killed leader should not wait for a silence."""
    net = Net()
    net.cluster(1, 2)
    settle(net)
    net.crash(2)
    net.timers.run(0.05)
    assert told(net, 1, 2) == ["up", "down"]


def test_our_own_pause_is_not_their_silence() -> None:
    """After SIGSTOP our timers run before our sockets are read: everybody would seem dead."""
    net = Net()
    net.cluster(1, 2)
    settle(net)
    net.timers.run(2)
    pulse = Pulse(0.125, net.timers.now_s)
    pulse.look(net.timers.now_s)
    pulse.look(net.timers.now_s + 60)
    assert pulse.quiet_s < 0.2
    net.timers.now_s += 60  # nothing ran meanwhile
    net.timers.run(2)
    assert told(net, 1, 2) == told(net, 2, 1) == ["up"]


@pytest.mark.parametrize("restarted", [1, 2])
@pytest.mark.parametrize("dialer", [1, 2])
def test_a_restarted_peer_replaces_its_old_connection(restarted: int, dialer: int) -> None:
    """After a power failure the old connection looks alive to the other side, whoever dialed it:
    the new one must win at once, not when the old one is given up.
    """
    net = Net()
    other = 3 - restarted
    for node in (1, 2):
        net.start(node)
    net.introduce(net.nodes[dialer], 3 - dialer)
    settle(net)
    net.timers.run(5)
    net.crash(restarted, machine=True)
    net.introduce(net.start(restarted), other)
    assert settle(net) < 0.5
    assert told(net, other, restarted) == ["up", "down", "up"]
    net.timers.run(5)
    assert net.whole()
    assert net.strays() == []


def test_peer_that_reads_nothing_is_bounded_and_dropped() -> None:
    """A stopped process must cost its peers neither memory nor their other peers."""
    net = Net(limits=TransportLimits(queue_bytes_max=1 << 20))
    one, _, _ = net.cluster(1, 2, 3)
    settle(net)
    net.cuts = {(1, 2), (2, 1)}
    message = {"type": "append_entries", "entries": [(bytes(100_000), 1, 1)]}
    for _ in range(40):
        one.send(2, 7, message, early=True)
        one.send(3, 7, message, early=True)
        net.timers.run(0.01)
    assert not one.room(2)
    assert one.room(3)
    figures = one.figures()
    assert figures[2].lost > 0
    assert figures[3].lost == 0
    assert 1 << 20 <= figures[2].queued_bytes < 1_600_000
    assert len(net.inbox[3]) == 40
    net.timers.run(3)
    assert one.figures()[2].queued_bytes == 0
    net.cuts = set()
    settle(net)
    assert one.room(2)


# ------------------------------------------------------------------ cuts made by hand


def test_block_cuts_both_ways_and_unblock_heals() -> None:
    """`kvorum cluster cut` must look like a broken network, not like a closed connection."""
    net = Net()
    one, _ = net.cluster(1, 2)
    settle(net)
    one.block(2)
    one.send(2, 7, VOTE, early=True)
    net.nodes[2].send(1, 7, VOTE, early=True)
    net.timers.run(0.3)
    assert told(net, 1, 2) == told(net, 2, 1) == ["up"], "nothing is noticed at once"
    net.timers.run(0.5)
    assert told(net, 1, 2) == told(net, 2, 1) == ["up", "down"]
    net.timers.run(20)
    assert (net.inbox[1], net.inbox[2]) == ([], [])
    assert told(net, 1, 2) == told(net, 2, 1) == ["up", "down"], "a cut lets nobody connect"
    one.unblock(2)
    assert settle(net) < 1.2
    net.nodes[2].send(1, 7, VOTE, early=True)
    net.timers.run(0.1)
    assert net.inbox[1] == [(2, 7, VOTE)]


@pytest.mark.parametrize("incoming", [True, False])
def test_block_one_way(incoming: bool) -> None:
    """One-way cuts are what breaks leaders that only listen."""
    net = Net()
    one, two = net.cluster(1, 2)
    settle(net)
    one.block(2, incoming=incoming, outgoing=not incoming)
    one.send(2, 7, VOTE, early=True)
    two.send(1, 7, VOTE, early=True)
    net.timers.run(0.1)
    assert (net.inbox[1] == []) is incoming
    assert (net.inbox[2] == []) is not incoming
    net.timers.run(0.8)
    assert told(net, 1 if incoming else 2, 2 if incoming else 1) == ["up", "down"]
    one.unblock(2)
    settle(net, 5)


def test_unblocked_before_it_was_noticed() -> None:
    """A short cut must leave the connection as it was."""
    net = Net()
    one, _ = net.cluster(1, 2)
    settle(net)
    one.block(2)
    net.timers.run(0.2)
    one.unblock(2)
    one.send(2, 7, VOTE, early=True)
    net.timers.run(3)
    assert net.inbox[2] == [(1, 7, VOTE)]
    assert told(net, 1, 2) == ["up"]


# ------------------------------------------------------------------ who is refused


def test_removed_peer_is_refused_and_told_until_it_is_set_again() -> None:
    """A node that was removed must see why it is alone."""
    net = Net()
    one, two = net.cluster(1, 2)
    settle(net)
    one.forget_peer(2)
    net.timers.run(5)
    assert told(net, 1, 2) == ["up", "down"]
    assert "removed from the cluster" in str(two.figures()[1].trouble)
    assert one.counters.refused["REMOVED"] >= 2
    one.set_peer(2, ("127.0.0.1", 7002))
    settle(net)
    check_alternation(net)


def test_unknown_node_of_the_cluster_may_call() -> None:
    """A node that joins calls the members before they have heard of it."""
    net = Net()
    net.start(1)
    net.introduce(net.start(9), 1)
    settle(net)
    net.nodes[1].send(9, 7, VOTE, early=True)
    net.timers.run(0.1)
    assert net.inbox[9] == [(1, 7, VOTE)]
    assert net.stores[1].known[9] == bytes([9]) * 16


def test_refusals_are_logged_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong secret tried every three seconds would fill the disk with its log."""
    caplog.set_level(logging.INFO, logger="raft.mux")
    net = Net()
    net.start(1)
    stranger = net.start(2, cluster="other")
    net.introduce(stranger, 1)
    net.timers.run(60)
    assert net.nodes[1].counters.refused["CLUSTER"] >= 15
    lines = [record.getMessage() for record in caplog.records]
    reason = "this is cluster 'c', the peer belongs to 'other': check the address"
    assert lines == [
        f"node 1: somebody called and was refused: {reason}",
        f"node 2: no connection with node 1: {reason}",
    ]


def test_connections_that_do_not_last_are_tried_slowly() -> None:
    """Two nodes that cannot read each other would connect and part fifty times a second."""
    net = Net()
    one, two = net.cluster(1, 2)
    for mux, peer in ((one, 2), (two, 1)):
        mux.on_up = lambda _peer, mux=mux, peer=peer: net.timers.call_soon(
            lambda: feed(mux._links[peer], b"\xff" * 9) if peer in mux._links else None
        )
    net.timers.run(30)
    assert 20 <= one.book.get(2).connections <= 80
    one.on_up = two.on_up = lambda _peer: None
    settle(net, 2)
    net.timers.run(3)
    assert one.book.get(2).attempts > 0
    one._links[2].abort()
    net.timers.run(0.01)
    assert one.book.get(2).attempts == 0, "it had lasted"


def test_jitter_spreads_the_dials_of_many() -> None:
    """Nodes that lost a switch together must not call together when it is back."""
    book = PeerBook(1, MemoryPeers(), TransportLimits(), SeededRng(1))
    waits = []
    for node in range(2, 52):
        book.set_address(node, ("127.0.0.1", 7000), 0.0)
        peer = book.get(node)
        peer.attempts = 30
        book.dial_ended(peer, 100.0, None)
        waits.append(peer.dial_at_s - 100)
    assert 0.5 <= min(waits) < 0.55
    assert 0.95 < max(waits) <= 1.0


def test_refused_dial_is_repeated_slowly_but_a_duplicate_soon() -> None:
    """People need minutes to give a node the right secret; a race of two dials needs an instant."""
    net = Net()
    net.start(1)
    net.introduce(net.start(2, secret=b"wrong"), 1)
    net.timers.run(31)
    assert 10 <= net.nodes[1].counters.refused["SECRET"] <= 25


def caller(mux: SimMux, address: str = "") -> tuple[Link, Wire]:
    """Somebody has called, and says nothing yet."""
    link, wire_ = mux.new_link(None), Wire()
    link.address = address
    link.connection_made(wire_)
    return link, wire_


def test_silent_strangers_keep_no_peer_out() -> None:
    """Connections that never say hello, however many and however often, must not take the places
    that peers need.
    """
    net = Net(limits=TransportLimits(strangers_max=3))
    mux = net.start(1)
    wires = [caller(mux)[1] for _ in range(5)]
    assert [wire_.closed for wire_ in wires] == [True, True, False, False, False]
    assert b"too many" in wires[0].take()
    net.introduce(net.start(2), 1)
    for _ in range(100):  # while they go on
        caller(mux)
        net.timers.run(0.01)
    assert net.whole()
    assert len(mux._strangers) <= 3
    net.timers.run(2.5)
    assert not mux._strangers, "nobody waits longer than a handshake"


def test_strangers_of_one_address_lose_their_own_places_first() -> None:
    """A machine that calls faster than a peer can answer must not push that peer out."""
    net = Net(limits=TransportLimits(strangers_max=8))
    mux = net.start(1)
    peers = [caller(mux, f"10.0.0.{number}")[1] for number in (1, 2)]
    flood = [caller(mux, "10.6.6.6")[1] for _ in range(50)]
    assert [wire_.closed for wire_ in peers] == [False, False]
    assert [wire_.closed for wire_ in flood] == [True] * 44 + [False] * 6


@pytest.mark.parametrize("kind", ["names of clusters", "nodes", "texts of its own", "no protocol"])
def test_a_stranger_writes_no_more_than_a_few_lines_of_the_log(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever calls and says something else each time would fill the disk with the log."""
    caplog.set_level(logging.INFO, logger="raft.mux")
    net = Net()
    mux = net.start(1)
    for number in range(1, 501):
        link, wire_ = caller(mux, "10.6.6.6")
        cluster = f"c{number}" if kind == "names of clusters" else mux.identity.cluster
        node = number if kind == "nodes" else 7
        who = Identity(cluster=cluster, node=node, incarnation=bytes(16))
        if kind == "texts of its own":
            feed(link, Refusal("NO", f"so {number}").frame())
        elif kind == "no protocol":
            feed(link, bytes([number % 256]) * 64)
        else:
            feed(link, frame(HELLO, Hello(who, bytes(32), 1).body()))
            feed(link, frame(PROOF, bytes(32)))
        assert wire_.closed
    assert 1 <= len(caplog.records) <= LINES
    caplog.clear()
    net.timers.run(EVERY_S + 1)
    link, _ = caller(mux, "10.6.6.6")
    feed(link, Refusal("NO", "another time").frame())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "10.6.6.6" in line
    if kind != "no protocol":
        assert "more were not logged" in line
    caplog.clear()
    link, _ = caller(mux, "10.0.0.2")
    feed(link, Refusal("NO", "another one").frame())
    assert caplog.records, "others are heard meanwhile"


def test_lines_of_many_addresses_are_bounded_together() -> None:
    """Who has many addresses would have as many times as many lines, and fill the memory."""
    bound = LogBound()
    said = [bound.tail(f"2001:db8::{number:x}", 0.0) for number in range(1_000) for _ in range(3)]
    assert len([tail for tail in said if tail is not None]) <= LINES + 3 * ADDRESSES_MAX
    assert bound.tail("2001:db8::1", EVERY_S) == ""


def test_who_does_not_read_our_last_words_is_let_go() -> None:
    """A socket that waits for its peer to read would stay for ever, and one more each time."""
    net = Net()
    mux = net.start(1)
    link, wire_ = mux.new_link(None), Wire()
    link.connection_made(wire_)
    feed(link, b"GET / HTTP/1.1\r\n\r\n")
    assert (wire_.closed, wire_.aborted) == (True, False)
    net.timers.run(2.5)
    assert wire_.aborted


def test_more_peers_than_the_limit_are_told_so() -> None:
    """Whoever knows the secret could else fill our memory with ids; known ones stay welcome."""
    net = Net(limits=TransportLimits(peers_max=2))
    net.stores[1] = MemoryPeers({node: bytes([node]) * 16 for node in (2, 3, 4)})
    net.start(1)
    for node in (2, 3, 4, 5):
        net.introduce(net.start(node), 1)
    net.timers.run(3)
    assert net.nodes[1]._links.keys() == {2, 3, 4}
    assert "peers_max = 2" in str(net.nodes[5].figures()[1].trouble)


def test_nobody_listens_to_a_dial_that_never_answers() -> None:
    """Who accepts and says nothing (a wrong port, a stopped process) must not stop the dialing."""
    net = Net()
    one = net.start(1)
    one.set_peer(2, ("127.0.0.1", 7002))
    net.cuts = {(1, 2)}
    net.timers.run(10)
    assert one.figures()[2].trouble == "no answer within the time of a handshake"
    net.cuts = set()
    net.start(2)
    settle(net, 4)


@pytest.mark.parametrize(
    "data",
    [
        frame(99, b"x"),
        frame(wire.HELLO, b"x"),
        frame(wire.PROOF, bytes(32)),
        frame(wire.PING, b"short"),
        frame(wire.PONG, b"much too long"),
        frame(wire.LAST, b"\x91"),
        frame(wire.MESSAGES, b"\x91\x01"),
        b"\xff" * 9,
        frame(wire.PING, bytes(8))[:-1] + b"\x01",
    ],
)
def test_malformed_bytes_of_a_peer_end_its_connection_only(data: bytes) -> None:
    """A damaged stream must cost a reconnection and a count, never the node."""
    net = Net()
    one, _, _ = net.cluster(1, 2, 3)
    settle(net)
    link = one._links[2]
    feed(link, data)
    assert link.ended
    assert (one.counters.malformed, one.counters.refused) == (1, {"PROTOCOL": 1})
    assert told(net, 1, 2) == ["up", "down"]
    assert told(net, 1, 3) == ["up"]
    settle(net)


def test_nothing_is_delivered_after_the_end() -> None:
    """The owner may drop a peer while its messages are being delivered: the rest is void."""
    net = Net()
    one, _ = net.cluster(1, 2)
    settle(net)
    body = wire.messages_body([wire.pack_message(7, VOTE)])
    one.on_message = lambda peer, group, message: (
        net.inbox[1].append((peer, group, message)),
        one.forget_peer(2),
    )
    feed(one._links[2], frame(wire.MESSAGES, body) * 3)
    assert net.inbox[1] == [(2, 7, VOTE)]


def test_endless_message_is_refused() -> None:
    """Parts without an end would fill the memory of whoever collects them."""
    net = Net(limits=TransportLimits(message_bytes_max=1 << 20))
    one, _ = net.cluster(1, 2)
    settle(net)
    link = one._links[2]
    for _ in range(20):
        feed(link, frame(wire.PART, bytes(100_000)))
    assert link.ended
    assert one.counters.malformed == 1


@pytest.mark.slow
def test_pings_are_not_answered_to_who_does_not_read() -> None:
    """A peer that only asks would grow our answers without a bound."""
    net = Net(limits=TransportLimits(urgent_bytes_max=1 << 18))
    one, _ = net.cluster(1, 2)
    settle(net)
    net.cuts = {(1, 2)}
    link = one._links[2]
    for _ in range(100_000):
        feed(link, frame(wire.PING, bytes(8)))
    assert link.socket_bytes() < (1 << 18) + 1000


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=8), st.booleans())
def test_garbage_on_the_wire_never_raises(pieces: list[bytes], proved: bool) -> None:
    """Anybody may connect; a peer may be broken. Neither may stop a node."""
    net = Net()
    one, _ = net.cluster(1, 2)
    settle(net)
    if proved:
        link = one._links[2]
    else:
        link = one.new_link(None)
        link.connection_made(Wire())
    for piece in pieces:
        feed(link, piece)
    feed(link, b"\xff" * 9)
    assert link.ended
    settle(net)


# ------------------------------------------------------------------ settings


def test_settings_that_cannot_work_are_refused() -> None:
    """A secret that is missing where others can listen in is worse than no node."""
    net = Net()
    one = net.start(1, secret=b"")
    one.set_peer(2, ("localhost", 7002))
    one.set_peer(3, ("::1", 7002))
    for host in ("10.0.0.1", "node2", "0.0.0.0"):
        with pytest.raises(BadConfig, match="same cluster_secret"):
            one.set_peer(2, (host, 7002))
    with pytest.raises(BadConfig, match="is this node"):
        one.set_peer(1, ("127.0.0.1", 7001))
    for address in (("", 1), ("127.0.0.1", 0), ("127.0.0.1", 65536)):
        with pytest.raises(BadConfig):
            net.start(4).set_peer(2, address)
    for options in ({"node_id": 0}, {"cluster": "c" * 129}, {"incarnation": b"short"}):
        with pytest.raises(BadConfig, match="incarnation of"):
            net.start(5, **options)
    with pytest.raises(BadConfig, match="silence_ms"):
        TransportLimits(silence_ms=3000)


def test_values_that_cannot_travel_are_the_senders_error() -> None:
    """Found at the sender with its message, not at the peer as a broken stream."""
    net = Net()
    one, _ = net.cluster(1, 2)
    settle(net)
    with pytest.raises(TypeError):
        one.send(2, 7, {"type": "x", "value": object()}, early=True)
    one.send(2, 7, VOTE, early=True)
    net.timers.run(0.1)
    assert net.inbox[2] == [(1, 7, VOTE)]


def test_stop_sends_what_waits_and_ends_everything() -> None:
    """The last word of a node (a transfer of leadership) should arrive; timers must not stay."""
    net = Net()
    one, _ = net.cluster(1, 2)
    settle(net)
    one.send(2, 7, VOTE, early=True)
    one.stop()
    net.timers.run(0.5)
    assert net.inbox[2] == [(1, 7, VOTE)]
    assert told(net, 2, 1) == ["up", "down"]
    called = one.new_link(None)
    wire_ = Wire()
    called.connection_made(wire_)
    assert wire_.closed, "a stopped node takes no calls"


def test_known_incarnations_survive_a_restart() -> None:
    """Trusting again on first sight after every restart would be no check at all."""
    net = Net()
    net.cluster(1, 2)
    settle(net)
    net.crash(1)
    net.crash(2)
    assert net.stores[1].known == {2: bytes([2]) * 16}
    net.introduce(net.start(1), 2)
    net.introduce(net.start(2, incarnation=b"wiped machine"), 1)
    net.timers.run(3)
    assert not net.whole()


# ------------------------------------------------------------------ all of it at once


def _fault(net: Net, chance: random.Random, nodes: list[int]) -> None:
    one, other = chance.sample(nodes, 2)
    match chance.randrange(7):
        case 0:
            net.cuts.add((one, other))
        case 1:
            net.cuts |= {(one, other), (other, one)}
        case 2 | 3:
            net.cuts.clear()
        case 4:
            net.crash(one, machine=chance.random() < 0.5)
            net.log = [line for line in net.log if line[0] != one]
            net.introduce(net.start(one), *nodes)
        case 5:
            net.nodes[one].block(other, incoming=chance.random() < 0.7)
        case _:
            for peer in nodes:
                if peer != one:
                    net.nodes[one].unblock(peer)


def _check(net: Net, sent: set[int]) -> None:
    check_alternation(net)
    assert net.strays() == []
    for node, mux in net.nodes.items():
        for peer, link in mux._links.items():
            assert link.peer is mux.book.get(peer)
            assert not link.ended
        for sender, group, message in net.inbox[node]:
            assert message["n"] in sent
            assert (sender, node) == (message["from"], group)


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(60))
def test_any_faults_then_healed(seed: int) -> None:
    """Cuts, one-way cuts, crashes, blocks, delays and split streams at random: messages reach only
    whom they were sent to, callbacks alternate, and after healing every pair has one connection.
    """
    chance = random.Random(seed)
    net = Net(seed)
    slow = chance.choice([0.0005, 0.02, 0.2])
    net.delay_s = lambda: chance.uniform(0, slow)
    pieces = [1, 3, 40, 5000] if slow < 0.01 else [200, 5000]
    net.chunk = lambda: chance.choice(pieces)
    nodes = list(range(1, chance.randint(2, 4) + 1))
    net.cluster(*nodes)
    sent: set[int] = set()
    for _ in range(60):
        if chance.random() < 0.4:
            _fault(net, chance, nodes)
        for _ in range(chance.randint(0, 5)):
            one, other = chance.sample(nodes, 2)
            number = len(sent)
            sent.add(number)
            message = {"type": "x", "n": number, "from": one, "pad": bytes(chance.choice((0, 300)))}
            net.nodes[one].send(other, other, message, early=True)
        net.timers.run(chance.uniform(0, 1.0))
        _check(net, sent)
    net.cuts.clear()
    for mux in net.nodes.values():
        for peer in nodes:
            if peer != mux.identity.node:
                mux.unblock(peer)
    settle(net, 8)
    net.timers.run(5)
    assert net.whole(), "connected, but not for long"
    for inbox in net.inbox.values():
        inbox.clear()
    for one in nodes:
        for other in nodes:
            if one != other:
                net.nodes[one].send(other, other, {"type": "x", "n": 0, "from": one}, early=True)
    everybody = len(nodes) - 1
    assert net.timers.run(
        2, until=lambda: all(len(inbox) == everybody for inbox in net.inbox.values())
    )


def test_the_same_seed_gives_the_same_run() -> None:
    """A failing seed that cannot be replayed cannot be mended."""

    def run() -> list[Any]:
        net = Net(5)
        net.cluster(1, 2, 3)
        net.timers.run(1)
        net.cuts = {(1, 2)}
        net.timers.run(5)
        return [net.log, net.timers.now_s, [mux.counters for mux in net.nodes.values()]]

    assert run() == run()


def test_fakes_are_what_production_takes() -> None:
    """The net's parts must fit where the real ones go, or these tests prove nothing."""
    mux = SimMux(
        cluster="c",
        node_id=1,
        incarnation=bytes(16),
        secret=b"",
        timers=Net().timers,
        rng=SeededRng(1),
        peers=MemoryPeers(),
    )
    assert not joined(mux, mux)
