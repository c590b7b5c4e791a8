"""What leaves first, what waits, and what is lost when too much waits."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raft.lanes import Lanes, bare
from raft.limits import TransportLimits
from raft.wire import FRAME_BYTES_MAX, LAST, MESSAGES, PART, FrameReader, Row, read_messages

LIMITS = TransportLimits(queue_bytes_max=1 << 20)
HEARTBEAT = {"type": "append_entries", "term": 1, "round": 5, "prevLogIdx": 8, "prevLogTerm": 1}


def append(size: int, index: int = 9) -> dict[str, Any]:
    return {**HEARTBEAT, "entries": [(bytes(size), index, 1)]}


class Receiver:
    """Puts together what lanes send."""

    def __init__(self) -> None:
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._long = bytearray()
        self.rows: list[Row] = []
        self.kinds: list[int] = []

    def take(self, data: bytes) -> None:
        while data:
            room = self._reader.room()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            for kind, body in self._reader.received(size):
                self.kinds.append(kind)
                if kind == MESSAGES:
                    self.rows += read_messages(body)
                else:
                    self._long += body
                    if kind == LAST:
                        whole, self._long = self._long, bytearray()
                        self.rows += read_messages(whole)
            data = data[size:]

    def drain(self, lanes: Lanes) -> None:
        self.take(lanes.take_pass())
        while bulk := lanes.take_bulk():
            self.take(bulk)


def test_f7_a_pass_is_one_frame_in_order() -> None:
    """One frame and one write per pass is what makes many groups cheap."""
    lanes, receiver = Lanes(LIMITS), Receiver()
    sent = [(group, append(10) if group % 2 else dict(HEARTBEAT)) for group in range(200)]
    for group, message in sent:
        lanes.add(group, message)
    receiver.take(lanes.take_pass())
    assert receiver.rows == sent
    assert receiver.kinds == [MESSAGES]
    assert (lanes.take_pass(), lanes.take_bulk(), lanes.queued_bytes) == (b"", b"", 0)


def test_f7_heartbeats_leave_before_a_long_append() -> None:
    """Sixteen mebibytes on the way must not look like a dead leader to any group."""
    lanes, receiver = Lanes(LIMITS), Receiver()
    lanes.add(1, append(16 << 20))
    receiver.take(lanes.take_pass())
    for _ in range(3):
        receiver.take(lanes.take_bulk())
    assert receiver.rows == []
    lanes.add(2, HEARTBEAT)
    lanes.add(3, {"type": "request_vote", "term": 2})
    receiver.take(lanes.take_pass())
    assert [group for group, _ in receiver.rows] == [2, 3]
    receiver.drain(lanes)
    assert receiver.rows[2] == (1, append(16 << 20))
    assert receiver.kinds.count(LAST) == 1
    assert receiver.kinds[3] == MESSAGES, "between two parts"
    assert receiver.kinds.count(PART) == (16 << 20) // FRAME_BYTES_MAX


def test_heartbeat_that_overtakes_its_own_appends_has_no_position() -> None:
    """With its position the follower would refuse it, and the leader repeat what is on its way."""
    lanes, receiver = Lanes(LIMITS), Receiver()
    lanes.add(1, append(1 << 18))
    lanes.add(1, {**HEARTBEAT, "entries": [], "prevLogIdx": 9})
    lanes.add(2, {**HEARTBEAT, "entries": []})
    receiver.drain(lanes)
    own, other, long = receiver.rows
    assert own == (1, {"type": "append_entries", "term": 1, "round": 5})
    assert other == (2, {**HEARTBEAT, "entries": []})
    assert long == (1, append(1 << 18))
    lanes.add(1, {**HEARTBEAT, "entries": []})
    receiver.drain(lanes)
    assert receiver.rows[3] == (1, {**HEARTBEAT, "entries": []}), "nothing to overtake any more"


def test_bare_changes_heartbeats_only() -> None:
    """A vote or an append that lost fields would be misread."""
    for message in (append(1), {"type": "request_vote", "prevLogIdx": 1}):
        assert bare(message) is message


def test_held_socket_holds_bulk_and_not_the_rest() -> None:
    """Bulk that is given to a full socket can no longer be overtaken."""
    lanes, receiver = Lanes(LIMITS), Receiver()
    lanes.held = True
    lanes.add(1, append(10))
    lanes.add(2, HEARTBEAT)
    lanes.add(3, {"type": "next_node_idx", "term": 1})
    receiver.take(lanes.take_pass())
    assert [group for group, _ in receiver.rows] == [2, 3]
    lanes.held = False
    receiver.drain(lanes)
    assert receiver.rows[2:] == [(1, append(10))]


def test_short_last_chunk_of_a_snapshot_keeps_its_place() -> None:
    """A last chunk that overtakes the others would be refused and sent again."""
    lanes, receiver = Lanes(LIMITS), Receiver()
    lanes.held = True
    sent = [{"type": "snapshot", "number": n, "data": bytes(9 - n)} for n in range(9)]
    for message in sent:
        lanes.add(1, message)
    assert lanes.take_pass() == b""
    receiver.drain(lanes)
    assert [message for _, message in receiver.rows] == sent


def test_room_ends_with_a_full_queue_and_one_message_more_fits() -> None:
    """Without a bound a follower that reads slowly costs the leader its memory."""
    lanes, receiver = Lanes(LIMITS), Receiver()
    lanes.held = True
    added = 0
    while lanes.room():
        lanes.add(1, append(100_000, added))
        added += 1
    assert LIMITS.queue_bytes_max <= lanes.backlog_bytes < LIMITS.queue_bytes_max + 101_000
    lanes.add(1, append(100_000, added))
    assert (lanes.sent, lanes.lost) == (added, 1)
    receiver.drain(lanes)
    assert [message["entries"][0][1] for _, message in receiver.rows] == list(range(added))
    assert lanes.room()
    assert lanes.queued_bytes == lanes.backlog_bytes == 0


def test_small_messages_to_a_peer_that_reads_nothing_are_lost_in_the_end() -> None:
    """Heartbeats for a stopped process must not pile up without a bound."""
    lanes, receiver = Lanes(LIMITS), Receiver()
    lanes.held = True
    for group in range(80_000):
        lanes.add(group, HEARTBEAT)
    assert lanes.lost > 0
    waiting = lanes.queued_bytes
    assert LIMITS.urgent_bytes_max - 200 < waiting <= LIMITS.urgent_bytes_max
    receiver.take(lanes.take_pass())
    assert len(receiver.rows) == lanes.sent == 80_000 - lanes.lost
    assert all(kind == MESSAGES for kind in receiver.kinds)
    lanes.add(1, HEARTBEAT, socket_bytes=waiting)
    assert lanes.lost == 80_001 - lanes.sent, "what the socket holds counts, too"


def test_message_above_the_limit_is_lost_here_and_not_refused_there() -> None:
    """The peer would close the connection, and the same message would close the next one."""
    lanes = Lanes(TransportLimits(message_bytes_max=1 << 20))
    lanes.add(1, append((1 << 20) + 1))
    assert (lanes.lost, lanes.take_pass(), lanes.take_bulk()) == (1, b"", b"")


SIZES = st.sampled_from([0, 1, 100, 20_000, FRAME_BYTES_MAX - 90, FRAME_BYTES_MAX, 300_000])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("bulk"), st.integers(1, 3), SIZES),
        st.tuples(st.just("small"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.just(0)),
        st.tuples(st.just("bulk out"), st.just(0), st.just(0)),
        st.tuples(st.just("held"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_nothing_is_lost_doubled_or_out_of_its_lane(steps: list[tuple[str, int, int]]) -> None:
    """Whatever the order of adding, holding and sending: each lane keeps its order per group, and
    a position never arrives before the appends that it counts.
    """
    lanes, receiver = Lanes(TransportLimits()), Receiver()
    index = dict.fromkeys((1, 2, 3), 0)
    smalls = 0
    for what, group, size in steps:
        match what:
            case "bulk":
                index[group] += 1
                lanes.add(group, append(size, index[group]))
            case "small":
                smalls += 1
                lanes.add(group, {**HEARTBEAT, "prevLogIdx": index[group], "round": smalls})
            case "pass":
                receiver.take(lanes.take_pass())
            case "bulk out":  # a pass is written before bulk, as Link.flush does
                receiver.take(lanes.take_pass())
                receiver.take(lanes.take_bulk())
            case "held":
                lanes.held = not lanes.held
    receiver.drain(lanes)
    assert lanes.lost == lanes.queued_bytes == 0
    has = dict.fromkeys((1, 2, 3), 0)
    rounds = []
    for group, message in receiver.rows:
        if "entries" in message:
            has[group] += 1
            assert message["entries"][0][1] == has[group]
        else:
            rounds.append(message["round"])
            assert message.get("prevLogIdx", 0) <= has[group]
    assert has == index
    assert rounds == sorted(rounds)
    assert len(rounds) == smalls
