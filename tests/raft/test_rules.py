"""The rules of consensus one by one, as tables from the papers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft import BadConfig
from raft.rules import append, membership, prevote
from raft.rules.commit import commit_bound, majority_index
from raft.rules.flow import Bucket, Flow
from raft.rules.lease import Lease, Promise
from raft.rules.membership import Membership, MembershipHistory, check_change
from raft.rules.prevote import PreVote
from raft.rules.reads import PendingRead, ReadQueue, Rounds
from raft.rules.reorder import Parked
from raft.rules.sizes import LogSizes
from raft.rules.votes import VoteBox

# ---------------------------------------------------------------------------------- commit


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (5, [], 5),
        (5, [3], 3),
        (5, [3, 4], 4),
        (2, [9, 9], 9),
        (9, [1, 2, 3], 2),
        (9, [1, 2, 3, 4], 3),
        (0, [7, 7, 7, 7], 7),
    ],
)
def test_majority_index(own: int, others: list[int], expected: int) -> None:
    """One rank too high commits what a majority does not hold."""
    assert majority_index(own, others) == expected
    assert sum(value >= expected for value in [own, *others]) * 2 > 1 + len(others)


def test_only_entries_of_the_own_term_commit_by_counting() -> None:
    """Figure 8 of the Raft paper: an older entry on a majority can still be overwritten."""
    terms = {1: 1, 2: 2, 3: 4}
    bound = commit_bound(1, 2, [2, 2], term=4, term_at=terms.get)
    assert bound == 1, "entry 2 is of term 2, counted by a leader of term 4"
    assert commit_bound(1, 3, [3, 0], term=4, term_at=terms.get) == 3, "entry 2 commits with 3"


def test_commit_never_goes_back() -> None:
    """A slow follower's old answer must not take a commit back."""
    assert commit_bound(5, 3, [3], term=1, term_at=lambda _index: 1) == 5


# ---------------------------------------------------------------------------------- votes


def test_a_vote_counts_once_and_only_from_a_voter() -> None:
    """P9: a duplicate, or a removed node, would make a minority a majority."""
    box = VoteBox(1)
    voters = (1, 2, 3, 4, 5)
    assert [box.add(sender, voters) for sender in (2, 2, 9, 1)] == [True, False, False, False]
    assert not box.has_majority(voters)
    assert box.add(3, voters)
    assert box.has_majority(voters)
    box.restart()
    assert not box.has_majority(voters)
    assert box.has_majority((1,))


def test_pre_vote_rounds_do_not_mix() -> None:
    """Answers to an earlier round say nothing about now: a leader may have been heard since."""
    pre = PreVote(1)
    first = pre.start()
    second = pre.start()
    assert not pre.granted(2, first, (1, 2, 3))
    assert pre.granted(2, second, (1, 2, 3))
    assert pre.won
    pre.cancel()
    assert not pre.won


@pytest.mark.parametrize(
    ("theirs", "ours", "current"),
    [
        ((2, 1), (1, 9), True),
        ((1, 9), (2, 1), False),
        ((2, 5), (2, 5), True),
        ((2, 4), (2, 5), False),
    ],
)
def test_log_is_current(theirs: tuple[int, int], ours: tuple[int, int], current: bool) -> None:
    """Raft 5.4.1: comparing lengths first would elect a leader without committed entries."""
    assert prevote.log_is_current(theirs, ours) is current


# ---------------------------------------------------------------------------------- flow


def flow(bytes_max: int = 100, messages_max: int = 4) -> Flow:
    """In step from the start."""
    made = Flow(bytes_max=bytes_max, messages_max=messages_max, reorder_s=0.1)
    made.accepted(0, next_item=1)
    return made


def test_an_ack_does_not_pull_next_back() -> None:
    """P4: entries in flight would be sent again for every acknowledgement."""
    window = flow()
    window.sent(1, 9, 10, 0.0)
    assert window.accepted(3, next_item=10) == 10
    assert window.accepted(12, next_item=10) == 13


def test_probing_only_goes_down_until_a_success() -> None:
    """P14: rejections of messages already on their way would raise next again, for ever."""
    probed = Flow(bytes_max=100, messages_max=4, reorder_s=0.1)
    assert probed.rejected(46, next_item=100, match=0) == 46
    assert probed.rejected(90, next_item=46, match=0) == 46
    assert probed.rejected(45, next_item=46, match=0) == 45
    assert probed.rejected(3, next_item=45, match=7) == 8, "never below what is known equal"
    assert probed.probing
    assert probed.accepted(59, next_item=45) == 60
    assert not probed.probing
    assert probed.rejected(50, next_item=60, match=59) == 60


def test_a_probe_is_one_message_at_a_time() -> None:
    """P14: a second question before the first answer could only be answered out of date."""
    probed = Flow(bytes_max=100, messages_max=4, reorder_s=0.1)
    assert probed.room() == 100
    probed.sent(5, 9, 10, 0.0)
    assert probed.room() == 0
    assert probed.rejected(9, next_item=9, match=0) == 9, "an answer to an older question"
    assert probed.room() == 0
    probed.rejected(4, next_item=9, match=0)
    assert probed.room() == 100


def test_the_window_closes_by_bytes_and_by_messages() -> None:
    """Without bounds a silent follower is sent the whole log, which its queue must hold."""
    window = flow(bytes_max=100, messages_max=4)
    window.sent(1, 1, 90, 0.0)
    assert window.room() == 10
    window.sent(2, 2, 500, 0.0)
    assert window.room() == 0
    window.accepted(2, next_item=3)
    assert (window.room(), window.in_flight_bytes, window.oldest_sent_s) == (100, 0, None)
    for number in range(3, 7):
        window.sent(number, number, 1, 1.0)
    assert window.room() == 0


def test_only_an_overtaken_message_is_lost() -> None:
    """A retransmission by a timer alone would storm a follower whose disk is slow."""
    window = flow()
    window.sent(1, 3, 10, 1.0)
    window.sent(4, 6, 10, 5.0)
    assert window.lost(1, 1.05) is None, "may have been overtaken on the way"
    lost = window.lost(2, 1.2)
    assert lost is not None
    assert (lost.first, lost.last) == (1, 3)
    assert window.lost(4, 5.0) is None, "the answer is as old as the message"
    assert window.lost(7, 99.0) is None, "was never sent"
    assert window.mostly_lost(5.2, 0)
    assert not window.mostly_lost(5.2, 1), "half of it may wait at the follower"
    assert not window.mostly_lost(5.0, 0), "the second may still arrive"
    lost.sent_s = 2.0
    assert window.lost(1, 2.05) is None, "it is on its way again"
    assert (window.forget_in_flight(), window.room()) == (20, 100)


def test_a_bucket_gives_its_rate_and_is_overdrawn_by_one_piece() -> None:
    """A transfer that is not slowed starves the writes of the same disk and network."""
    bucket = Bucket(1000, 100)
    assert bucket.wait_s(5.0) == 0
    bucket.take(600)
    assert bucket.wait_s(5.0) == pytest.approx(0.501)
    assert bucket.wait_s(5.502) == 0
    assert bucket.wait_s(99.0) == 0
    bucket.take(100)
    assert bucket.wait_s(99.0) > 0, "what was not used in time is not saved up"


# ---------------------------------------------------------------------------------- sizes

_STEPS = st.lists(
    st.tuples(st.sampled_from("aaaatc"), st.integers(0, 1 << 20)), min_size=1, max_size=120
)


@given(_STEPS)
def test_sizes_are_right_to_within_a_piece(steps: list[tuple[str, int]]) -> None:
    """What is kept of a log for others is decided by them; walking the log would cost too much."""
    sizes, base, log = LogSizes(0), 0, list[int]()
    slack = LogSizes.PIECE * 3 // 2  # a piece and the entry that ends it
    for step, number in steps:
        if step == "a":
            log.append(number % (LogSizes.PIECE // 2))
            sizes.appended(base + len(log), log[-1])
        elif step == "t" and log:
            keep = number % len(log)
            sizes.truncate(base + keep + 1, sum(log[keep:]))
            del log[keep:]
        elif step == "c" and log:
            gone = number % len(log)
            del log[:gone]
            base += gone
            sizes.compact(base)
        at = number % (len(log) + 1)
        assert sum(log[at:]) <= sizes.after(base + at) <= sum(log[at:]) + slack
    wanted = sum(log) // 2
    before = sizes.before_end(wanted)
    assert before <= base or sum(log[before - base :]) >= wanted
    assert before >= base or sum(log) <= wanted + slack


def test_sizes_forget_at_most_a_piece_when_nobody_knows_what_went() -> None:
    """Entries that are cut off and not in memory any more are not read for being counted."""
    sizes = LogSizes(0)
    for index in range(1, 101):
        sizes.appended(index, 10_000)
    sizes.truncate(51, None)
    assert 500_000 - LogSizes.PIECE - 10_000 <= sizes.after(0) <= 500_000


# ---------------------------------------------------------------------------------- reorder


def message(prev: int, term: int = 1) -> dict[str, object]:
    return {"term": term, "prevLogIdx": prev}


def test_parked_messages_come_back_in_order() -> None:
    """F10: refusing what overtook would make the leader send all of it again."""
    parked = Parked(bytes_max=100, messages_max=4)
    assert all(parked.put(prev, message(prev), 10) for prev in (9, 5, 7))
    assert parked.take(4, 1) is None
    assert parked.take(8, 1) == message(5)
    assert parked.take(8, 1) == message(7)
    assert parked.take(8, 1) is None
    assert (parked.waiting(1), parked.waiting(2)) == (1, 0)


def test_parked_messages_are_bounded_and_of_one_term() -> None:
    """Messages of a deposed leader must not come back, and a flood must not fill the memory."""
    parked = Parked(bytes_max=100, messages_max=2)
    assert parked.put(1, message(1), 60)
    assert not parked.put(2, message(2), 60), "bytes"
    assert parked.put(2, message(2), 10)
    assert parked.put(2, message(2), 20), "a longer one replaces the shorter"
    assert not parked.put(3, message(3), 1), "messages"
    assert parked.take(9, 2) is None, "another term's"
    assert parked.put(3, message(3, 2), 100)
    assert (parked.waiting(1), parked.waiting(2)) == (0, 1)


# ---------------------------------------------------------------------------------- append

_TERMS = st.lists(st.integers(1, 4), max_size=6).map(sorted)


def _term_at(base: tuple[int, int], log: list[int], index: int) -> int | None:
    if index == base[0]:
        return base[1]
    return log[index - base[0] - 1] if 0 < index - base[0] <= len(log) else None


@given(
    ours=_TERMS,
    theirs=_TERMS,
    prev=st.integers(0, 6),
    count=st.integers(0, 6),
    base=st.integers(0, 3),
)
def test_place_equals_the_paper(
    ours: list[int], theirs: list[int], prev: int, count: int, base: int
) -> None:
    """Figure 2, steps 2-5, by brute force: a wrong place drops committed entries."""
    # Equal up to the base, as everything committed is; a log here is the list of its terms.
    theirs = ours[:base] + [max(term, *ours[:base], 1) for term in theirs[base:]]
    base = min(base, len(ours), len(theirs))
    prev = min(prev, len(theirs))
    sent = theirs[prev : prev + count]
    whole = [0, *ours]
    message_term = ([0, *theirs])[prev]
    if prev < base or (prev < len(whole) and whole[prev] == message_term):
        keep, expected = prev, list(whole)
        for at, term in enumerate(sent, prev + 1):
            if at <= base or (at < len(expected) and expected[at] == term):
                keep = at
            else:
                expected = expected[:at] + sent[at - prev - 1 :]
                break
    else:
        expected, keep = None, 0
    base_pair = (base, whole[base])
    placed = append.place(
        prev,
        message_term,
        sent,
        base=base_pair,
        term_at=lambda index: _term_at(base_pair, ours[base:], index),
    )
    match placed:
        case append.Mismatch():
            assert expected is None
        case append.Known(end):
            assert expected == whole
            assert end == prev + len(sent)
        case append.Extend(at, term, skip):
            assert whole[at] == term
            assert at == keep
            assert whole[: at + 1] + sent[skip:] == expected


# ---------------------------------------------------------------------------------- leases and
# reads


def test_a_promise_binds_from_the_start_and_from_each_word_of_a_leader() -> None:
    """A node that restarted may have promised just before: voting at once breaks a lease."""
    promise = Promise(now_s=100.0, election_min_s=1.0)
    assert promise.binds(100.99)
    assert not promise.binds(101.0)
    promise.heard_leader(101.5)
    assert promise.binds(102.4)


def test_a_lease_counts_from_the_sending() -> None:
    """Counted from the answer, a slow network would stretch it beyond the voters' promises."""
    lease = Lease(lease_s=0.8)
    lease.sent(1, 10.0)
    assert not lease.holds(10.0)
    lease.confirmed(1)
    assert lease.holds(10.79)
    assert not lease.holds(10.8)
    lease.sent(2, 10.5)
    lease.confirmed(1)
    assert not lease.holds(10.85), "round 2 was not answered"
    lease.confirmed(2)
    assert lease.holds(11.2)


def test_no_lease_after_a_transfer_was_ordered() -> None:
    """The order overrides the voters' promises, and may arrive at any time later in the term."""
    lease = Lease(lease_s=0.8)
    lease.sent(1, 10.0)
    lease.confirmed(1)
    lease.forbid()
    lease.sent(2, 10.1)
    lease.confirmed(2)
    assert not lease.holds(10.2)
    lease.restart()
    lease.sent(3, 20.0)
    lease.confirmed(3)
    assert lease.holds(20.1), "a new term of leadership has leases again"


def test_forgotten_rounds_extend_nothing() -> None:
    """The table of rounds is bounded; an answer from before it must not raise."""
    lease = Lease(lease_s=0.8)
    for number in range(1, 200):
        lease.sent(number, float(number))
    lease.confirmed(1)
    assert not lease.holds(1.0)
    lease.confirmed(199)
    assert lease.holds(199.5)


def test_a_round_needs_a_majority_of_the_voters() -> None:
    """One answer of four others would let a minority's leader serve stale reads."""
    rounds = Rounds()
    first = rounds.next()
    others = [2, 3, 4, 5]
    assert not rounds.answered(2, first, others)
    assert not rounds.answered(2, first, others), "a duplicate is one voter"
    assert rounds.answered(3, first, others)
    assert rounds.confirmed == first
    rounds.restart()
    rounds.next()
    assert not rounds.answered(4, 99, others), "an answer to a round that was never sent"
    assert rounds.confirmed == first


def test_reads_are_served_in_order_once_confirmed_and_applied() -> None:
    """A read served at an older index, or under another term, may miss an acknowledged write."""
    queue, seen = ReadQueue(), []
    for name, number, index in (("a", 1, 5), ("b", 2, 5), ("c", 2, 7)):
        queue.add(PendingRead(3, number, index, lambda at, name=name: seen.append((name, at))))  # type: ignore[misc]

    def serve(confirmed: int, applied: int) -> None:
        for done in queue.take_served(confirmed=confirmed, applied_index=applied):
            done(applied)

    serve(1, 4)
    assert seen == []
    serve(1, 5)
    serve(2, 6)
    assert seen == [("a", 5), ("b", 6)]
    assert queue.take_lost(leading_term=3) == []
    for done in queue.take_lost(leading_term=4):
        done(None)
    assert seen[-1] == ("c", None)
    assert len(queue) == 0


# ---------------------------------------------------------------------------------- membership


@given(st.sets(st.integers(0, 1 << 62), max_size=9), st.integers(0, 9))
def test_a_configuration_survives_its_bytes(ids: set[int], split: int) -> None:
    """A voter that is lost in the encoding changes every majority."""
    ordered = sorted(ids)
    config = membership.membership(3, ordered[:split], ordered[split:])
    assert membership.decode(3, config.encode()) == config
    for cut in range(len(config.encode())):
        with pytest.raises(ValueError, match=r"configuration|bytes"):
            membership.decode(3, config.encode()[:cut])


def test_bad_configurations_are_refused() -> None:
    """A node that is voter and learner, or counted twice, breaks the count of majorities."""
    for voters, learners in (([1, 1], []), ([1], [1]), ([-1], []), (range(100), [])):
        with pytest.raises(BadConfig):
            membership.membership(0, voters, learners)


def test_the_last_configuration_of_the_log_counts() -> None:
    """Thesis 4.1: waiting for its commit would let two disjoint majorities exist."""
    history = MembershipHistory(Membership(0, (1,), ()))
    history.append(Membership(5, (1, 2), ()))
    history.append(Membership(9, (1, 2, 3), ()))
    assert list(history.current.voters) == [1, 2, 3]
    assert history.at(8).voters == (1, 2)
    history.truncate(9)
    assert list(history.current.voters) == [1, 2]
    assert history.compact(7) == Membership(5, (1, 2), ())
    history.truncate(1)
    assert list(history.current.voters) == [1, 2], "the base is committed and never taken back"


def test_changes_that_a_leader_must_not_propose() -> None:
    """Each line guards against two leaders, or a group without a quorum."""
    old = Membership(3, (1, 2, 3), (4,))

    def refusal(
        voters: tuple[int, ...],
        *,
        commit: int = 9,
        ours: bool = True,
        caught_up: bool = True,
        gone: tuple[int, ...] = (),
    ) -> str | None:
        new = Membership(10, voters, ())
        return check_change(
            old,
            new,
            me=1,
            commit_index=commit,
            commit_term_is_ours=ours,
            caught_up=lambda _node: caught_up,
            responsive=lambda node: node not in gone,
        )

    assert refusal((1, 2, 3, 4)) is None
    assert refusal((1, 2)) is None
    assert refusal((1, 2), gone=(3,)) is None, "the one that is gone is removed"
    for reason, change in {
        "at most one voter": refusal((1, 2, 3, 4, 5)),
        "does not remove itself": refusal((2, 3)),
        "no entry of this term": refusal((1, 2), ours=False),
        "previous change": refusal((1, 2), commit=2),
        "not caught up": refusal((1, 2, 3, 4), caught_up=False),
        "only [1] of the new voters": refusal((1, 2), gone=(2,)),
    }.items():
        assert change is not None
        assert reason in change


def test_majorities_of_neighbouring_configurations_overlap() -> None:
    """The proof behind one voter at a time, by enumeration up to five voters."""
    for size in range(1, 5):
        old = set(range(size))
        for new in (old | {size}, old - {0}):
            for a in itertools.combinations(sorted(old), len(old) // 2 + 1):
                for b in itertools.combinations(sorted(new), len(new) // 2 + 1):
                    assert set(a) & set(b) or not new
